"""The method of comparison, under a clock that moves only when told."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core import Request, SamplingParams, Workload
from core.cli.compare import _fastest_sentence, _outputs_sentence
from core.config import EngineConfig
from core.errors import InflightError, InvalidConfig
from core.measure.compare import (
    Verdict,
    compare,
    comparing,
    first_differences,
    greedily,
    machine,
    median_of,
    nearest_to_median,
)
from core.measure.rounds import Contender, RunResult
from worlds.small import memory_trace

OUTPUTS = {"r0": [1, 2, 3], "r1": [4, 5]}


class Track:
    """Contenders that take given seconds on a clock of their own, one time after the other."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, []

    def clock(self) -> float:
        return self.now

    def contender(
        self, name: str, seconds: list[float], outputs=OUTPUTS, margins=None, **metrics
    ) -> Contender:
        times = iter(seconds)

        def start() -> RunResult:
            self.order.append(name)
            self.now += next(times)
            return RunResult(outputs, {"steps": len(self.order), **metrics}, margins or {})

        return Contender.of(name, start, lambda run: run)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="names its CPU elsewhere")
def test_a_cpu_is_called_by_its_own_name_and_others_as_they_are_given():
    """What torch calls a CPU is its kind of machine."""
    facts = ("x86_64", 2, "float32", {})
    where = [
        machine(device, *facts, versions)
        for device, versions in (("cpu", {}), ("cuda", {}), ("cpu", {"pyodide": "314.0.7"}))
    ]
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    named = re.search(r"^model name\s*: (.*)$", about, re.M)
    assert [one["hardware"] for one in where[1:]] == ["x86_64", "x86_64"]
    assert named is None or where[0]["hardware"] == named[1].strip() != "x86_64"
    assert [one["cpus"] for one in where] == [os.cpu_count(), os.cpu_count(), None]


@pytest.mark.slow
def test_every_round_runs_all_in_rotated_order_after_a_warm_up():
    track = Track()
    seen = []
    contenders = [track.contender(name, [1] * 4) for name in "abc"]
    compare(contenders, 3, clock=track.clock, on_run=seen.append)
    assert "".join(track.order) == "abc" + "bca" + "cab" + "abc"
    assert [(p.index, p.total, p.round) for p in seen][:4] == [
        (0, 12, 0),
        (1, 12, 0),
        (2, 12, 0),
        (3, 12, 1),
    ]


def test_the_fastest_is_named_with_those_from_whom_the_rounds_do_not_tell_it():
    track = Track()
    times = {"a": [9, 9, 9], "b": [1, 3, 2], "c": [2, 2.5, 2.5], "d": [4, 4, 4]}
    made = [track.contender(name, [1, *walls]) for name, walls in times.items()]
    result = compare(made, 3, clock=track.clock)
    assert _fastest_sentence(result) == (
        "The fastest: b by its median, but the rounds do not decide between it and c."
    )
    result.walls["c"] = [2, 3.5, 2.5]
    assert _fastest_sentence(result) == "The fastest: b."


def test_outputs_are_identical_or_the_first_difference_is_named():
    track = Track()
    made = [track.contender(name, [1, 1]) for name in ("a", "b")]
    result = compare(made, 1, clock=track.clock)
    assert _outputs_sentence(result) == "Outputs: identical, token for token."
    same = "Outputs: identical, token for token, as long as the clients stayed."
    cut = replace(result.runs["b"], cut=frozenset({"r1"}))
    assert _outputs_sentence(replace(result, runs=result.runs | {"b": cut})) == same
    first = {"policy": "b", "request": "r1", "position": 4, "margin": None}
    says = "Outputs differ: b departs from a in request r1 at token 4"
    for more, so in (
        ([first], ""),
        ([first | {"margin": 0.00012345}], ", where the best logit led by 0.000123"),
        ([first, first, first], " (3 differences in all)"),
    ):
        assert _outputs_sentence(replace(result, differences=more)) == f"{says}{so}."


def test_what_is_asked_beside_baselines_is_asked_without_sampling_and_stop_strings():
    sampled = SamplingParams(7, temperature=0.5, seed=3, stop=("x",), ignore_eos=True)
    asked = Request("a", prompt="Hark", arrival=1.5, sampling=sampled)
    plain = greedily(Workload([asked], "mine", "s"))
    (one,) = plain
    assert one == replace(asked, sampling=SamplingParams(7, ignore_eos=True))
    assert (plain.name, plain.arrival_unit) == ("mine", "s")


def test_a_run_too_short_for_the_clock_is_refused():
    track = Track()
    with pytest.raises(InflightError, match="less time than this clock can measure"):
        compare([track.contender("a", [1, 0])], 1, clock=track.clock)


@pytest.mark.slow
def test_the_warm_up_is_not_counted_and_ratios_are_taken_round_by_round():
    track = Track()
    slow, fast = track.contender("slow", [100, 6, 10, 8]), track.contender("fast", [100, 2, 5, 3])
    data = compare([slow, fast], 3, clock=track.clock).to_json()
    assert data["policies"]["slow"]["wall_s"] == {
        "median": 8,
        "min": 6,
        "max": 10,
        "spread": 4,
        "runs": [6, 10, 8],
    }
    assert data["policies"]["fast"]["ratio_to_baseline"]["runs"] == [3, 2, pytest.approx(8 / 3)]
    assert data["policies"]["fast"]["ratio_to_baseline"]["median"] == pytest.approx(8 / 3)
    assert (
        data["baseline"] == "slow" and data["outputs_identical"] is True and data["warnings"] == []
    )
    json.dumps(data, allow_nan=False)


@pytest.mark.slow
def test_a_run_that_took_no_time_on_its_clock_is_compared_with_nothing():
    track = Track()
    with pytest.raises(InflightError, match="less time than this clock can measure"):
        compare([track.contender("a", [1, 0]), track.contender("b", [1, 1])], 1, clock=track.clock)


@pytest.mark.slow
def test_setup_and_teardown_are_timed_apart_from_the_run():
    track = Track()
    setups = iter([999, 50, 40, 90])

    @contextmanager
    def ready():
        track.now += next(setups)
        yield lambda: setattr(track, "now", track.now + 2) or RunResult(OUTPUTS)
        track.now += 7

    def read(run: RunResult) -> RunResult:
        track.now += 1000  # off every clock
        return run

    result = compare(
        [track.contender("a", [1] * 4), Contender("b", ready, read)], 3, clock=track.clock
    )
    assert result.walls == {"a": [1, 1, 1], "b": [2, 2, 2]}
    assert result.apart == {
        "a": {"setup_s": 0, "teardown_s": 0},
        "b": {"setup_s": 50, "teardown_s": 7},
    }
    assert result.to_json()["policies"]["b"]["apart"]["setup_s"] == 50


@pytest.mark.slow
def test_the_run_kept_is_that_nearest_to_the_median_and_says_its_round():
    track = Track()
    result = compare([track.contender("a", [9, 1, 3, 2])], 3, clock=track.clock)
    assert result.runs["a"].metrics["steps"] == 4  # the last of warm-up and three
    assert result.medians["a"] == {"steps": 3} and result.shown == {"a": 3}
    # the median is 5.5, between 8 and 3: the earlier of the two
    assert nearest_to_median([2.0, 9.0, 8.0, 3.0]) == 2
    assert nearest_to_median([2.0, 4.0]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("turn", [0, 1, 2, 3])
def test_every_run_is_compared_not_the_first_alone(turn):
    """One wrong token in any turn, the warm-up included, is found."""
    track = Track()
    outputs = [OUTPUTS] * 4
    outputs[turn] = {**OUTPUTS, "r1": [4, 6]}
    turns = iter(outputs)
    wrong = Contender.of("b", lambda: RunResult(next(turns), seconds=1.0), lambda run: run)
    result = compare([track.contender("a", [1] * 4), wrong], 3, clock=track.clock)
    assert [(d["policy"], d["request"], d["position"]) for d in result.differences] == [
        ("b", "r1", 1)
    ]


def test_a_verdict_counts_rounds_and_asks_how_often_chance_would_do_as_much():
    five = Verdict((0.73, 0.96, 0.8, 0.9, 0.85))
    assert (five.faster, five.slower, five.rounds, five.median) == (0, 5, 5, 0.85)
    assert five.chance == pytest.approx(2 / 32) and five.decided and five.agrees
    four = Verdict((1.1, 1.2, 0.9, 1.3, 1.4))
    assert four.chance == pytest.approx(2 * 6 / 32) and not four.decided and not four.agrees
    assert Verdict((2.0, 2.1, 2.2)).chance == pytest.approx(1 / 4) and Verdict((2.0, 2.1)).agrees
    assert Verdict((1.0, 1.2)).chance == 1.0  # a tie says nothing
    assert Verdict((1.0, *[1.1] * 5)).chance == pytest.approx(2 / 32)  # nor against the others
    assert Verdict((1.1,) * 8 + (0.9,)).decided  # 8 of 9
    assert Verdict((1.1, 0.9)).chance == 1.0


@pytest.mark.slow
def test_rounds_that_disagree_decide_nothing():
    track = Track()
    wide = [track.contender("a", [0, 2, 5, 3]), track.contender("b", [0, 2.5, 2, 2])]
    (warning,) = compare(wide, 3, clock=track.clock).warnings
    assert (
        warning
        == "b against a: faster in 2 of 3 rounds (0.80 to 2.50 times as fast), so this comparison"
        " is inconclusive."
    )
    two = [track.contender("a", [0, 2, 2]), track.contender("b", [0, 1, 4])]
    assert "faster in 1 of 2 rounds" in compare(two, 2, clock=track.clock).warnings[0]
    paired = [track.contender("a", [0, 2, 9, 4]), track.contender("b", [0, 1.9, 8, 3.5])]
    # spreads overlap, every round says the same
    assert not compare(paired, 3, clock=track.clock).warnings
    single = [track.contender("a", [0, 2]), track.contender("b", [0, 1])]
    assert "single run" in compare(single, 1, clock=track.clock).warnings[0]


@pytest.mark.slow
def test_a_difference_is_named_with_its_margin():
    track = Track()
    margins = {"r0": [0.5, 0.001, 0.2], "r1": [1.0, 1.0]}
    mine = track.contender("a", [1] * 3, margins=margins)
    other = track.contender("b", [1] * 3, outputs={"r0": [1, 9, 3], "r1": [4]})
    result = compare([mine, other], 2, clock=track.clock)
    assert not result.outputs_identical
    assert result.differences == [
        {"policy": "b", "request": "r0", "position": 1, "expected": 2, "got": 9, "margin": 0.001},
        {"policy": "b", "request": "r1", "position": 1, "expected": 5, "got": None, "margin": 1.0},
    ]


def test_longer_and_missing_outputs_differ_too():
    assert (
        first_differences(RunResult({"r": [1]}, {}), RunResult({"r": [1, 2]}, {}), "b")[0][
            "position"
        ]
        == 1
    )
    assert first_differences(RunResult({"r": [1]}, {}), RunResult({}, {}), "b")[0]["got"] is None
    apart = RunResult({"r": [1, 5, 6]}, {}, {"r": [0.5, 0.25]}), RunResult({"r": [1, 7]}, {})
    assert first_differences(*apart, "b") == [
        dict(policy="b", request="r", position=1, expected=5, got=7, margin=0.25)
    ]


def test_a_margin_that_is_not_on_record_leaves_the_others_at_their_tokens():
    trace = memory_trace((4, 4))
    margins = [None, 0.5, None, 0.25]
    events = [
        event._replace(sampled=tuple(s._replace(margin=margin) for s in event.sampled))
        for event, margin in zip(trace.events, margins, strict=True)
    ]
    assert RunResult.of(replace(trace, events=events)).margins == {"r0": margins}


def test_medians_go_number_by_number():
    values = [
        {"a": 1, "t": {"x": 3.0}, "n": None},
        {"a": 5, "t": {"x": 1.0}, "n": None},
        {"a": 2, "t": {"x": 2.0}, "n": 4},
    ]
    assert median_of(values) == {"a": 2, "t": {"x": 2.0}, "n": None}
    words = [{"same": "x", "other": "x", "is": True}, {"same": "x", "other": "y", "is": True}]
    assert median_of(words) == {"same": "x", "other": None, "is": True}


def test_limits_of_a_preset_under_another_policy():
    shared = EngineConfig(prefix_caching=True, max_num_seqs=4)
    assert shared.under("static") == EngineConfig(policy="static", max_num_seqs=4)
    assert shared.under("continuous").prefix_caching
    assert shared.under("continuous", max_num_seqs=2).max_num_seqs == 2
    with pytest.raises(InvalidConfig, match="Prefix caching"):
        shared.under("static", prefix_caching=True)


@pytest.mark.parametrize(("names", "repeats"), [("", 1), ("aa", 1), ("a", 0)])
def test_a_comparison_of_nothing_is_refused(names, repeats):
    track = Track()
    with pytest.raises(InflightError):
        compare([track.contender(n, []) for n in names], repeats, clock=track.clock)


def test_whatever_may_end_it_leaves_the_rounds_that_are_whole():
    """Ended in the first or the second turn of the third round, its seventh or eighth: two rounds
    are whole, and whoever has had a third turn has it for nothing. In the third turn, of the first
    round, none is.
    """

    class TimeIsUp(Exception):
        pass

    def ended(turn: int):
        track = Track()
        turns = comparing(
            [track.contender("a", [1] * 4), track.contender("b", [2] * 4)], 3, TimeIsUp
        )
        for _ in range(turn):
            next(turns)
        with pytest.raises(StopIteration) as end:
            turns.throw(TimeIsUp())
        return end.value.value

    for turn in (7, 8):
        whole = ended(turn)
        assert {name: len(walls) for name, walls in whole.walls.items()} == {"a": 2, "b": 2}
        assert set(whole.shown.values()) <= {1, 2}
    with pytest.raises(TimeIsUp):
        ended(3)
