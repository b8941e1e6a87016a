"""A policy that is simulated beside an engine that serves decides as it would have on the real answers, and costs the engine nothing."""

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
from core.serving.shadow import shadow as shadow_module
from core.serving.shadow import simulated as simulated_module
from core.serving.shadow.rerun import Twin
from core.serving.shadow.shadow import Shadow, shadow_config
from core.simulate.cost import Linear, Load
from core.simulate.runner import SimulatedEngine
from worlds.serving import greedy, idle, serving, tokens, whole
from worlds.small import MemoryModel, generate, memory_engine, request


async def messages(made: ServingEngine) -> list[dict]:
    await asyncio.to_thread(made.close)
    return [message async for batch in made.feed.read(coalesce_s=0) for message in json.loads(batch.messages)]


async def shadows(made: ServingEngine, until) -> list[dict]:
    """What the shadow says, up to a message that `until` holds of."""
    found, last = [], None
    while True:
        async for batch in made.feed.read(last, coalesce_s=0.01):
            last = batch.last
            for message in json.loads(batch.messages):
                if message["kind"] == "shadow":
                    found.append(message)
                    if until(message):
                        return found


def finished(said: list[dict], side: str) -> dict[str, float]:
    return {request: t for message in said for request, t in message[side]["finished"]}


@pytest.fixture
def simulated_alone(monkeypatch):
    """Nothing is run for real."""

    def refuse(engine):
        raise InvalidConfig("There is no room.")

    monkeypatch.setattr(Twin, "of", refuse)


PROMPTS = [[random.Random(i).randrange(4, 49) for _ in range(1 + i % 9)] for i in range(24)]
ASKED = [SamplingParams(3 + 5 * (i % 6), ignore_eos=bool(i % 3)) for i in range(24)]


@pytest.mark.parametrize("policy", ["static", "continuous", "split"])
def test_it_takes_the_steps_that_the_policy_takes_on_the_real_answers(policy, simulated_alone):
    """All wait when it begins: the real engine's lengths, ends of sequence included, through the same scheduler offline."""

    async def beside(made: ServingEngine) -> list[dict]:
        room = Classroom(made)
        made.set_pace(0)
        room.shadow(policy)
        streams = [await made.submit(p, s) for p, s in zip(PROMPTS, ASKED, strict=True)]
        made.set_pace(None)
        await asyncio.gather(*map(whole, streams))
        return await shadows(made, lambda m: m["finished_in_both"] == len(PROMPTS))

    with serving(memory_engine(max_num_seqs=3, num_blocks=64)) as made:
        said = asyncio.run(beside(made))
        config = shadow_config(made.engine.config, policy, 64)
        real_steps = sum(len(made.session(run).events) for run, _ in made.sessions)
    assert {m["source"] for m in said} == {"simulated"} and said[0]["status"] == "waiting" and said[-1]["status"] == "running"
    lengths = [
        len(generate(replace(request(f"r{i}", p), sampling=s))) for i, (p, s) in enumerate(zip(PROMPTS, ASKED, strict=True))
    ]
    assert any(n < s.max_new_tokens for n, s in zip(lengths, ASKED, strict=True))
    offline = SimulatedEngine(Linear(1e-3, 0.0, 0.0, 1, Load(999, 999)), config, vocab_size=50)
    trace = offline.run(Workload([request(f"r{i}", p, n) for i, (p, n) in enumerate(zip(PROMPTS, lengths, strict=True))]))
    assert said[-1]["shadow"]["steps"] == len(trace.events) and said[-1]["real"]["steps"] == real_steps
    assert len(finished(said, "real")) == len(finished(said, "shadow")) == len(PROMPTS)
    assert said[-1]["mean_e2e_s"][0] > 0 < said[-1]["mean_e2e_s"][1]


def test_at_a_pace_of_nothing_it_takes_a_step_with_each_of_the_real_engines(simulated_alone):
    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        await whole(await made.submit((4, 5), greedy(simulated_module.PASSES + 2)))
        await shadows(made, lambda m: m["finished_in_both"] == 1)
        made.set_pace(0)
        for i in range(5):
            await made.submit((4, 5, i), greedy(6))
        before = made.engine.num_steps
        for count in (1, 3):
            made.step(count)
            before += count
            said = await shadows(made, lambda m, before=before: m["real"]["steps"] == m["shadow"]["steps"] == before)
        made.set_pace(None)
        await shadows(made, lambda m: m["finished_in_both"] == 6)
        return said

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert asyncio.run(beside(made))


def test_cancellations_and_new_limits_reach_it_and_none_is_none(simulated_alone):
    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        streams = [await made.submit((4, 5, i), greedy(60)) for i in range(6)]
        for stream in streams[1::2]:
            stream.cancel()
        await asyncio.gather(*map(whole, streams))
        assert len(finished(await shadows(made, lambda m: m["finished_in_both"] == 3), "shadow")) == 3
        room.configure(policy="split", max_num_seqs=3)
        again = [await made.submit((4, 5, i), greedy(30)) for i in range(4)]
        await asyncio.gather(*map(whole, again))
        await shadows(made, lambda m: m["finished_in_both"] == 4)
        room.shadow(None)
        assert room.state["shadow"] is None and made.on_message is None

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(beside(made))
        assert made.status == "ok"


def test_one_that_is_too_far_behind_says_so_and_begins_again_with_the_next_run(monkeypatch, simulated_alone):
    monkeypatch.setattr(simulated_module, "_LATE", -1e9)

    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        await whole(await made.submit((4, 5), greedy(60)))
        said = await shadows(made, lambda m: m["status"] == "behind")
        monkeypatch.setattr(simulated_module, "_LATE", 1e9)
        room.configure(max_num_seqs=3)
        await whole(await made.submit((4, 5), greedy(60)))
        await shadows(made, lambda m: m["finished_in_both"] == 1)
        return said[-1]["sentence"]

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert "could not keep up" in asyncio.run(beside(made))


def test_what_waits_for_it_is_bounded_and_a_new_run_is_heard_all_the_same(monkeypatch):
    monkeypatch.setattr(shadow_module, "_MOST", 10)
    shadow = Shadow(ServingEngine(memory_engine()), "static")
    for _ in range(500):
        shadow.hear({"kind": "pace", "steps_per_s": None})
    assert len(shadow._news) == 20
    shadow.hear({"kind": "run", "header": {}})
    assert [news.message["kind"] for news in shadow._news] == ["run"]


def test_a_policy_that_cannot_be_is_refused():
    with serving(memory_engine()) as made:
        room = Classroom(made)
        with pytest.raises(InvalidConfig, match="There is no policy 'magic'"):
            room.shadow("magic")
        assert room.state["shadow"] is None


# -- for real, while the engine is idle ----------------------------------------------------------------------------------


def measured(message: dict) -> bool:
    return message.get("source") == "measured"


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
        config = shadow_config(made.engine.config, policy, 64)
        trace = made.session()
    assert last["status"] == "done" and last["finished_in_both"] == len(PROMPTS)
    assert last["rerun"] == {"requests": len(PROMPTS), "finished": len(PROMPTS), "other_texts": 0, "sentence": None}
    asked = [replace(one.request, arrival=0) for one in trace.asked.values()]
    offline = memory_engine(**config.to_json()).run(Workload(asked[: len(PROMPTS)]))
    assert last["shadow"]["steps"] - len(offline.events) in (
        0,
        1,
    )  # the step in which the cancelled one leaves may be one of its own


def test_who_comes_in_the_middle_of_its_pass_waits_for_nothing_and_is_served_as_without_it():
    """The rerun stands in a pass of its own until the newcomer has been served whole; then it goes on, and both agree."""
    in_pass, go_on = threading.Event(), threading.Event()

    class Stalls(MemoryModel):
        def forward(self, batch, pool, backend=None):
            if threading.current_thread().name == "inflight-shadow" and not go_on.is_set():
                in_pass.set()
                assert go_on.wait(60)
            return super().forward(batch, pool, backend)

    async def served(made: ServingEngine, shadow: bool) -> tuple[list[int], list, list[dict]]:
        room = Classroom(made)
        if shadow:
            room.shadow("static")
        for id, prompt in (("r0", (4, 5, 6)), ("r1", (9, 8))):
            await whole(await made.submit(prompt, greedy(9), id=id))
        if shadow:
            assert await asyncio.to_thread(in_pass.wait, 60)
        newcomer = await whole(await made.submit((7, 7, 7, 7), greedy(40, temperature=0.9, seed=3), id="new"))
        await idle(made)
        steps = [without_times(event) for event in made.session().events]
        go_on.set()
        return tokens(newcomer), steps, await shadows(made, measured) if shadow else []

    with serving(memory_engine(model=Stalls(), max_num_seqs=2)) as made:
        found, steps, said = asyncio.run(served(made, shadow=True))
    with serving(memory_engine(max_num_seqs=2)) as made:
        assert (found, steps, []) == asyncio.run(served(made, shadow=False))
    assert said[-1]["rerun"] == {"requests": 3, "finished": 3, "other_texts": 0, "sentence": None}


def without_times(event) -> dict:
    data = event.to_json()
    del data["t_start"], data["t_end"], data["timings"]
    data["arrived"] = [arrived.request for arrived in event.arrived]
    data["passes"] = [p._replace(t_start=0, t_end=0) for p in event.passes]
    return data
