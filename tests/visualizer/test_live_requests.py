"""Requests of the Live tab: found again by their key, ended when nobody reads them, cancelled by who has the key alone."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import InvalidRequest
from core.serving.engine import ServingEngine
from visualizer.server import live_requests as module
from visualizer.server.live_requests import LiveRequests, request_id
from worlds.server_events import messages_in
from worlds.serving import char_engine

KEY = "k" * 20


async def read(asks: LiveRequests, **places: int) -> list[dict]:
    told = [told async for piece in asks.read(places) for told in messages_in(piece)]
    return [told for told in told if "gone" in told] + [message for part in told for message in part.get("messages", ())]


def with_engine(test):
    """Run a coroutine function beside an engine that stands still."""
    serving = ServingEngine(char_engine(max_num_seqs=2))
    serving.start()
    serving.set_pace(0)
    try:
        return asyncio.run(asyncio.wait_for(test(serving, LiveRequests(serving)), 60))
    finally:
        serving.close()


def test_texts_of_all_ones_requests_come_in_one_stream_and_again_from_any_place():
    async def go(serving, asks):
        other = "o" * 20
        for key in (KEY, other):
            assert await asks.begin(
                {"key": key, "prompt": "O Romeo", "max_new_tokens": 6, "temperature": 0.0}, "me"
            ) == request_id(key)
        assert await asks.begin({"key": KEY, "prompt": "O Romeo", "max_new_tokens": 6}, "me") == request_id(
            KEY
        )  # asked twice, one request
        assert serving.num_requests == 2
        reading = asyncio.create_task(read(asks, **{KEY: 0, other: 0, "unknown" * 3: 0}))
        serving.set_pace(None)
        deltas = await reading
        texts = {
            key: "".join(d["text"] for d in deltas if d.get("id") == request_id(key) and "text" in d) for key in (KEY, other)
        }
        assert texts[KEY] == texts[other] and len(texts[KEY]) == 6
        assert [d for d in deltas if "gone" in d] == [{"of": "unknown" * 3, "gone": True}]
        own = [d for d in deltas if d.get("id") == request_id(KEY)]
        assert own[-1]["ended"]["finish_reason"] == "length" and own[-1]["ended"]["tokens"] == 6
        assert await read(asks, **{KEY: 3}) == own[3:]

    with_engine(go)


def test_a_request_that_nobody_reads_ends_and_frees_its_lane(monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.05)

    async def go(serving, asks):
        await asks.begin({"key": KEY, "prompt": "O Romeo", "max_new_tokens": 100}, "me")
        serving.step(2)
        while serving.num_requests:  # the step in which it leaves is taken at once
            serving.step(1)
            await asyncio.sleep(0.02)
        assert (await read(asks, **{KEY: 0}))[-1]["ended"]["finish_reason"] == "cancelled"
        assert serving.engine.kv_blocks[0] == 0 and not serving.engine.running

    with_engine(go)


def test_what_is_no_request_is_refused_in_a_sentence():
    async def go(serving, asks):
        good = {"key": KEY, "prompt": "O Romeo"}
        for wrong in (
            {"key": "short"},
            {"key": 7},
            {"key": "\ud800" * 20},
            {"prompt": None},
            {"prompt": ["a"]},
            {"nickname": 5},
            {"max_new_tokens": "many"},
            {"temperature": []},
        ):
            with pytest.raises(InvalidRequest):
                await asks.begin({**good, **wrong}, "me")
        assert not asks.cancel("somebody else's key") and serving.num_requests == 0

    with_engine(go)
