"""How fast an engine that serves may go: full speed, so many steps a second, or step by step."""

from __future__ import annotations

import asyncio

import pytest

from core.serving.engine import ServingEngine
from core.serving.engine_thread import Pace
from worlds.serving import all_messages, between_two_steps, greedy, idle, serving, tokens, whole
from worlds.small import generate, memory_engine, request


def test_the_pace_is_set_and_single_steps_are_taken():
    async def slowly(made: ServingEngine):
        made.set_pace(0)
        stream = await made.submit((4, 5), greedy(6))
        steps: list[int] = []

        async def steps_taken(count: int) -> None:
            while made.engine.num_steps < count:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)  # nothing more happens
            steps.append(made.engine.num_steps)

        await steps_taken(0)
        made.step()
        await steps_taken(1)
        made.step(3)
        await steps_taken(4)
        made.set_pace(200)
        pieces = await whole(stream)
        endless = [await made.submit((4, 5), greedy(3000)) for _ in range(3)]
        made.clear()
        assert [(await whole(s))[-1].finish_reason for s in endless] == ["cancelled"] * 3
        made.set_pace(None)
        await idle(made)
        paces = [m["steps_per_s"] for m in await all_messages(made) if m["kind"] == "pace"]
        return steps, tokens(pieces), paces

    with serving(memory_engine(max_num_seqs=2)) as made:
        given = generate(request("r", (4, 5), 6))
        # viewers learn of each, and of the last, at which an engine ends
        assert asyncio.run(slowly(made)) == ([0, 1, 4], given, [None, 0, 200, None, None])


def test_a_step_with_nobody_there_is_not_kept_for_who_comes_later():
    async def alone(made: ServingEngine):
        made.set_pace(0)
        made.step(5)
        made.clear()
        while made._thread.pace.wait_s is not None:
            await asyncio.sleep(0.001)
        stream = await made.submit((4, 5), greedy(2))
        assert made._thread.pace.wait_s is None and made.engine.num_steps == 0
        made.set_pace(None)
        await whole(stream)

    with serving(memory_engine()) as made:
        asyncio.run(alone(made))


def test_those_who_are_cleared_leave_though_the_batch_then_stands_still():
    async def clear(made: ServingEngine):
        made.set_pace(0)
        stream = await made.submit((4, 5), greedy(3000))
        with between_two_steps(made):
            made.clear()
            made.set_pace(0)
        assert (await whole(stream))[-1].finish_reason == "cancelled"
        await idle(made)

    with serving(memory_engine()) as made:
        asyncio.run(clear(made))


def test_a_pace_of_a_step_in_many_years_stops_nobody_from_setting_another():
    async def slowly(made: ServingEngine):
        made.set_pace(1e-300)
        stream = await made.submit((4, 5), greedy(3))
        await anext(aiter(stream))
        made.set_pace(None)
        return await whole(stream)

    with serving(memory_engine()) as made:
        assert asyncio.run(slowly(made))[-1].finish_reason == "length"


def test_pace_by_the_clock():
    now = [10.0]
    pace = Pace(lambda: now[0])
    assert pace.wait_s == 0
    pace.set(4)
    assert pace.wait_s == 0
    pace.stepped()
    assert pace.wait_s == 0.25
    now[0] += 0.2
    assert pace.wait_s == pytest.approx(0.05)
    pace.ask(1)
    assert pace.wait_s == 0
    pace.set(0)
    assert pace.wait_s is None
