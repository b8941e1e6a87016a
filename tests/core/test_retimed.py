"""`check` times the passes of a simulated run again, by the cost model in its header."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core import EngineConfig, InvalidTrace, Request, SamplingParams, Trace, Workload
from core.policy import POLICIES
from core.proof.verify import CheckResult, verify
from core.simulate.cost import Cost, Deployment, Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.roofline import Roofline
from core.trace.file import lines_of
from worlds.forging import Rows, checked, refusal, rows_of, steps

ERROR = {"held_out_passes": 9, "median": 0.01, "p90": 0.02, "total": 0.0, "worst": 0.01}
COSTS: dict[str, Cost] = {
    "by data sheet": Roofline.named("h100x2", "70b"),
    "fitted": Linear(0.010, 0.001, 1e-6, 100, most=Load(8, 10_000), error=ERROR),
}


class Own:
    """A cost model of somebody's own."""

    kv_bytes_per_token = 1
    deployment = Deployment("theirs")

    def seconds(self, load: Load) -> float:
        return 0.25

    def beyond(self, load: Load) -> bool:
        return False

    def to_json(self) -> dict[str, str]:
        return {"kind": "theirs"}


def _run(cost: Cost, policy: str = "continuous") -> Trace:
    requests = [
        Request(
            f"r{i}",
            prompt_token_ids=(1,) * (3 + 5 * i),
            sampling=SamplingParams(2 + 3 * i, ignore_eos=True),
            arrival=i if i > 2 else 0,
        )
        for i in range(5)
    ]
    config = EngineConfig(
        policy=policy, max_num_seqs=3, max_num_batched_tokens=12, block_size=4, num_blocks=24
    )
    return SimulatedEngine(cost, config).run(Workload(requests))


def _checked(trace: Trace, path) -> CheckResult:
    trace.save(path)
    return verify(lines_of(path))


@pytest.mark.parametrize("policy", POLICIES)
def test_under_every_policy_a_pass_takes_what_its_cost_model_says(policy, tmp_path):
    for cost in COSTS.values():
        assert _checked(_run(cost, policy), tmp_path / "t.jsonl").is_retimed


def test_other_times_are_refused(tmp_path):
    trace = _run(Roofline.named("h100", "8b"))
    trace.header = replace(
        trace.header, cost=replace(Roofline.named("h100", "8b"), reached=0.61).to_json()
    )
    with pytest.raises(
        InvalidTrace, match="a pass of step 0 takes 0.008191 s, and its cost model says 0.008060 s"
    ):
        _checked(trace, tmp_path / "t.jsonl")
    slower = replace(Roofline.named("h100", "8b"), reached=0.59)
    trace.header = replace(trace.header, cost=slower.to_json())
    with pytest.raises(InvalidTrace, match="a pass of step 0 takes 0.008191 s"):
        _checked(trace, tmp_path / "t.jsonl")


def test_a_cost_model_that_is_not_known_is_taken_on_trust(tmp_path):
    assert not _checked(_run(Own()), tmp_path / "t.jsonl").is_retimed
    trace = _run(Roofline.named("h100", "8b"))
    newer = dict(trace.header.cost or {}) | {"weight_bytes": 1}
    for cost in (
        newer,
        newer | {"name": "b900:8b"},
        newer | {"reached": None},
        {"kind": "fitted"},
        {},
    ):
        trace.header = replace(trace.header, cost=cost)
        assert not _checked(trace, tmp_path / "t.jsonl").is_retimed


OTHERWISE: dict[str, Callable[[Rows], Any]] = {
    "a part of the pass is preparation": lambda rows: steps(rows)[1]["timings"].reverse(),
    "scheduling took a microsecond": lambda rows: steps(rows)[1].update(
        timings=[1e-6, *steps(rows)[1]["timings"][1:]]
    ),
    "it begins later than the step before it ends": lambda rows: _later(rows, 2),
    "it begins later, with who comes, though others are there": lambda rows: _later(rows, 3),
    "a token has a probability": lambda rows: _token(rows).__setitem__(3, -0.5),
    "a token has a margin": lambda rows: _token(rows).__setitem__(4, 0.5),
    "another accelerator": lambda rows: rows[0].update(device="simulated a100"),
    "another name of it": lambda rows: rows[0].update(device_name="NVIDIA A100"),
    "another dtype": lambda rows: rows[0].update(dtype="float32"),
    "a larger model": lambda rows: rows[0]["model"].update(parameters=1),
    "a smaller cache": lambda rows: rows[0]["model"].update(kv_bytes_per_token=1),
}


def test_a_fit_that_contradicts_itself_is_refused() -> None:
    """Not passed over as a cost model of another version, whose times are taken on trust."""
    sampling = SamplingParams(4, ignore_eos=True)
    requests = [Request("a", prompt_token_ids=(1, 2), sampling=sampling)]
    rows = rows_of(SimulatedEngine(COSTS["fitted"]).run(Workload(requests)))
    assert checked(rows).is_retimed
    rows[0]["cost"]["error"]["p90"] = 0.001
    assert "its cost model contradicts itself" in refusal(rows)


def _token(rows: Rows) -> list[Any]:
    return next(e["sampled"][0] for e in steps(rows) if e["sampled"])


def _later(rows: Rows, first: int, arrivals: float = 1.0) -> None:
    """Move every step from `first` on by a second, and who comes in it."""
    for step in steps(rows)[first:]:
        for one, moments in ((step, ("t_start", "t_end")), *((p, (5, 6)) for p in step["passes"])):
            for moment in moments:
                one[moment] += 1.0
        for arrived in step["arrived"]:
            arrived[1] += arrivals


def test_where_nobody_is_there_a_simulated_clock_moves_to_who_comes_next() -> None:
    requests = [Request(f"r{i}", prompt_token_ids=(1,), arrival=9.0 * i) for i in range(3)]
    rows = rows_of(SimulatedEngine(COSTS["fitted"]).run(Workload(requests, arrival_unit="s")))
    assert checked(rows).is_retimed
    _later(rows, next(n for n, step in enumerate(steps(rows)) if n and step["arrived"]), 0.0)
    assert "begins or goes on when" in refusal(rows)


def test_a_request_may_come_in_behind_the_one_to_whom_a_clock_has_moved() -> None:
    engine = SimulatedEngine(COSTS["fitted"])
    engine.begin("s")
    engine.add_request(Request("far", prompt_token_ids=(1,), arrival=2.0))
    assert engine.step() is None and engine.now == 2.0
    engine.add_request(Request("near", prompt_token_ids=(1,), arrival=1.0))
    while engine.has_work:
        engine.step()
    rows = rows_of(engine.trace)
    assert checked(rows).is_retimed
    _later(rows, 0, 0.0)
    assert "begins or goes on when" in refusal(rows)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("lie", OTHERWISE)
def test_a_simulated_run_says_what_its_cost_model_says(cost: str, lie: str) -> None:
    rows = rows_of(_run(COSTS[cost]))
    checked(rows)
    OTHERWISE[lie](rows)
    said = refusal(rows)
    assert any(
        why in said
        for why in ("its cost model has", "a simulated run does not have", "begins or goes on when")
    )


def test_no_model_ran_whatever_the_cost_model_is():
    """Probabilities and parts of a step's time would be invented."""
    for field, value in (("timings", [1e-6, 0, 0, 0]), ("timings", [0, 0, 0, 1e-6])):
        rows = rows_of(_run(Own()))
        steps(rows)[0][field] = value
        assert "numbers that a simulated run does not have" in refusal(rows)
    for of, value in ((3, -0.1), (4, 3.0)):
        rows = rows_of(_run(Own()))
        next(s for step in steps(rows) for s in step["sampled"])[of] = value
        assert "numbers that a simulated run does not have" in refusal(rows)
