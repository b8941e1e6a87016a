"""What a page may ask for: limits, each at its edge, and how many steps work may take."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import Engine, EngineConfig, Workload
from core.engine.loop import ManualClock
from core.policy import POLICIES
from core.torch_engine.models.cache import ModelCache
from visualizer.charts.theme import HUES
from visualizer.jobs.limits import (
    DTYPES,
    HERE,
    Limits,
    Refused,
    Spec,
    TimeIsUp,
    check,
    check_tokens,
)
from visualizer.jobs.measured import Compare, Fork
from visualizer.jobs.offers import models, presets
from visualizer.jobs.work import Run, Work
from visualizer.server.jobs import Job, JobQueue, Jobs
from visualizer.server.store import Store
from worlds.small import MemoryModel, requests


def asked(*rows: dict[str, Any], unit: str = "step", **config: Any) -> dict[str, Any]:
    """A spec of requests that are a prompt of ten characters and four new tokens, but for these."""
    given = [
        {"id": f"r{n}", "prompt": "0123456789", "sampling": {"max_new_tokens": 4}} | row
        for n, row in enumerate(rows)
    ]
    return {"workload": {"requests": given, "arrival_unit": unit}, "config": config}


def refusal(spec: dict[str, Any], **limits: Any) -> str:
    with pytest.raises(Refused) as refused:
        check(spec, Limits(**limits))
    return str(refused.value)


def test_characters_are_those_of_all_prompts():
    check(asked({}, {}, {}), Limits(total_characters=30))
    said = refusal(asked({}, {}, {}), total_characters=29)
    assert said == "The prompts have 30 characters together; this page takes at most 29."


def test_ids_are_tokens_and_no_characters():
    check(asked({"prompt": None, "prompt_token_ids": [1] * 9}), Limits(prompt_characters=8))


def test_no_more_policies_are_compared_than_there_are_colours(tmp_path: Path):
    spec = asked({}) | {"policies": [*POLICIES][: len(HUES)], "repeats": 1}
    Compare(spec, HERE)
    with pytest.raises(Refused, match="At most 8 policies can be compared at once"):
        Compare(spec | {"policies": [*POLICIES][: len(HUES) + 1]}, HERE)


def test_formats_and_presets_are_offered_where_any_model_may_be_run():
    """Built-in models are computed in the format that they are stored in."""
    own = replace(HERE, any_model=False, offered=("shakespeare-char",))
    assert models(HERE)["dtypes"] == [*DTYPES] and len(DTYPES) > 1
    assert models(own)["dtypes"] == ["auto"]
    offered = {preset["spec"]["model"] for preset in presets(own)}
    assert offered == {"shakespeare-char"} and len(presets(own)) < len(presets(HERE))


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ({"policies": []}, "at least one policy"),
        ({"policies": ["static", "static"]}, "by name, each once: "),
        ({"policies": ["fastest"]}, "by name, each once: "),
        ({"policies": ["static"], "repeats": 0}, f"1 to {HERE.repeats} times"),
        ({"policies": ["static"], "repeats": HERE.repeats + 1}, f"1 to {HERE.repeats} times"),
        ({"policies": ["static"], "repeats": True}, f"1 to {HERE.repeats} times"),
    ],
)
def test_a_comparison_names_each_policy_once_and_runs_it_as_often_as_is_allowed(asks, why):
    Compare(asked({}) | {"policies": ["static", "stall"], "repeats": HERE.repeats}, HERE)
    with pytest.raises(Refused, match=why):
        Compare(asked({}) | asks, HERE)


@pytest.mark.parametrize(("knob", "value"), [("policy", "continuous"), ("max_num_seqs", 8)])
def test_a_fork_to_what_it_was_already_is_refused(knob: str, value: Any):
    with pytest.raises(Refused, match="That is what it was already"):
        Fork(asked({}) | {"knob": knob, "value": value}, HERE)


def test_seconds_of_an_arrival_are_no_steps():
    check(asked({"arrival": 300}, unit="s"), Limits(seconds=300))
    assert "Request A arrives after 301 seconds" in refusal(asked({"arrival": 301}, unit="s"))
    check(asked({"arrival": 301}), Limits(seconds=300))


def test_a_request_is_named_by_its_place_among_arrivals():
    late = {"arrival": 5, "sampling": {"max_new_tokens": 600}}
    assert refusal(asked(late, {})).startswith("Request B asks for 600 new tokens")


def test_tokens_are_prompts_and_what_is_asked_for():
    workload, prompts = Workload(requests((6, 5), (3, 2))), {"r0": [1] * 6, "r1": [1] * 3}
    check_tokens(prompts, workload, Limits(total_tokens=16))
    with pytest.raises(Refused, match="The workload has 16 tokens"):
        check_tokens(prompts, workload, Limits(total_tokens=15))


def test_a_kv_pool_is_measured_in_tokens():
    check(asked({}, num_blocks=10, block_size=8), Limits(kv_tokens=80))
    said = refusal(asked({}, num_blocks=10, block_size=8), kv_tokens=79)
    assert "room for 80 tokens" in said


def test_waiting_for_an_arrival_is_no_step_and_the_last_step_is_one_of_those_allowed():
    workload = Workload(requests((3, 4), (3, 4, 9.0)), arrival_unit="s")
    spec = Spec(workload, EngineConfig(), "memory", "cpu")

    def turns(steps: int) -> list[Any]:
        clock = ManualClock()
        engine = Engine(MemoryModel(), clock=clock, sleep=clock.advance)
        return list(Work(spec, Limits(steps=steps)).steps(engine, workload))

    assert len([turn for turn in turns(8) if turn is not None]) == 8 and None in turns(8)
    with pytest.raises(Refused, match="The job was stopped after 7 steps, the most that this page"):
        turns(7)


def test_a_preset_that_was_changed_is_compared_under_no_name_of_ours(tmp_path: Path):
    spec = asked({}) | {"policies": ["continuous"], "repeats": 1}
    spec["workload"]["name"] = "gpt2-six"
    job = Job(Compare(spec, HERE), HERE, ModelCache(), Store(tmp_path, 2**24, str))
    job.run()
    made = json.loads(Path(job.answer["url"]).read_text(encoding="utf-8"))
    assert (made["name"], made["title"]) == ("custom", "Your requests")


class Slow(ModelCache):
    """Loads a model for longer than a run may take."""

    def get(self, *which: Any) -> Any:
        time.sleep(3.0)
        return super().get(*which)


@pytest.mark.slow
def test_the_time_in_which_a_model_is_loaded_is_not_the_runs():
    models, spec = Slow(), check(asked({}), HERE)
    ModelCache.get(models, spec.model, "auto", "auto", lambda *progress: None)
    job = Job(Run(spec, HERE), replace(HERE, seconds=2.5), models)
    job.run()
    assert not {"error", "stopped"} & job.answer.keys() and job.work.trace.complete


class Interrupted(ModelCache):
    """Its visitor leaves while it loads a model."""

    job: Job

    def get(self, *which: Any) -> Any:
        *_, watch = which
        watch("weights", 1, 2)
        self.seen = self.job.work.progress
        self.job.cancel()
        watch("weights", 2, 2)
        raise AssertionError("nothing asked whether to go on")


def test_who_leaves_while_a_model_is_loaded_stops_it():
    models, spec = Interrupted(), check(asked({}), HERE)
    models.job = Job(Run(spec, HERE), HERE, models)
    models.job.run()
    assert models.seen["loading"] == {"phase": "weights", "done": 1, "total": 2}
    assert models.job.answer == {"stopped": "The run was cancelled before it began."}
    assert "loading" not in models.job.work.progress


# -- the queue -------------------------------------------------------------------------------------


def queued(places: int, waiting: int, *addresses: str) -> tuple[JobQueue, list[Job]]:
    """A queue with a job of each of these, the first of which have begun."""
    queue, jobs = JobQueue(places, waiting), []
    for address in addresses:
        job = Job(Work(Spec(Workload([]), EngineConfig(), "m", "cpu"), HERE), HERE, ModelCache())
        job.address = job.visitor = address
        queue.enter(job)
        job.has_begun = len(jobs) < places
        jobs.append(job)
    return queue, jobs


def test_in_a_full_queue_who_came_last_in_the_last_round_gives_way():
    queue, jobs = queued(1, 4, "a", "a", "b", "c", "c")  # rounds 1, 2, 1, 1, 2
    assert queue.make_room("d") and [job.is_cancelled for job in jobs] == [False] * 4 + [True]
    for job in queued(1, 4, "d")[1]:
        queue.enter(job)
        job.has_begun = False
    assert queue.make_room("e") and jobs[1].is_cancelled  # nobody gives way twice


def test_nobody_gives_way_for_who_would_be_served_after_them():
    """A job of the fifth round runs: whoever comes now is of that round, too."""
    queue, jobs = queued(1, 2, "a")
    jobs[0].round = 5
    for job in queued(1, 2, "b", "c")[1]:
        queue.enter(job)
        job.has_begun = False
    assert not queue.make_room("d") and not any(job.is_cancelled for job in queue)


def test_who_was_never_served_has_had_no_round():
    queue, jobs = queued(1, 9, "a", "b", "b", "b")
    for job in reversed(jobs[1:]):
        queue.leave(job)
    for job in queued(1, 9, "b", "c")[1]:
        job.has_begun = False
        queue.enter(job)
    assert [(job.address, job.round) for job in queue] == [("a", 1), ("b", 1), ("c", 1)]


def test_a_job_that_anybody_still_reads_goes_on():
    """Though another one waits for its place."""

    async def go() -> list[bool]:
        queue, (job, _) = queued(1, 1, "a", "b")
        job.event_log.append({})
        readers = [Jobs({job.queue: queue}).follow(job) for _ in range(2)]
        for reader in readers:
            await anext(reader)
        cancelled = []
        for reader in readers:
            await reader.aclose()
            cancelled.append(job.is_cancelled)
        return cancelled

    assert asyncio.run(go()) == [False, True]


class Hurried(Job):
    """Whose time is up after so many looks at the clock."""

    def check(self) -> None:
        self.looks = getattr(self, "looks", self.limits.steps) - 1
        if not self.looks:
            raise TimeIsUp("The time is up.")


@pytest.mark.slow
def test_once_time_is_up_the_rounds_that_are_whole_are_the_answer(tmp_path: Path):
    models, rounds, store = ModelCache(), [], Store(tmp_path, 2**24, str)
    spec = asked({}, {}, max_num_seqs=1) | {"policies": ["static", "continuous"], "repeats": 2}
    for looks in (10, 25, 40, 55, 70, 90, 200):
        limits = replace(HERE, steps=looks)
        job = Hurried(Compare(spec, replace(HERE)), limits, models, store)
        job.run()
        rounds.append(job.answer.get("rounds"))
        if rounds[-1] is None:
            assert job.answer == {"error": "The time is up."}
            continue
        walls = json.loads(Path(job.answer["url"]).read_text(encoding="utf-8"))["walls"]
        assert {len(of) for of in walls.values()} == {rounds[-1]}
    assert rounds == sorted(rounds, key=lambda n: n or 0) and set(rounds) == {None, 1, 2}
