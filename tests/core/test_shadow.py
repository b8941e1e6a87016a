"""A policy that is simulated beside an engine that serves decides as it would have on the real answers, and costs the engine nothing."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace

import pytest

from core import SamplingParams, Workload
from core.errors import InvalidConfig
from core.serving import shadow as shadow_module
from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.shadow import Shadow, shadow_config
from core.simulate.cost import Linear, Load
from core.simulate.runner import SimulatedEngine
from worlds.serving import greedy, serving, whole
from worlds.small import generate, memory_engine, request


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


PROMPTS = [[random.Random(i).randrange(4, 49) for _ in range(1 + i % 9)] for i in range(24)]
ASKED = [SamplingParams(3 + 5 * (i % 6), ignore_eos=bool(i % 3)) for i in range(24)]


@pytest.mark.parametrize("policy", ["static", "continuous", "split"])
def test_it_takes_the_steps_that_the_policy_takes_on_the_real_answers(policy):
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


def test_at_a_pace_of_nothing_it_takes_a_step_with_each_of_the_real_engines():
    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        await whole(await made.submit((4, 5), greedy(shadow_module.PASSES + 2)))
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


def test_cancellations_and_new_limits_reach_it_and_none_is_none():
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


def test_one_that_is_too_far_behind_says_so_and_begins_again_with_the_next_run(monkeypatch):
    monkeypatch.setattr(shadow_module, "_LATE", -1e9)

    async def beside(made: ServingEngine):
        room = Classroom(made)
        room.shadow("static")
        await whole(await made.submit((4, 5), greedy(60)))
        said = await shadows(made, lambda m: m["status"] == "behind")
        monkeypatch.setattr(shadow_module, "_LATE", 1e9)
        room.configure(max_num_seqs=3)
        await whole(await made.submit((4, 5), greedy(60)))
        await shadows(made, lambda m: m["finished_in_both"] == 1)
        return said[-1]["sentence"]

    with serving(memory_engine(max_num_seqs=2)) as made:
        assert "could not keep up" in asyncio.run(beside(made))


def test_what_waits_for_it_is_bounded_and_a_new_run_is_heard_all_the_same(monkeypatch):
    monkeypatch.setattr(shadow_module, "_MOST", 10)
    shadow = Shadow("static", lambda: 0.0, lambda message: None, lambda: False)
    for _ in range(500):
        shadow.hear({"kind": "pace", "steps_per_s": None})
    assert len(shadow._news) == 20
    shadow.hear({"kind": "run", "header": {}})
    assert [m["kind"] for m in shadow._news] == ["run"]


def test_a_policy_that_cannot_be_is_refused():
    with serving(memory_engine()) as made:
        room = Classroom(made)
        with pytest.raises(InvalidConfig, match="There is no policy 'magic'"):
            room.shadow("magic")
        assert room.state["shadow"] is None
