"""Requests of the Live tab: found again by their key, ended when nobody reads them, cancelled by
who has the key alone.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import httpx
import pytest

from core import Engine
from core.errors import InvalidRequest
from core.serving.engine import ServingEngine
from core.serving.event_log import Hidden, events
from core.serving.limits import ServingLimits
from visualizer.server import live_requests as module
from visualizer.server.live_requests import Bots, LiveRequests, request_id
from visualizer.server.live_routes import OWN, live_app, live_of
from worlds.server_events import messages_in
from worlds.serving import Served, char_engine, served

KEY = "k" * 20


async def read(asks: LiveRequests, **places: int) -> list[dict]:
    told = [told async for piece in asks.read(places) for told in messages_in(piece)]
    return [told for told in told if "gone" in told] + [
        message for part in told for message in part.get("messages", ())
    ]


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
        assert await asks.begin(
            {"key": KEY, "prompt": "O Romeo", "max_new_tokens": 6}, "me"
        ) == request_id(KEY)  # asked twice, one request
        assert serving.num_requests == 2
        reading = asyncio.create_task(read(asks, **{KEY: 0, other: 0, "unknown" * 3: 0}))
        serving.set_pace(None)
        deltas = await reading
        texts = {
            key: "".join(
                d["text"] for d in deltas if d.get("id") == request_id(key) and "text" in d
            )
            for key in (KEY, other)
        }
        assert texts[KEY] == texts[other] and len(texts[KEY]) == 6
        assert [d for d in deltas if "gone" in d] == [{"of": "unknown" * 3, "gone": True}]
        own = [d for d in deltas if d.get("id") == request_id(KEY)]
        assert own[-1]["ended"]["finish_reason"] == "length" and own[-1]["ended"]["tokens"] == 6
        assert await read(asks, **{KEY: 3}) == own[3:]

    with_engine(go)


@pytest.mark.parametrize(
    "template", [None, "{% for m in messages %}{{ m.role }} asks: {{ m.content }}{% endfor %}"]
)
def test_what_a_person_writes_is_a_message_to_a_model_with_a_chat_template(template):
    loaded = char_engine(max_num_seqs=2)
    tokenizer = copy.deepcopy(loaded.tokenizer)
    tokenizer.chat_template = template
    engine = Engine(loaded.adapter, tokenizer, loaded.config)
    serving = ServingEngine(engine, hidden=Hidden(texts=False, nicknames=False))

    async def go():
        await LiveRequests(serving).begin({"key": KEY, "prompt": "Hark", "max_new_tokens": 2}, "me")
        await Bots(serving, ("Hark",)).begin("me")
        [excerpt] = [await anext(serving.event_log.read(coalesce_s=0))]
        asked = [m for m in json.loads(excerpt.messages) if m["kind"] == "request"]
        return {tokenizer.decode(request["prompt_token_ids"]) for request in asked}

    serving.start()
    try:
        assert asyncio.run(go()) == {"user asks: Hark" if template else "Hark"}
    finally:
        serving.close()


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
        monkeypatch.setattr(module, "GRACE", 30.0)
        await asks.begin({"key": KEY[:-1] + "2", "prompt": "O Romeo", "max_new_tokens": 100}, "me")
        serving.step(2)
        async with aclosing(asks.read({KEY[:-1] + "2": 0})) as reading:
            await anext(reading)
            monkeypatch.setattr(module, "GRACE", 0.05)
        while serving.num_requests:  # who had a reader, too, ends once the last one has left
            serving.step(1)
            await asyncio.sleep(0.02)
        assert (await read(asks, **{KEY[:-1] + "2": 0}))[-1]["ended"][
            "finish_reason"
        ] == "cancelled"

    with_engine(go)


def test_a_request_goes_on_if_it_is_read_again_before_its_time_is_up(monkeypatch):
    """As after a reload of the page."""
    times_up = []
    monkeypatch.setattr(module, "Wait", lambda seconds, then: times_up.append(then))

    async def go(serving, asks):
        await asks.begin({"key": KEY, "prompt": "O Romeo", "max_new_tokens": 6}, "me")
        serving.step(2)
        async with aclosing(asks.read({KEY: 0})) as reading:
            await anext(reading)
            [time_is_up] = times_up
            time_is_up()
            serving.set_pace(None)
            async for _ in reading:
                pass
        ended = (await read(asks, **{KEY: 0}))[-1]["ended"]
        assert (ended["finish_reason"], ended["tokens"]) == ("length", 6)

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


def nobodys_live(of: str):
    raise AssertionError("nobody watches")


def text_of(server: Served, key: str) -> tuple[str, dict]:
    """What a page reads of its request: the text, and how it ended."""
    with httpx.stream(
        "GET", f"{server.url}/requests?places={key}:0", timeout=60, trust_env=False
    ) as response:
        told = [
            m
            for line in response.iter_lines()
            for part in messages_in(line)
            for m in part.get("messages", ())
        ]
    return "".join(m.get("text", "") for m in told), told[-1]["ended"]


@pytest.mark.slow
def test_many_calls_at_once_with_one_key_are_one_request_and_hurt_nobody():
    """Another's goes on in the same steps; no place of the address is lost, however often it is
    tried.
    """
    calls, rounds = 12, 5
    together = threading.Barrier(calls)
    limits = ServingLimits(max_requests_per_client=rounds)

    def ask(server: Served, key: str) -> tuple[int, str]:
        together.wait(60)
        answer = server.post(
            "/requests", {"key": key, "prompt": "O Romeo", "max_new_tokens": 8, "temperature": 0.0}
        )
        return answer.status_code, answer.json()["id"]

    def app(serving: ServingEngine):
        return live_app(nobodys_live, LiveRequests(serving), lambda request: request.client.host)

    with (
        served(char_engine(max_num_seqs=4), limits, app=app) as server,
        ThreadPoolExecutor(calls) as pool,
    ):
        other = "o" * 20
        server.post(
            "/requests", {"key": other, "prompt": "Hark", "max_new_tokens": 200, "temperature": 0.0}
        ).raise_for_status()
        for number in range(rounds):
            key = f"{number}" * 20
            assert set(pool.map(lambda key: ask(server, key), [key] * calls)) == {
                (200, request_id(key))
            }
            text, ended = text_of(server, key)
            assert len(text) == 8 and ended["finish_reason"] == "length"
        assert text_of(server, other)[1]["tokens"] == 200
        assert server.serving.num_requests == 0 and server.serving.num_step_failures == 0


def test_who_leaves_as_a_request_begins_does_not_end_it_for_who_asks_again():
    """A page that is reloaded at that moment asks with the same key."""

    async def go(serving, asks):
        asked = {"key": KEY, "prompt": "O Romeo", "max_new_tokens": 2}
        left = asyncio.create_task(asks.begin(asked, "me"))
        await asyncio.sleep(0)  # it waits for its request
        left.cancel()
        again = await asyncio.gather(left, asks.begin(asked, "me"), return_exceptions=True)
        assert isinstance(again[0], asyncio.CancelledError) and again[1] == request_id(KEY)
        assert serving.num_requests == 1

    with_engine(go)


def test_one_stream_reads_so_many_requests_and_what_is_no_place_is_none():
    def app(serving: ServingEngine):
        return live_app(nobodys_live, LiveRequests(serving), lambda request: "me")

    with served(char_engine(max_num_seqs=2), app=app) as server:
        places = ["no-place", "k:x", "k:-1", *(f"{number:020}:0" for number in range(40))]
        found = server.get(f"/requests?places={','.join(places)}")
        gone = [told["of"] for told in messages_in(found.text)]
    assert len(gone) == OWN - 3 and set(gone) == {f"{number:020}" for number in range(OWN - 3)}


def test_each_call_of_the_live_tab_is_answered_with_its_status():
    def nobodys(of: str):
        raise InvalidRequest(f"Nothing is called {of}.")

    def app(serving: ServingEngine):
        serving.set_pace(0)
        asks, bots = LiveRequests(serving), Bots(serving, ["Hark"])
        return live_app(nobodys, asks, lambda request: "me", bots)

    object_, key, full = (
        "A request is asked for as a JSON object with a key and a prompt.",
        "A request is asked for with a key of 16 to 64 characters, which its page makes up.",
        "1 of your requests is in progress; the limit per client is 1.",
    )
    own, limits = {"key": KEY, "prompt": "O Romeo"}, ServingLimits(max_requests_per_client=1)
    with served(char_engine(), limits, app=app) as server:
        for path, body, status, told in (
            ("requests", [own], 400, {"error": object_}),
            ("requests", own | {"key": "short"}, 422, {"error": key}),
            ("requests", own, 200, {"id": request_id(KEY)}),
            ("requests", own | {"key": "o" * 20}, 429, {"error": full, "retry_after": 1}),
            ("bots", {}, 429, {"error": full, "retry_after": 1}),
            (f"requests/{'o' * 20}/cancel", {}, 200, {"cancelled": False}),
            (f"requests/{KEY}/cancel", {}, 200, {"cancelled": True}),
        ):
            answer = server.post(f"/{path}", body)
            assert (answer.status_code, answer.json()) == (status, told), (path, body)
            assert answer.headers.get("retry-after") == ("1" if status == 429 else None)
        watched = server.get("/steps?of=a")
    assert (watched.status_code, watched.json()) == (422, {"error": "Nothing is called a."})


@pytest.mark.slow
def test_runs_of_an_engine_that_takes_the_place_of_another_are_numbered_on():
    """Viewers tell by its number that a run is another one."""
    first, second = (ServingEngine(char_engine(max_num_seqs=lanes)) for lanes in (1, 2))
    for serving in (first, second):
        serving.start()
    live = live_of(first, lambda: second)
    first.close(), second.close()

    async def begun() -> list[tuple[int, int]]:
        return [
            (told["begin"]["run"], told["header"]["config"]["max_num_seqs"])
            async for piece in events(live.event_log)
            for told in messages_in(piece)
            if "begin" in told
        ]

    assert asyncio.run(asyncio.wait_for(begun(), 60)) == [(0, 1), (1, 2)]


@pytest.mark.slow
def test_ended_requests_of_one_client_do_not_make_the_page_forget_those_of_others(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 2)

    async def go(serving, asks):
        serving.set_pace(None)
        keys = [f"{number}{KEY}" for number in range(5)]
        for number, key in enumerate(keys):
            await asks.begin(
                {"key": key, "prompt": "O", "max_new_tokens": 1}, "other" if number == 0 else "me"
            )
            await read(asks, **{key: 0})
        told = await read(asks, **dict.fromkeys(keys, 0))
        assert {d["of"] for d in told if "gone" in d} == {keys[1], keys[2]}

    with_engine(go)
