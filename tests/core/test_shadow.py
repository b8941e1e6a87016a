"""Another policy on the requests of an engine that serves is run on the real model while nobody asks, and costs who comes nothing."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from dataclasses import replace

import pytest

from core import SamplingParams, Workload
from core.errors import InvalidConfig
from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from worlds.serving import greedy, idle, serving, tokens, whole
from worlds.small import MemoryModel, memory_engine


async def shadows(made: ServingEngine, until) -> list[dict]:
    """What the shadow says, up to a message that `until` holds of."""
    found, last = [], None
    while True:
        async for batch in made.event_log.read(last, coalesce_s=0.01):
            last = batch.last
            for message in json.loads(batch.messages):
                if message["kind"] == "shadow":
                    found.append(message)
                    if until(message):
                        return found


def measured(message: dict) -> bool:
    return message["status"] == "done"


PROMPTS = [[random.Random(i).randrange(4, 49) for _ in range(1 + i % 9)] for i in range(24)]
ASKED = [SamplingParams(3 + 5 * (i % 6), ignore_eos=bool(i % 3)) for i in range(24)]


def test_it_keeps_the_pace_and_the_single_steps_of_the_engine_that_serves():
    """Under the same policy every step is taken when the real one was: as many steps in all, and none merged with another."""

    async def stepped(made: ServingEngine, count: int) -> dict:
        """So many requests, whose first four steps are taken singly; what is said in the end."""
        streams = [await made.submit((4, 5, i), greedy(6)) for i in range(count)]
        for steps in (1, 3):
            made.step(steps)
        while made.engine.num_steps < 4:
            await asyncio.sleep(0.001)
        made.set_pace(200)
        await asyncio.gather(*map(whole, streams))
        return (await shadows(made, lambda m: measured(m) and m["finished"] == count))[-1]

    async def beside(made: ServingEngine) -> list[dict]:
        room = Classroom(made)
        made.set_pace(0)
        room.shadow("continuous")
        first = await stepped(made, 5)
        made.set_pace(0)
        room.configure(max_num_batched_tokens=64)  # another run, whose pace was set in this one
        return [first, await stepped(made, 6)]

    with serving(memory_engine(max_num_seqs=2)) as made:
        said = asyncio.run(beside(made))
        steps = [len(made.session(run).events) for run, _ in made.sessions]
    assert [(one["real"]["steps"], one["shadow"]["steps"]) for one in said] == [
        (n, n) for n in steps
    ]
    assert [one["finished"] for one in said] == [5, 6]
    assert all(one["mean_e2e_s"][0] > 0 < one["mean_e2e_s"][1] for one in said)


def test_cancellations_and_new_limits_reach_it_and_none_is_none():
    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        streams = [await made.submit((4, 5, i), greedy(60)) for i in range(6)]
        for stream in streams[1::2]:
            stream.cancel()
        await asyncio.gather(*map(whole, streams))
        said = await shadows(made, measured)
        assert {m["status"] for m in said} <= {"waiting", "done"} and "real" not in said[0]
        assert said[-1]["finished"] == said[-1]["requests"] == 3
        room.configure(policy="split", max_num_seqs=3)
        again = [await made.submit((4, 5, i), greedy(30)) for i in range(4)]
        await asyncio.gather(*map(whole, again))
        await shadows(made, lambda m: m["finished"] == 4)
        room.shadow(None)
        assert room.state["shadow"] is None

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(beside(made))
        assert made.status == "ok"


def test_a_run_that_the_policy_cannot_have_is_refused_in_a_sentence_and_the_next_one_is_followed():
    async def beside(made: ServingEngine) -> str:
        room = Classroom(made)
        room.shadow("continuous")
        room.configure(policy="static", max_num_seqs=8, max_num_batched_tokens=4)
        await whole(await made.submit((4, 5), greedy(6)))
        said = await shadows(made, lambda m: m["status"] == "refused")
        room.configure(max_num_batched_tokens=64)
        await whole(await made.submit((4, 5), greedy(6)))
        await shadows(made, measured)
        return said[-1]["sentence"]

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert "A token budget of 4 cannot serve 8 lanes" in asyncio.run(beside(made))


def test_where_there_is_no_room_for_a_second_engine_it_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("core.serving.rerun._MOST_BYTES", -1)
    with serving(memory_engine()) as made:
        room = Classroom(made)
        with pytest.raises(InvalidConfig, match="too large for a second engine"):
            room.shadow("static")
        assert room.state["shadow"] is None


def test_a_policy_that_cannot_be_is_refused():
    with serving(memory_engine()) as made:
        room = Classroom(made)
        with pytest.raises(InvalidConfig, match="There is no policy 'magic'"):
            room.shadow("magic")
        assert room.state["shadow"] is None


@pytest.mark.parametrize("policy", ["static", "split", "sequential"])
def test_once_idle_the_same_requests_are_run_for_real_with_the_same_tokens(policy):
    """Its steps are those of the policy offline; sampling, seeds, stop strings' ends and cancellations are those of the real run."""

    async def beside(made: ServingEngine) -> tuple[list[dict], list[list[int]]]:
        room = Classroom(made)
        made.set_pace(0)
        room.shadow(policy)
        sampled = [replace(s, temperature=0.8, seed=i) if i % 2 else s for i, s in enumerate(ASKED)]
        streams = [await made.submit(p, s) for p, s in zip(PROMPTS, sampled, strict=True)]
        gone = await made.submit((4, 5), greedy(900))
        gone.cancel()
        made.set_pace(None)
        await asyncio.gather(*map(whole, [*streams, gone]))
        return await shadows(made, measured)

    with serving(memory_engine(max_num_seqs=3, num_blocks=64)) as made:
        last = asyncio.run(beside(made))[-1]
        config = made.engine.config.under(policy, num_blocks=64)
        trace = made.session()
    assert last["status"] == "done"
    assert (last["requests"], last["finished"], last["other_texts"], last["sentence"]) == (
        len(PROMPTS),
        len(PROMPTS),
        0,
        None,
    )
    asked = [replace(one.request, arrival=0) for one in trace.asked.values()]
    offline = memory_engine(**config.to_json()).run(Workload(asked[: len(PROMPTS)]))
    assert last["shadow"]["steps"] - len(offline.events) in (
        0,
        1,
    )  # the step in which the cancelled one leaves may be one of its own


def test_who_comes_in_the_middle_of_its_pass_waits_for_nothing_and_is_served_as_without_it():
    """The rerun stands in a pass of its own until the newcomer has been served whole; then it goes on, and both agree."""
    in_pass, released = threading.Event(), threading.Event()

    class Stalls(MemoryModel):
        def forward(self, batch, pool, backend=None):
            if threading.current_thread().name == "inflight-shadow" and not released.is_set():
                in_pass.set()
                assert released.wait(60)
            return super().forward(batch, pool, backend)

    async def served(made: ServingEngine, shadow: bool) -> tuple[list[int], list, list[dict]]:
        room = Classroom(made)
        if shadow:
            room.shadow("static")
        for id, prompt in (("r0", (4, 5, 6)), ("r1", (9, 8))):
            await whole(await made.submit(prompt, greedy(9), id=id))
        if shadow:
            assert await asyncio.to_thread(in_pass.wait, 60)
        newcomer = await whole(
            await made.submit((7, 7, 7, 7), greedy(40, temperature=0.9, seed=3), id="new")
        )
        await idle(made)
        steps = [without_times(event) for event in made.session().events]
        released.set()
        return tokens(newcomer), steps, await shadows(made, measured) if shadow else []

    with serving(memory_engine(model=Stalls(), max_num_seqs=2)) as made:
        found, steps, said = asyncio.run(served(made, shadow=True))
    with serving(memory_engine(max_num_seqs=2)) as made:
        assert (found, steps, []) == asyncio.run(served(made, shadow=False))
    assert (
        said[-1]["requests"],
        said[-1]["finished"],
        said[-1]["other_texts"],
        said[-1]["sentence"],
    ) == (3, 3, 0, None)


def without_times(event) -> dict:
    data = event.to_json()
    del data["t_start"], data["t_end"], data["timings"]
    data["arrived"] = [arrived.request for arrived in event.arrived]
    data["passes"] = [p._replace(t_start=0, t_end=0) for p in event.passes]
    return data
