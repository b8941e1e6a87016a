"""Three bots on the Live tab: programs that say so, ask for a while, and stop by themselves."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from core.errors import InvalidRequest, TooManyRequests, Unavailable
from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.event_log import Hidden
from core.serving.limits import ServingLimits
from visualizer.server import live_requests
from visualizer.server.live_requests import BOTS, ROUNDS, Bots
from worlds.live_page import TOKEN, control, live_server, live_url  # noqa: F401
from worlds.serving import char_engine, chat_engine

PROMPTS = ("O Romeo", "To be", "Hark")


def with_bots(test, monkeypatch, engine=char_engine, **limits):
    """Run a coroutine function beside an engine at full speed, whose bots never pause."""
    monkeypatch.setattr(live_requests, "PAUSE", 0.0)
    serving = ServingEngine(
        engine(max_num_seqs=2), ServingLimits(**limits), hidden=Hidden(False, False)
    )
    serving.start()
    try:
        return asyncio.run(asyncio.wait_for(test(serving, Bots(serving, PROMPTS)), 120))
    finally:
        serving.close()


async def over(bots: Bots) -> None:
    while bots._asking:
        await asyncio.sleep(0.01)


async def asked(serving: ServingEngine) -> list[dict]:
    told: list[dict] = []
    async for excerpt in serving.event_log.read(coalesce_s=0):
        told += json.loads(excerpt.messages)
        if excerpt.last == serving.event_log._next - 1:
            break
    return [message for message in told if message["kind"] == "request"]


@pytest.mark.slow
def test_each_asks_its_rounds_under_a_bots_name_and_stops(monkeypatch):
    async def go(serving, bots):
        await bots.begin("me")
        with pytest.raises(TooManyRequests, match="asking already"):
            await bots.begin("somebody else")
        await over(bots)
        assert serving.num_requests == 0
        told = await asked(serving)
        assert len(told) == BOTS * ROUNDS and all(m["is_bot"] for m in told)
        assert {m["nickname"] for m in told} == {"Bot 1", "Bot 2", "Bot 3"}
        serving.event_log.hidden = Hidden(False, True)
        # nobody's name
        assert {m["nickname"] for m in await asked(serving)} == {"Bot 1", "Bot 2", "Bot 3"}
        await bots.begin("me")  # and again, once they have stopped
        await over(bots)

    with_bots(go, monkeypatch)


@pytest.mark.slow
def test_a_model_that_answers_is_asked_questions_that_it_can_end(monkeypatch):
    async def go(serving, bots):
        await bots.begin("me")
        await over(bots)
        told = await asked(serving)
        assert len(told) == BOTS * ROUNDS
        assert {m["messages"][0]["content"] for m in told} == set(PROMPTS)
        assert {m["max_new_tokens"] for m in told} == {live_requests.ANSWER}
        sampled = serving.session().asked.values()
        assert {one.request.sampling.temperature for one in sampled} == {0.0}

    with_bots(go, monkeypatch, chat_engine)


@pytest.mark.slow
def test_of_as_many_prompts_as_requests_each_is_asked_once(monkeypatch):
    prompts = tuple("abcdefghi")

    async def go(serving, _):
        bots = Bots(serving, prompts)
        await bots.begin("me")
        await over(bots)
        told = await asked(serving)
        assert len({tuple(m["prompt_token_ids"]) for m in told}) == BOTS * ROUNDS == len(prompts)

    with_bots(go, monkeypatch)


@pytest.mark.slow
def test_two_presses_at_the_same_instant_let_three_bots_ask(monkeypatch):
    async def go(serving, bots):
        given = await asyncio.gather(
            *(bots.begin(who) for who in "abcdefgh"), return_exceptions=True
        )
        assert (
            sorted(str(g) for g in given)[1:] == [sorted(str(g) for g in given)[1]] * 7
            and given.count(None) == 1
        )
        await over(bots)
        assert len(await asked(serving)) == BOTS * ROUNDS

    with_bots(go, monkeypatch)


def test_they_have_the_share_of_the_address_that_let_them_ask(monkeypatch):
    async def go(serving, bots):
        serving.set_pace(0)
        await bots.begin("me")
        while serving.num_requests < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert serving.num_requests == 2  # the third is refused, and leaves it at that
        with pytest.raises(TooManyRequests):
            await serving.submit("O", live_requests.SamplingParams(2), client="me")
        other = await serving.submit("O", live_requests.SamplingParams(2), client="you")
        other.cancel()
        serving.clear()  # as a teacher does: they ask nothing more
        serving.set_pace(None)
        await over(bots)
        assert len([m for m in await asked(serving) if m["is_bot"]]) == 2

    with_bots(go, monkeypatch, max_requests_per_client=2)


@pytest.mark.slow
def test_while_nothing_is_accepted_only_a_teachers_bots_ask(monkeypatch):
    async def go(serving, bots):
        Classroom(serving).accept(False)
        with pytest.raises(Unavailable, match="No requests are accepted"):
            await bots.begin("me")
        await bots.begin("teacher", even_if_closed=True)
        await over(bots)
        assert len(await asked(serving)) == BOTS * ROUNDS

    with_bots(go, monkeypatch)


@pytest.mark.parametrize(
    "name", ["Bot", "Bot 1", "Bot 10", "bot  7", "B.O.T. 1", "-bot-", "Ｂｏｔ 2"]
)
def test_nobody_is_called_a_bot_but_bots(monkeypatch, name):
    async def go(serving, bots):
        with pytest.raises(InvalidRequest, match="Only bots"):
            await serving.submit("O", live_requests.SamplingParams(2), nickname=name)
        for fine in ("Botond", "Abbot 1", "Robot"):
            (await serving.submit("O", live_requests.SamplingParams(2), nickname=fine)).cancel()

    with_bots(go, monkeypatch)


@pytest.mark.slow
def test_over_http_one_press_is_enough_and_the_teachers_token_counts(live_url):  # noqa: F811
    def press(**headers: str) -> httpx.Response:
        return httpx.post(
            f"{live_url}/inflight/live/bots", json={}, headers=headers, trust_env=False, timeout=60
        )

    control(live_url, accepting=False)
    refused = press()
    assert (refused.status_code, refused.json()["error"]) == (
        503,
        "No requests are accepted right now.",
    )
    assert press(**{"X-Teacher-Token": "wrong"}).status_code == 503
    assert press(**{"X-Teacher-Token": TOKEN}).json() == {"bots": 3}
    again = press(**{"X-Teacher-Token": TOKEN})
    assert again.status_code == 429 and "stop by themselves" in again.json()["error"]
    control(live_url, clear=True, steps_per_s=None)
