"""Runs that are kept while an engine serves: each can be saved at any moment and passes the check,
in memory that does not grow.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc

import pytest

from core import SamplingParams, Trace
from core.errors import InflightError
from core.proof.verify import verify
from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.event_log import ServedStep
from core.serving.limits import ServingLimits
from worlds.serving import (
    Fragile,
    all_messages,
    between_two_steps,
    char_engine,
    checked,
    greedy,
    idle,
    serving,
    whole,
)
from worlds.small import memory_engine


async def bustle(made: ServingEngine, rng: random.Random, rounds: int) -> None:
    """Requests, cancellations, waves, changes of all kinds, whole answers in between."""
    room, under_way = Classroom(made), []
    for _ in range(rounds):
        choice = rng.random()
        if choice < 0.5:
            prompt = [rng.randrange(4, 49) for _ in range(rng.randrange(1, 20))]
            under_way.append(
                await made.submit(
                    prompt, SamplingParams(rng.randrange(1, 25), ignore_eos=rng.random() < 0.5)
                )
            )
        elif choice < 0.65 and under_way:
            rng.choice(under_way).cancel()
        elif choice < 0.75:
            under_way += await room.burst(
                [((5, 6, 7), greedy(rng.randrange(1, 9)))] * rng.randrange(1, 6)
            )
        elif choice < 0.85:
            policy = rng.choice(
                ["continuous", "static", "split", "dynamic", "shortest-first", "stall"]
            )
            more = {"prefix_caching": True} if policy == "continuous" and rng.random() < 0.5 else {}
            room.configure(
                policy=policy,
                max_num_seqs=rng.randrange(1, 5),
                start=rng.choice(["idle", "barrier"]),
                **more,
            )
        elif choice < 0.88:
            made.clear()
        elif choice < 0.94:
            made.set_pace(rng.choice([0, 0, 500, None]))
            made.step(rng.randrange(3))
        else:
            made.set_pace(None)
            await asyncio.gather(*map(whole, under_way))
            under_way = []
        await asyncio.sleep(rng.random() * 0.004)
    made.set_pace(None)
    await asyncio.gather(*map(whole, under_way))
    await idle(made)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_sessions_pass_the_check(seed):
    rng = random.Random(seed)
    with serving(
        memory_engine(max_num_seqs=3, max_num_batched_tokens=16, num_blocks=12),
        ServingLimits(kept_tokens=4000),
    ) as made:
        asyncio.run(bustle(made, rng, 120))
        runs = made.sessions
        assert runs and made.status == "ok" and not made.num_step_failures
        for run, steps in runs:
            verdict = checked(made.session(run))
            assert verdict.num_steps == steps and verdict.not_replayed is None and verdict.complete


@pytest.mark.slow
def test_a_session_can_be_saved_at_any_moment():
    async def peek(made: ServingEngine):
        busy = asyncio.create_task(bustle(made, random.Random(7), 80))
        incomplete = 0
        while not busy.done():
            await asyncio.sleep(0.005)
            if made.sessions:
                incomplete += not checked(made.session()).complete
        await busy
        return incomplete

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert asyncio.run(peek(made))


@pytest.mark.slow
def test_a_long_session_is_the_log_step_for_step():
    async def ask(made: ServingEngine):
        for _ in range(30):
            await whole(await made.submit((4, 5, 6), greedy(30)))

    with serving(memory_engine()) as made:
        asyncio.run(ask(made))
        shown = [
            entry.data.event
            for entry in made.event_log._messages
            if isinstance(entry.data, ServedStep)
        ]
        session = made.session()
    assert session.events == shown and len(shown) > 600 and checked(session).complete


def test_a_session_holds_texts_and_no_nicknames(tmp_path):
    async def ask(made: ServingEngine):
        sampling = SamplingParams(20, temperature=0.8, seed=3)
        return await whole(await made.submit("Hark, ", sampling, nickname="Nobody"))

    with serving(char_engine()) as made:
        answer = asyncio.run(ask(made))
        made.session().save(tmp_path / "session.jsonl")
    text = (tmp_path / "session.jsonl").read_text()
    trace = Trace.load(tmp_path / "session.jsonl")
    (only,) = trace.prompts
    assert "Nobody" not in text and trace.text(only) == "".join(p.text for p in answer)
    assert (
        verify(text.splitlines(), tokenizer=lambda name: char_engine().tokenizer).not_decoded
        is None
    )


def test_room_for_a_new_run_is_made_when_the_engine_is_idle_and_the_oldest_goes():
    async def ask(made: ServingEngine):
        for _ in range(30):
            await whole(await made.submit((4, 5, 6, 7), greedy(20)))
            await idle(made)

    with serving(memory_engine(), ServingLimits(kept_tokens=300)) as made:
        asyncio.run(ask(made))
        (first, _), *_, (last, steps) = made.sessions
        assert first > 0 and steps and sum(s for _, s in made.sessions) <= 300
        with pytest.raises(InflightError, match="Run 0 is not kept"):
            made.session(0)
        assert checked(made.session(last)).complete


def test_limits_that_change_while_nothing_runs_leave_no_runs_behind():
    with serving(memory_engine(max_num_seqs=2)) as made:
        room = Classroom(made)
        asyncio.run(whole_of(made))
        for lanes in range(1, 9):
            room.configure(max_num_seqs=lanes)
        asyncio.run(whole_of(made))
        assert [steps for _, steps in made.sessions] == [3, 3]
        last, _ = made.sessions[-1]
        assert made.session().events == made.session(last).events != made.session(0).events
        assert len(made._session._runs) <= 3


async def whole_of(made: ServingEngine) -> None:
    await whole(await made.submit((4, 5), greedy(3)))
    await idle(made)


def test_of_a_run_without_a_pause_the_beginning_is_kept_and_says_so():
    async def ask(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        streams = [await made.submit((4, 5, i), greedy(40)) for i in range(20)]
        made.set_pace(None)
        await asyncio.gather(*map(whole, streams))
        await idle(made)
        assert room.state["record_is_full"]
        cut = made.session()
        await whole(await made.submit((4, 5), greedy(3)))
        return cut, made.session(), await all_messages(made)

    with serving(memory_engine(max_num_seqs=2), ServingLimits(kept_tokens=600)) as made:
        cut, after, messages = asyncio.run(ask(made))
    assert [m["record_is_full"] for m in messages if m["kind"] == "class"] == [False, True, False]
    verdict = checked(cut)
    assert not verdict.complete and 0 < verdict.num_tokens <= 600
    assert any("busy without a pause" in note and "not kept" in note for note in cut.header.notes)
    assert checked(after).complete and len(after.events) == 3


def test_a_step_that_fails_ends_a_run_that_can_be_saved():
    async def ask(made: ServingEngine):
        running = await made.submit((4, 5, 6), greedy(500))
        await anext(aiter(running))
        poison = await made.submit((49, 7), greedy(4))
        for stream in (poison, running):
            with pytest.raises(InflightError):
                await whole(stream)
        await whole(await made.submit((4, 5), greedy(3)))

    with serving(memory_engine(model=Fragile(), max_num_seqs=2)) as made:
        asyncio.run(ask(made))
        first, second = made.session(0), made.session(1)
    assert not checked(first).complete and len(first.events) and checked(second).complete


@pytest.mark.slow
def test_memory_is_flat_over_many_requests():
    """With a viewer, and requests that ask for top log-probabilities; containers and bytes.

    What is kept is the same at each count: all of one run, as every hundred requests come between
    two steps and fill more than half of a record; and, of the log, the latest messages, once those
    are gone that it keeps beyond its due.
    """

    async def watch(made: ServingEngine) -> None:
        async for excerpt in made.event_log.read():
            for data in (message.data for message in excerpt.taken):
                kind = data["kind"] if isinstance(data, dict) else "step"
                assert kind != "skipped"

    async def many(made: ServingEngine, count: int) -> None:
        for index in range(count // 100):
            sampling = greedy(1 + index % 3)
            with between_two_steps(made):
                asking = [
                    asyncio.create_task(
                        made.submit(
                            (4, 5, i % 40 + 4), sampling, nickname="Ann", num_top_logprobs=i % 2
                        )
                    )
                    for i in range(100)
                ]
                await asyncio.sleep(0)
            await asyncio.gather(*map(whole, await asyncio.gather(*asking)))
            await idle(made)

    async def measured(made: ServingEngine) -> list[int]:
        watching = asyncio.create_task(watch(made))
        sizes = []
        for _ in range(4):
            await many(made, 500)
            assert len(made.sessions) == 1 and len(made.event_log._messages) <= 400
            del made.event_log._messages[:-200]
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        watching.cancel()
        return sizes

    tracemalloc.start()
    try:
        with serving(memory_engine(max_num_seqs=32), ServingLimits(kept_tokens=3000)) as made:
            made.event_log._kept = 200
            sizes = asyncio.run(measured(made))
            assert sizes[-1] - sizes[1] < 150_000, sizes  # of 1000 requests
            assert not made._thread._under_way and not made.engine.outputs.top_logprobs._asked
            assert made.num_requests == 0
    finally:
        tracemalloc.stop()
