"""The figure that a hand can change: what it shows is what the scheduler decides."""

from __future__ import annotations

import pytest

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.hand import shipped
from worlds.hand import ARRIVALS, LANES, LENGTHS, RUNS, decided, hand


def settings() -> list[tuple[int, int, int]]:
    """Those of the table, in its order."""
    return [(length, n, at) for length in LENGTHS for n in LANES for at in ARRIVALS]


@pytest.mark.parametrize("policy", RUNS)
def test_as_recorded_it_is_the_recorded_run(policy):
    found, run = shipped(), Trace.load(TRACES / f"{RUNS[policy]}.jsonl")
    now = tuple(found[knob][3] for knob in ("length", "lanes", "arrival"))
    row = found["decided"][policy][settings().index(now)]
    shown = dict(zip(run.outputs, zip(*[iter(row)] * 4, strict=True), strict=True))
    for request, (lane, first, last, until) in shown.items():
        steps = [e.step for e in run.events for s in e.segments if s.request == request]
        rows = [e.step for e in run.events for p in e.passes for r in p.finished_rows
                if r.request == request]  # fmt: skip
        lanes = {s.lane for e in run.events for s in e.segments if s.request == request}
        assert (steps, {lane}) == (list(range(first, last + 1)), lanes)
        assert rows == list(range(last + 1, until + 1))
    assert found["letters"] == "ABCDEF" and len(set(found["hues"])) == 6


@pytest.mark.parametrize("policy", RUNS)
@pytest.mark.parametrize("setting", [(2, 1, 20), (32, 4, 0), (14, 2, 6)])
def test_a_setting_is_what_the_scheduler_decides(policy, setting):
    run = Trace.load(TRACES / f"{RUNS[policy]}.jsonl")
    assert shipped()["decided"][policy][settings().index(setting)] == list(decided(run, *setting))


@pytest.mark.slow
def test_every_setting_is_what_the_scheduler_decides():
    assert shipped() == hand()


def test_one_lane_is_no_wave_and_only_a_wave_is_waited_for():
    """What the story says beside it."""
    found = shipped()["decided"]
    for n, (_, lanes, _) in enumerate(settings()):
        waves, ours = (found[policy][n] for policy in ("static", "continuous"))
        assert (waves == ours) or lanes > 1
        assert max(waves[3::4]) >= max(ours[3::4])
