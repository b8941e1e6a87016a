"""Why one run took less time than another: the parts add up, and each is what was counted times
what it costs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.account.metrics import metrics, wall_s
from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.measure.difference import (
    FINISHED,
    IDLE,
    KV,
    MIXED,
    PADDING,
    PASSES,
    REST,
    TOKENS,
    WORK,
    difference,
)
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.trace.trace import Trace
from core.workload.workload import Workload
from worlds.small import requests

SIX = ((5, 6), (6, 50), (7, 300), (10, 30), (8, 180), (7, 45))
COST = Linear(0.004, 0.0005, 0.0, 1, Load(10_000, 10**9))


def run(policy: str, cost: Linear = COST, rows=SIX, lanes: int = 3) -> Trace:
    """A run whose passes take exactly what `cost` says, told as measured."""
    engine = SimulatedEngine(cost, EngineConfig(policy=policy, max_num_seqs=lanes), vocab_size=1000)
    trace = engine.run(Workload(requests(*rows), name="six"))
    return replace(trace, header=replace(trace.header, source="measured"))


@pytest.mark.parametrize("policy", [p for p in POLICIES if p != "continuous"])
def test_the_parts_add_up_to_the_difference(policy):
    before, after = run(policy), run("continuous")
    found = difference(before, after)
    assert found.before_s == wall_s(before) and found.after_s == wall_s(after)
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds, abs=1e-9)


def test_parts_are_counts_times_costs_where_passes_take_what_the_fit_says():
    """480 steps of 3 lanes, 829 lane-steps of finished rows; and 300 steps, 289 lane-steps with
    nobody to serve.
    """
    parts = {part.name: part for part in difference(run("static"), run("continuous")).parts}
    assert parts[FINISHED].seconds == pytest.approx(-0.004 * 829 / 3, rel=0.02)
    assert parts[IDLE].seconds == pytest.approx(0.004 * 289 / 3, rel=0.02)
    assert parts[PADDING].seconds == pytest.approx(-0.0005 * (829 + 9), rel=0.02)
    assert (
        parts[WORK].seconds
        == parts[PASSES].seconds
        == parts[TOKENS].seconds
        == parts[KV].seconds
        == 0
    )
    assert (parts[FINISHED].before, parts[FINISHED].after) == (829 / 3, 0)
    assert abs(parts[MIXED].seconds) + abs(parts[REST].seconds) < 0.01


def test_a_step_of_prompts_alone_mixes_nothing():
    before, after = run("static"), run("sequential")
    parts = {part.name: part for part in difference(before, after).parts}
    assert parts[MIXED].seconds == 0


def test_passes_beyond_one_a_step_are_a_part():
    before, after = run("split"), run("continuous")
    parts = {part.name: part for part in difference(before, after).parts}
    extra = metrics(before)["passes"] - metrics(before)["steps"]
    assert extra > 0 and parts[PASSES].seconds == pytest.approx(-0.004 * extra, rel=0.02)


def test_a_mixed_step_that_costs_more_than_the_fit_is_a_part():
    before, after = run("static"), run("continuous")
    events, shift, mixed = [], 0.0, 0
    for event in after.events:
        longer = 0.1 if {s.phase for s in event.segments} == {"prefill", "decode"} else 0.0
        mixed += bool(longer)
        data = {
            **event.to_json(),
            "t_start": event.t_start + shift,
            "t_end": event.t_end + shift + longer,
        }
        data["passes"] = [
            list(p._replace(t_start=p.t_start + shift, t_end=p.t_end + shift + longer))
            for p in event.passes
        ]
        events.append(type(event).from_json(data))
        shift += longer
    slow = replace(after, events=events)
    parts = {part.name: part for part in difference(before, slow).parts}
    assert mixed == 3 and parts[MIXED].seconds == pytest.approx(0.3, rel=0.05)


def test_runs_of_no_steps_are_refused():
    trace = run("continuous")
    with pytest.raises(InflightError, match="without steps"):
        difference(replace(trace, events=[]), trace)
    with pytest.raises(InflightError, match="too few"):
        difference(run("static", rows=((2, 1),)), run("continuous", rows=((2, 1),)))
