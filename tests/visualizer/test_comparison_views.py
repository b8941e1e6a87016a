"""Sentences and pictures of comparisons: the numbers are those of the traces, whoever wins."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from core import Request, SamplingParams, Workload, compare_policies
from core.account.metrics import DEFINITIONS
from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.measure.compare import Comparison, environment, machine
from core.measure.cost_curve import CostCurve, StepCost
from core.measure.difference import Contribution, Difference
from core.measure.difference import difference as difference_of
from core.measure.rounds import RunResult
from core.proof.equivalence import differing
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.trace.trace import Trace
from measure.record import record_comparisons
from visualizer.charts.comparison import (
    FIGURES,
    bars,
    difference_of_two,
    kv_use,
    lane_steps,
    latency,
    pressure,
    throughput,
    total_time,
)
from visualizer.charts.cost import cost, load
from visualizer.charts.figure import Figure
from visualizer.charts.plots import race
from visualizer.charts.theme import HUES, PANEL, contender_hues, tint
from visualizer.documents.comparison import (
    NOT_OBSERVABLE,
    RECORDED,
    Shown,
    csv_text,
    document,
    notes,
    recorded,
    table,
)
from visualizer.documents.comparison import load as load_comparison
from visualizer.words import findings, verdicts
from visualizer.words.language import speaking, t
from worlds.comparison import CURVE, ENVIRONMENT, measured
from worlds.figures import drawn, known_to_plotly
from worlds.saved_comparison import save
from worlds.visual import record, request

NOTHING_COMPARED = {
    "config": EngineConfig().to_json(),
    "leak": False,
    "dtype": "float32",
    "device": "cpu",
    "tokens": 0,
    "differing_tokens": 0,
    "generated_tokens": 0,
    "differing_from_generate": 0,
    "max_logit_difference": None,
    "requests": [],
}

REQUESTS = [request("a", 5, 12), request("b", 3, 3), request("c", 4, 6), request("d", 6, 4)]


def run(policy: str) -> Trace:
    limits = {"max_num_batched_tokens": 8} if policy == "continuous" else {}
    return record(EngineConfig(policy=policy, max_num_seqs=2, block_size=4, **limits), *REQUESTS)


def compared(walls: dict[str, list[float]], unseen: str = "") -> Comparison:
    runs = {name: RunResult.of(run(name)) for name in walls if name != unseen}
    if unseen:
        runs[unseen] = RunResult(
            {}, {"wall_s": 1.0, "steps": None, "ttft_s": None, "itl_s": None, "output_tok_s": 9.0}
        )
    return Comparison(list(walls), walls, runs, {n: dict(runs[n].metrics) for n in walls}, [])


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared({"static": [3.0, 3.3, 3.1], "continuous": [1.5, 1.4, 1.6]})


def test_the_name_of_a_contender_is_drawn_as_it_is_written():
    runs = {
        "a < b <i>c</i>": RunResult.of(run("static")),
        "continuous": RunResult.of(run("continuous")),
    }
    numbers = {name: dict(of.metrics) for name, of in runs.items()}
    found = Comparison(list(runs), {name: [1.0] for name in runs}, runs, numbers, [])
    figures = [chart.draw(found) for name, chart in FIGURES.items() if name != "pressure"]
    figures.append(race(found))
    for figure in figures:
        shown = figure.to_json()
        axes = [axis for name, axis in shown["layout"].items() if "axis" in name]
        said = json.dumps([shown["data"], axes, shown["layout"].get("annotations")])
        assert "a &lt; b &lt;i" in said and "a < b" not in said


def test_the_winner_is_named_with_ratios_run_by_run(comparison):
    assert (
        verdicts.total_time(comparison)
        == "continuous took 1.50 s, static 3.10 s: 2.1 times as fast (medians of 3 rounds;"
        " 1.94 to 2.4 by round)."
    )


def test_the_headline_says_one_thing_and_ratios_are_those_a_reader_gets(comparison):
    assert (
        verdicts.headline(comparison)
        == "The same four requests: done in 1.5 s with continuous instead of 3.1 s with static;"
        " 3 rounds are too few to decide."
    )
    assert "2.1 times as fast" in verdicts.total_time(comparison)  # 3.10 / 1.50
    shown = {row[0]: row[3] for row in table(comparison)["rows"]}
    assert shown == {"static": "1.00×", "continuous": "2.07×"}
    lost = compared({"static": [1.0, 1.0], "continuous": [1.25, 1.3]})
    assert verdicts.headline(lost).endswith(
        ": done in 1.3 s with continuous, later than in 1.0 s with static;"
        " 2 rounds are too few to decide."
    )
    close = compared({"static": [1.0, 1.4, 1.2], "continuous": [1.1, 1.3, 1.0]})
    assert verdicts.headline(close).endswith("; the rounds do not say which is faster.")
    # each round was faster, by less than is told
    even = compared({"static": [1.00001] * 5, "continuous": [1.0] * 5})
    assert verdicts.headline(even).endswith(
        ": done in 1.0 s with continuous, and with static in the same time to a thousandth."
    )
    three = compared({"static": [2.0] * 5, "continuous": [1.0] * 5, "split": [1.5] * 5})
    assert [said.split(": done in ")[1] for said in verdicts.pairs(three)] == [
        "1.5 s with split instead of 2.0 s with static.",
        "1.5 s with split, later than in 1.0 s with continuous.",
    ]
    one = RunResult({"r": (1,)}, {})
    alone = Comparison(["a"], {"a": [1.0]}, {"a": one}, {"a": {}}, [])
    assert verdicts.headline(alone) == "The same request: done in 1.00 s with a."


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (0.895, 1.624, ("0.9 s", "1.6 s")),
        (0.2783, 1.0531, ("0.3 s", "1.1 s")),
        (1.1, 1.0, ("1.1 s", "1.0 s")),
        (1.004, 1.0, ("1.004 s", "1.000 s")),
        (0.0453, 0.0987, ("45 ms", "99 ms")),
        (2.0, 2.0, ("2.0 s", "2.0 s")),
        (1.0499, 1.0501, ("1.05 s", "1.05 s")),
        (61.8, 9.54, ("62 s", "10 s")),
    ],
)
def test_two_times_have_one_unit_and_as_few_digits_as_tell_them_apart(one, other, texts):
    assert findings.together(one, other) == texts


def test_a_loss_is_said_as_plainly():
    lost = compared({"static": [1.0, 1.0], "continuous": [1.25, 1.3]})
    assert (
        verdicts.total_time(lost)
        == "continuous loses here: it took 1.27 s, static 1.00 s; slower in 2 of 2 rounds, 0.77 to"
        " 0.80 times as fast."
    )


def test_who_loses_every_round_loses_by_however_little():
    close = compared({"static": [1.0] * 5, "continuous": [1.0001] * 5})
    assert (
        verdicts.total_time(close)
        == "continuous loses here: it took 1.00 s, static 1.00 s; slower in 5 of 5 rounds, 1.00"
        " times as fast."
    )


def test_rounds_that_disagree_decide_nothing():
    close = compared({"static": [1.0, 1.4, 1.2], "continuous": [1.1, 1.3, 1.0]})
    assert verdicts.total_time(close).endswith(
        "faster in 2 of 3 rounds (0.91 to 1.20), so neither wins."
    )
    # faster by its median, but in one round of three: too few to contradict it
    torn = compared({"static": [1.0, 1.4, 1.2], "continuous": [1.1, 1.5, 0.9]})
    assert verdicts.headline(torn).endswith("; the rounds do not say which is faster.")


def test_rounds_that_contradict_the_medians_decide_against_neither():
    """Slower in nine of ten rounds, and faster by its median."""
    static = [1 + round_number / 10 for round_number in range(10)]
    split = compared({"static": static, "continuous": [*(s + 0.01 for s in static[:-1]), 0.9]})
    assert (
        verdicts.total_time(split)
        == "continuous took 1.36 s, static 1.45 s: slower in 9 of 10 rounds (0.99 to 2.1), so"
        " rounds and medians disagree."
    )
    assert verdicts.headline(split).endswith(
        "; the rounds and the medians disagree on which is faster."
    )


def test_the_fastest_is_named_where_it_is_a_third():
    three = compared(
        {"static": [3.0, 3.0, 3.0], "continuous": [1.5, 1.5, 1.5], "split": [1.4, 1.6, 1.4]}
    )
    assert verdicts.total_time(three).endswith(
        "The fastest is split with 1.40 s, ahead of continuous in 2 of 3 rounds, which is a tie."
    )
    mine = [0.99] * 4 + [1.51] + [1.9] * 4
    split = [1.0] * 4 + [1.5] + [2.0] * 4
    three = compared({"static": [5.0] * 9, "continuous": mine, "split": split})
    assert verdicts.total_time(three).endswith(
        "The fastest is split with 1.50 s, ahead of continuous in 1 of 9 rounds, so rounds and"
        " medians disagree."
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (61.8, "61.8 s"),
        (0.0123, "12.3 ms"),
        (0.99999, "1.00 s"),
        (1.0, "1.00 s"),
        (123.4, "123 s"),
        (None, "–"),
    ],
)
def test_durations_have_units(value, text):
    assert findings.seconds(value) == text


def test_the_totals_of_a_run_that_was_cut_are_lower_bounds():
    """One lane, cut after three steps: `b` has waited for its first token until then."""
    whole = record(EngineConfig(max_num_seqs=1), request("a", 3, 9), request("b", 3, 2))
    cut = dataclasses.replace(whole, events=whole.events[:3], complete=False)
    told = [
        {one["name"]: one["value"] for one in findings.totals(run)}["TTFT"] for run in (whole, cut)
    ]
    assert told == ["46.0 ms, worst 91.0 ms", "≥ 15.0 ms, worst ≥ 29.0 ms"]


def test_a_duration_among_the_totals_is_in_seconds_once_it_is_written_as_one():
    assert [findings._duration(s) for s in (0.9994, 0.9996, 1.0)] == ["999 ms", "1.00 s", "1.00 s"]


def test_answers_of_one_token_have_no_gaps_to_tell_of():
    engine = SimulatedEngine(cost_named("h100:8b"), EngineConfig())
    one = SamplingParams(max_new_tokens=1, ignore_eos=True)
    work = Workload([Request(name, prompt_token_ids=(1, 2), sampling=one) for name in "ab"])
    both = compare_policies(engine, work, ["static", "continuous"])
    assert findings.latency(both) == (
        "Half of the first tokens come within 8.19 ms with continuous, 8.19 ms with static."
    )
    alone = compare_policies(engine, work, ["static"])
    assert findings.latency(alone) == "Half of the first tokens come within 8.19 ms with static."


def test_a_rate_that_holds_is_said_of_nobody_whose_rate_was_not_looked_at():
    """One long answer and ten short ones: static is down to three quarters of its rate."""
    engine = SimulatedEngine(cost_named("h100:8b"), EngineConfig(max_num_seqs=2))
    work = Workload(
        [
            Request(f"r{n}", prompt_token_ids=(1, 2, 3), sampling=SamplingParams(new))
            for n, new in enumerate([100] + [10] * 10)
        ]
    )
    said = findings.throughput(compare_policies(engine, work, ["continuous", "static"]))
    assert re.fullmatch(r"static writes \d+ tokens a second, continuous \d+\.", said)


def test_the_quarter_with_the_fewest_tokens_is_named():
    """Of 99 ms: two tokens in the first, one in the second, three and two in the others."""
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 1), request("b", 3, 7, arrival=3))
    times = [round(1000 * at) for at in findings.token_times(trace)]
    assert times == [1, 11, 41, 51, 61, 71, 81, 91]
    assert findings._worst_quarter(trace) == (1, pytest.approx(1 / 0.02475))
    # a coarse clock may not move during a short run
    at_once = [e._replace(t_start=0.0, t_end=0.0) for e in trace.events]
    assert findings._worst_quarter(dataclasses.replace(trace, events=at_once)) is None


def test_figures_one_above_the_other_leave_a_gap_between_them():
    figure = Figure.stacked([1, 3], gap=0.2)
    first, second = (figure.layout[name]["domain"] for name in ("yaxis", "yaxis2"))
    assert first == pytest.approx([0.8, 1.0]) and second == pytest.approx([0.0, 0.6])
    three = Figure.stacked([1, 1, 1], gap=0.05)
    domains = [three.layout[name]["domain"] for name in ("yaxis3", "yaxis2", "yaxis")]
    assert domains == [pytest.approx([n * 0.35, n * 0.35 + 0.3]) for n in range(3)]


def test_the_waste_of_running_ahead_is_called_so(comparison):
    metrics = {
        "lane_steps": {
            "useful": 90,
            "padding": 10,
            "barrier": 0,
            "stalled": 0,
            "empty": 0,
            "total": 100,
        },
        "overrun_rows": 10,
    }
    ahead = dataclasses.replace(
        comparison, medians={name: {**m, **metrics} for name, m in comparison.medians.items()}
    )
    assert (
        "wastes 10 % of its 100 lane-steps, all rows of requests that had stopped"
        in findings.lane_steps(ahead)
    )
    for median in ahead.medians.values():
        median["lane_steps"] |= {"padding": 9, "empty": 1}
    assert (
        "wastes 10 % of its 100 lane-steps, mostly rows of requests that had stopped"
        in findings.lane_steps(ahead)
    )


def test_lane_steps_name_the_waste(comparison):
    said = findings.lane_steps(comparison)
    counts = comparison.medians["static"]["lane_steps"]
    assert counts["padding"] > 0
    assert (
        f"static wastes {findings.percent((counts['total'] - counts['useful']) / counts['total'])}"
        f" of its {counts['total']} lane-steps" in said
    )


def test_cost_says_what_a_token_costs():
    assert (
        findings.cost(CURVE)
        == "A step of 8 tokens takes 2.00 times as long as a step of 1: each token is 4.0 times"
        " cheaper. Reading 8 times the KV makes a step 2.5 times as long."
    )
    near = (StepCost(1, 1, (0.03,)), StepCost(64, 64, (0.0908,)))
    said = findings.cost(CostCurve(CURVE.model, "cpu", "float32", near, ()))
    assert "takes 3.03 times" in said and "is 21.1 times" in said, "64 / 3.03, as a reader divides"
    flat = CostCurve(
        CURVE.model, "cpu", "float32", (StepCost(1, 1, (0.01,)), StepCost(2, 2, (0.03,))), ()
    )
    assert "saves nothing" in findings.cost(flat)


@pytest.fixture(scope="module")
def zoo() -> Comparison:
    """The rules of other engines on a pool that is too small."""
    names = ("stall", "continuous", "no-evict", "nano-vllm", "transformers")
    limits = {"max_num_seqs": 3, "block_size": 4, "num_blocks": 6, "max_num_batched_tokens": 16}
    runs = {
        name: RunResult.of(record(EngineConfig(policy=name, **limits), *REQUESTS)) for name in names
    }
    return Comparison(
        list(names), {n: [1.0] for n in names}, runs, {n: dict(runs[n].metrics) for n in names}, []
    )


def test_each_rule_is_told_what_it_pays(zoo, comparison):
    paid = {name: findings.price(run.trace) for name, run in zoo.runs.items()}
    assert paid["no-evict"][:3] == (0, 0, 0) and paid["no-evict"].waited > paid["continuous"].waited
    assert paid["continuous"].preempted and not paid["continuous"].frozen and paid["stall"].frozen
    for name, price in paid.items():
        assert price.preempted == sum(len(e.preempted) for e in zoo.runs[name].trace.events)
        assert price.waited == sum(e.waiting.count for e in zoo.runs[name].trace.events)
    said, most = findings.pressure(zoo), max(paid, key=lambda n: paid[n].again)
    assert (
        f"{most} recomputes the most, {paid[most].again} tokens" in said
        and "stall longest under stall" in said
    )
    bars = {bar.name: dict(zip(bar.y, bar.x, strict=True)) for bar in drawn(pressure(zoo)).data}
    assert bars["tokens computed again"] == {name: price.again for name, price in paid.items()}
    with pytest.raises(InflightError):  # where nothing is short there is nothing to tell
        pressure(comparison)


def test_those_who_pay_the_same_are_all_named(zoo):
    twin = dataclasses.replace(
        zoo, runs={"twin": zoo.runs["continuous"], "continuous": zoo.runs["continuous"]}
    )
    said, again = findings.pressure(twin), zoo.runs["continuous"].metrics["tokens_recomputed"]
    assert (
        said.startswith("twin and continuous are done after ")
        and ", twin" not in said.split(";")[0]
    )
    assert f"twin and continuous recompute the most, {again} tokens" in said


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_states_its_finding_and_is_json(comparison, zoo, name):
    figure = drawn(FIGURES[name].draw(zoo if name == "pressure" else comparison))
    finding = figure.layout.meta["finding"]
    assert finding.endswith(".") and any(c.isdigit() for c in finding)
    assert figure.layout.title.text.replace("<br>", " ") == finding
    assert set(figure.layout.meta["definitions"]) <= set(DEFINITIONS.values())
    assert figure.data


def test_axes_say_what_their_numbers_are_and_a_legend_names_colours(comparison, zoo):
    said = {}
    for name, chart in FIGURES.items():
        layout = drawn(chart.draw(zoo if name == "pressure" else comparison)).layout
        titles = [layout[axis].title.text for axis in sorted(layout) if axis[1:5] == "axis"]
        said[name] = [*filter(None, titles), layout.showlegend is not False]
        if layout.xaxis.range:
            assert layout.xaxis.range[0] == 0, "bars begin at their axis"
    since = "seconds since the run began"
    assert said == {
        "total_time": ["wall time, seconds", False],
        "difference": ["seconds of the runs that race", False],
        "throughput": [since, "output tok/s", True],
        "latency": ["TTFT, ms", "ITL, ms", False],
        "lane_steps": ["share of all lane-steps", True],
        "kv_use": [since, "KV blocks in use", True],
        "pressure": ["count", True],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry["name"] for entry in recorded()])
def test_every_figure_that_ships_is_one_that_plotly_knows(name):
    made = document(load_comparison(RECORDED / name))
    for figures in (made["figures"], *(said["figures"] for said in made["translations"].values())):
        assert figures and all(known_to_plotly(f["figure"]).data for f in figures)


def test_a_figure_that_plotly_does_not_know_is_found():
    """A control for the tests above."""
    for wrong in (
        {"update_layout": {"heigth": 3}},
        {"update_xaxes": {"type": "odd"}},
        {"add_bar": {"x": [1], "orientation": "up"}},
    ):
        figure = Figure()
        for method, settings in wrong.items():
            getattr(figure, method)(**settings)
        with pytest.raises(ValueError, match="Invalid"):
            drawn(figure)


def test_total_time_draws_every_run(comparison):
    figure = drawn(total_time(comparison))
    bars, *dots = figure.data
    assert list(bars.y) == ["static", "continuous"]  # from below
    assert dict(zip(bars.y, bars.x, strict=True)) == {"static": 3.1, "continuous": 1.5}
    assert {d.name: list(d.x) for d in dots} == comparison.walls
    assert {d.text for d in dots} == {("run 1", "run 2", "run 3")}
    for said in figure.layout.annotations:  # beside the bar, behind its last dot
        assert said.x == max(comparison.walls[said.y]) < figure.layout.xaxis.range[1]
        assert said.text == {"static": "3.10 s", "continuous": "1.50 s"}[said.y]


def test_throughput_integrates_to_the_tokens(comparison):
    for line in drawn(throughput(comparison)).data:
        tokens = sum(rate * (b - a) for rate, a, b in zip(line.y, line.x, line.x[1:], strict=False))
        assert tokens == pytest.approx(sum(r.sampling.max_new_tokens for r in REQUESTS), rel=0.01)
        widths = [b - a for a, b in zip(line.x, line.x[1:], strict=False)]
        # a sliver at the end would draw its tokens as a burst
        assert len(widths) == 1 or min(widths) > max(widths) / 3.1


def test_latency_has_a_dot_a_request_and_a_gap_a_token(comparison):
    for box in drawn(latency(comparison)).data:
        count = (
            len(REQUESTS)
            if box.hoveron == "points"
            else sum(r.sampling.max_new_tokens - 1 for r in REQUESTS)
        )
        assert len(box.x) == count


@pytest.mark.parametrize(("wait", "unit"), [(1.9, "ms"), (2.0, "s")])
def test_long_waits_are_drawn_in_seconds(comparison, monkeypatch, wait, unit):
    life = SimpleNamespace(request="a", ttft_s=wait, itl_s=[0.1])
    monkeypatch.setattr("visualizer.charts.comparison.request_times", lambda trace: {"a": life})
    figure = drawn(latency(comparison))
    assert figure.layout.xaxis.title.text == f"TTFT, {unit}"
    assert figure.data[0].x[0] == wait * (1 if unit == "s" else 1000)


def test_lane_step_shares_sum_to_one(comparison):
    figure = drawn(lane_steps(comparison))
    for i, name in enumerate(figure.data[0].y):
        assert math.isclose(sum(bar.x[i] for bar in figure.data), 1.0)
        useful = next(bar for bar in figure.data if bar.name == "useful")
        counts = comparison.medians[name]["lane_steps"]
        assert useful.x[i] == pytest.approx(counts["useful"] / counts["total"])


def test_a_count_is_written_in_a_bar_with_room_for_it(comparison):
    counts = {"useful": 30, "padding": 0, "barrier": 65, "stalled": 0, "empty": 5, "total": 100}
    medians = {name: {**of, "lane_steps": counts} for name, of in comparison.medians.items()}
    bars = drawn(lane_steps(dataclasses.replace(comparison, medians=medians))).data
    written = {bar.name: set(bar.text) for bar in bars}
    assert written["useful"] == {"30"} and written["empty: nobody to serve"] == {""}


def test_kv_lines_are_the_events_own(comparison):
    for line in drawn(kv_use(comparison)).data:
        events = comparison.runs[line.name].trace.events
        assert [round(y * e.kv.total) for y, e in zip(line.y, events, strict=False)] == [
            e.kv.used for e in events
        ]
        assert line.y[-1] == 0 and len(line.y) == len(events) + 1  # after its end


def test_cost_curve_has_medians_and_their_spread():
    figure = drawn(cost(CURVE))
    measured = figure.data[1]
    assert list(measured.y) == pytest.approx([11, 22])
    assert list(measured.error_y.array) == pytest.approx([1, 8]) and list(
        measured.error_y.arrayminus
    ) == pytest.approx([1, 2])
    # how many, and the slowest, for who points at one
    assert [list(point) for point in measured.customdata] == [
        [3, pytest.approx(12)],
        [3, pytest.approx(30)],
    ]
    longer = dataclasses.replace(
        CURVE, by_kv=tuple(StepCost(8, kv, (0.02,)) for kv in (512, 1024, 1536, 8192))
    )
    assert drawn(cost(longer)).layout.xaxis2.ticktext == ("512", "1k", "1536", "8k")


@pytest.mark.parametrize("count", range(1, 9))
def test_no_two_contenders_share_a_colour_and_a_policy_keeps_its_own(count):
    names = [*POLICIES, "generate-waves", "generate-serial", "article", "transformers-continuous"]
    own = {name: contender_hues([name])[name] for name in POLICIES}
    for some in (names[:count], names[-count:], names[1::2][:count]):
        found = contender_hues(some)
        assert list(found) == some and len(set(found.values())) == len(some)
        assert set(found.values()) <= set(range(len(HUES)))
        # of those whose own is the same
        first = {own[name]: name for name in reversed(some) if name in POLICIES}
        assert all(found[name] == hue for hue, name in first.items())
    with pytest.raises(InflightError, match="at most 8"):
        contender_hues([*names, "one", "two", "three"])


def test_the_table_has_every_contender_and_a_definition_for_every_column(comparison):
    made = table(comparison)
    assert [row[0] for row in made["rows"]] == ["static", "continuous"]
    assert all(len(row) == len(made["columns"]) for row in made["rows"])
    assert all(c["definition"] for c in made["columns"])
    by_title = dict(zip([c["title"] for c in made["columns"]], made["rows"][1], strict=True))
    assert by_title["wall time"] == "1.50 s" and by_title["as fast"] == "2.07×"


def test_a_reader_who_divides_two_times_of_the_table_finds_its_ratio():
    """1.23 s by 617 ms, as they stand there; before they were rounded it is 2.003."""
    made = table(compared({"static": [1.2349] * 3, "continuous": [0.61651] * 3}))
    titles = [column["title"] for column in made["columns"]]
    told = [dict(zip(titles, row, strict=True)) for row in made["rows"]]
    assert [one["wall time"] for one in told] == ["1.23 s", "617 ms"]
    assert [one["as fast"] for one in told] == ["1.00×", "1.99×"]


def test_what_cannot_be_seen_is_said_so():
    some = compared({"static": [3.0, 3.1], "other": [2.0, 2.1]}, unseen="other")
    cells = dict(
        zip([c["title"] for c in table(some)["columns"]], table(some)["rows"][1], strict=True)
    )
    assert (
        cells["TTFT p50"] == cells["lane occupancy"] == NOT_OBSERVABLE
        and cells["output tok/s"] == "9"
    )
    made = document(Shown(some, "small", ENVIRONMENT))
    assert list(made["runs"]) == ["static"] and made["names"] == ["static", "other"]


def test_csv_has_plain_numbers(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_text(comparison))))
    assert [r["contender"] for r in rows] == ["static", "continuous"]
    assert (
        float(rows[0]["wall_s.median"]) == 3.1
        and float(rows[1]["steps"]) == comparison.medians["continuous"]["steps"]
    )
    assert "ttft_s.p50" in rows[0]


def test_no_name_in_a_csv_is_a_formula():
    one, name = compared({"static": [2.0]}), "=1+1"
    walls, runs, medians = ({name: of["static"]} for of in (one.walls, one.runs, one.medians))
    said = csv_text(Comparison([name], walls, runs, medians, []))
    assert [row["contender"] for row in csv.DictReader(io.StringIO(said))] == ["'=1+1"]


def test_how_sure_it_is_stands_in_one_line(comparison):
    quiet, busy = ({**ENVIRONMENT, "load_average": load} for load in (0.5, 9.0))
    said = document(Shown(comparison, "small", quiet))["says"]["sure"]
    assert said.startswith(
        "3 of 3 rounds agree; by chance alone that happens in 1 of 4 tries, too few rounds to"
        " decide (sign test"
    )
    assert "The machine was quiet (load 0.5 on 2 CPUs)" in said and "\n" not in said
    assert "busy (load 9 on 2 CPUs), so these times are not those of a quiet one" in verdicts.sure(
        comparison, busy
    )
    five = compared({"static": [2.0] * 5, "continuous": [1.0, 1.1, 1.2, 1.3, 1.9]})
    assert (
        "5 of 5 rounds agree; by chance alone that happens in 1 of 16 tries, so it is decided"
        in verdicts.sure(five, quiet)
    )
    assert "median of the rounds' own" not in verdicts.sure(five, quiet)
    # rounds 2, 1.2, 3; medians 6 and 3
    odd = compared({"static": [2.0, 6.0, 9.0], "continuous": [1.0, 5.0, 3.0]})
    # rounds 2, 1.2, 4.5; medians 6 and 2
    uneven = compared({"static": [2.0, 6.0, 9.0], "continuous": [1.0, 5.0, 2.0]})
    assert "median of the rounds' own" not in verdicts.sure(odd, quiet)
    assert (
        "The ratio, 3.0, is that of the two median times; the median of the rounds' own is 2.0."
        in verdicts.sure(uneven, quiet)
    )


def test_what_was_measured_in_a_tab_says_so_and_nothing_of_cpus_and_load(comparison):
    model, versions = (
        {"name": "shakespeare-bpe", "parameters": 5},
        {
            "python": "3.14.0",
            "pyodide": "314.0.7",
        },
    )
    where = machine("cpu", "Chromium 156, WebAssembly", 1, "float32", model, versions)
    assert where["cpus"] is where["load_average"] is None
    says = document(Shown(comparison, "small", where))["says"]
    assert (
        says["where"]
        == "Chromium 156, WebAssembly (cpu), 1 thread, float32, shakespeare-bpe, Pyodide 314.0.7"
    )
    assert (
        "A browser does not tell how busy this machine was." in says["sure"]
        and "load" not in says["sure"]
    )


def test_the_race_says_which_rounds_it_shows(comparison):
    shown = dataclasses.replace(comparison, shown={"static": 3, "continuous": 1})
    rounds = "nearest to each median: round 3 of static, round 1 of continuous."
    assert f"the race shows the run {rounds}" in verdicts.method(shown)
    even = {name: [*walls, walls[0]] for name, walls in comparison.walls.items()}
    told = verdicts.method(dataclasses.replace(shown, walls=even))
    assert f"the race shows the first of the two runs {rounds}" in told


@pytest.mark.slow
def test_a_comparison_of_drawn_tokens_does_not_claim_greedy_choice(comparison):
    """A policy may be called as another engine is; what was asked decides."""
    assert verdicts.method(comparison).endswith("All of them choose the most probable token.")
    zoo = document(load_comparison(RECORDED / "scheduler-zoo"))
    assert (
        "most probable" not in zoo["says"]["method"]
        and zoo["about"]["transformers"] == POLICIES["transformers"].shows
    )


def test_a_tint_is_found_again_by_the_browser():
    """JavaScript rounds halves up; a figure's colours are exchanged by value where the page is
    dark.
    """
    assert (tint("#D55E00", 0.25), tint("#B5548A", 0.25)) == ("#f5d7bf", "#edd4e2")


def test_a_loss_that_another_limit_spares_is_that_limits():
    about = {
        "static": {"policy": "static"},
        "continuous": {"policy": "continuous", "max_num_batched_tokens": 16},
    }
    about["wide"] = {**about["continuous"], "max_num_batched_tokens": 256}
    made = compared(
        {"static": [1.0] * 5, "continuous": [1.2] * 5, "split": [0.9, 1.1, 0.9, 1.1, 1.1]}
    )
    names = ["static", "continuous", "wide"]
    walls, runs, medians = (
        dict(zip(names, found.values(), strict=True))
        for found in (made.walls, made.runs, made.medians)
    )
    three = Comparison(names, walls, runs, medians, [], about)
    assert (
        verdicts.total_time(three)
        == "continuous loses here: it took 1.20 s, static 1.00 s; slower in 5 of 5 rounds, 0.83"
        " times as fast. With a token budget of 256 instead of 16 it ties with static, faster in"
        " 2 of 5 rounds (0.91 to 1.11), so the loss is due to that limit, not to the policy."
    )
    more = about | {"wide": {**about["wide"], "max_num_seqs": 8}}
    more["continuous"] = {**more["continuous"], "max_num_seqs": 4}
    assert verdicts.total_time(dataclasses.replace(three, about=more)).endswith(
        ", so the loss is due to these limits, not to the policy."
    )
    best = Comparison(names, walls | {"wide": [0.5] * 5}, runs, medians, [], about)
    assert best.fastest == "wide" and "The fastest" not in verdicts.total_time(best)
    assert (
        verdicts.racing(three) == names
        and document(Shown(three, "x", ENVIRONMENT))["about"]["wide"]
        == POLICIES["continuous"].shows
    )


def test_a_loss_to_the_same_policy_is_not_excused_by_that_run_itself():
    about = {
        name: {"policy": "continuous", "max_num_batched_tokens": budget}
        for name, budget in (("narrow", 16), ("wide", 64))
    }
    made = compared({"static": [1.0] * 5, "continuous": [1.3] * 5})
    walls, runs, medians = (
        dict(zip(about, found.values(), strict=True))
        for found in (made.walls, made.runs, made.medians)
    )
    two = Comparison([*about], walls, runs, medians, [], about)
    assert (
        verdicts.total_time(two)
        == "wide loses here: it took 1.30 s, narrow 1.00 s; slower in 5 of 5 rounds, 0.77 times as"
        " fast."
    )
    assert verdicts.racing(two) == ["narrow", "wide"]


def test_the_sum_begins_with_one_run_and_ends_with_the_other(comparison):
    traces = [comparison.runs[name].trace for name in ("static", "continuous")]
    found = difference_of(*traces)
    first, *parts, last = bars(found, "static", "continuous")
    assert (first.start, first.end, last.start, last.end) == (0, found.before_s, 0, found.after_s)
    ends = [first.end, *(part.end for part in parts)]
    assert [part.start for part in parts] == ends[:-1] and ends[-1] == pytest.approx(found.after_s)
    assert parts[-1].label == verdicts.PARTS["rest"]
    changes = [part.end - part.start for part in parts[:-1]]
    assert len(changes) > 1 and changes == sorted(changes)  # what shortens first
    said = verdicts.difference(found, "static", "continuous")
    assert all(
        f"{findings.seconds(abs(part.end - part.start))}"
        f" {'more' if part.end > part.start else 'less'} for {part.label}" in said
        for part in parts
    )
    assert said.startswith(f"continuous took {findings.seconds(abs(found.seconds))} ")
    written = drawn(difference_of_two(comparison)).data[0].text
    signed = [
        f"{'+' if change > 0 else '−'}{findings.seconds(abs(change))}"
        for change in (part.end - part.start for part in parts)
    ]
    ends = map(findings.seconds, (found.before_s, found.after_s))
    assert list(written) == [next(ends), *signed, next(ends)] and signed[0].startswith("−")


def test_three_parts_are_named_and_two_against_them_with_a_decimal_where_it_tells():
    seconds = {"work": -6.0, "tokens": 1.0, "padding": 1.2, "kv": 0.8, "idle": -0.9}
    parts = tuple(Contribution(name, s, 3.2, 3.4) for name, s in seconds.items())
    with_it, against = verdicts.named_parts(Difference(10.0, 6.1, parts, 0.01))
    assert [p.name for p in with_it] == ["work", "idle"]
    assert [p.name for p in against] == ["padding", "tokens"]
    assert verdicts.counts(parts[0]) == "3.2 → 3.4"
    assert verdicts.counts(Contribution("work", 1.0, 3.0, 14.2)) == "3 → 14"


def point(policy: str, rate: float, p99: float, left_out: int = 0) -> dict:
    ttft = {"count": 9, "left_out": left_out, "p50": p99 / 2, "p99": p99}
    numbers = {"ttft_s": ttft, "requests_per_s": rate * 0.9, "output_tok_s": 50.0}
    return {
        "policy": policy,
        "rate": rate,
        "offered": 9 + left_out,
        "cut": bool(left_out),
        "numbers": numbers,
    }


def test_under_load_every_point_is_one_that_was_measured(comparison):
    points = [
        point("static", 2, 0.5),
        point("static", 4, 8.0, 3),
        point("continuous", 2, 0.2),
        point("continuous", 4, 0.4),
    ]
    points[0]["numbers"]["output_tok_s"] = None  # nobody had ended, so there were no tokens
    swept = {"capacity_requests_per_s": 4.0, "points": points}
    figure = drawn(load(swept))
    left, right = figure.data[:2]
    steps = {round(tick / less, 3) for less, tick in pairwise(figure.layout.yaxis.tickvals)}
    assert steps == {2, 2.5}  # 1, 2, 5, 10 and so on
    assert list(right.customdata) == ["0 output tok/s", "50 output tok/s"]
    assert list(left.customdata) == ["500 ms, 9 of 9 served", "≥ 8.00 s, 9 of 12 served"]
    assert list(left.x) == [2, 4] and list(left.y) == [0.5, 8.0] and list(right.y) == [1.8, 3.6]
    assert left.marker.color[0] != left.marker.color[1] == PANEL  # hollow: cut, so at least so long
    assert (
        verdicts.load(swept)
        == "At 4 requests a second, 99 of 100 get their first token with static in no less than"
        " 8.00 s, and 3.6 finish; with continuous within 400 ms, and 3.6 finish."
    )
    beyond = [point("static", 5, 9.0), point("continuous", 5, 0.6)]
    assert verdicts.load(swept | {"points": [*points, *beyond]}) == verdicts.load(swept)
    made = document(Shown(comparison, "x", ENVIRONMENT, load=swept))
    assert made["figures"][0]["name"] == "load" and made["figures"][0]["title"] == "Under load"


def test_a_busy_machine_records_nothing(tmp_path):
    with pytest.raises(
        InflightError,
        match=r"busy: a load of 99 on \d+ CPUs?, and published times allow at most 0.3 per CPU",
    ):
        record_comparisons(["equal-lengths"], tmp_path, load=lambda: 99.0)
    with pytest.raises(InflightError, match="no comparison 'magic'"):
        record_comparisons(["magic"], tmp_path, load=lambda: 0.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_quiet_machine_records_what_is_shown(tmp_path):
    # a machine that only says that it is quiet may have a step that took far too long
    for again in (True, True, True, False):
        try:
            ((_, folder),) = record_comparisons(
                ["equal-lengths"], tmp_path, repeats=1, load=lambda: 0.0
            )
            break
        except InflightError as error:
            if not again or "record it again" not in str(error):
                raise
    made = document(load_comparison(folder))
    assert (
        made["names"] == ["static", "continuous", "continuous, budget 256", "dynamic"]
        and made["race"] == made["names"][:3]
    )
    assert made["source"] == "recorded" and made["data"]["environment"]["load_average"] == 0.0
    assert {f["name"] for f in made["figures"]} >= {"total_time", "difference"}


@pytest.mark.slow
def test_saved_and_loaded_it_is_the_same_document(tmp_path):
    made = measured()
    header = made.runs["static"].trace.header
    shown = Shown(
        made,
        "small",
        environment(header),
        header.source,
        "Small",
        "shows",
        max(run.trace.header.created for run in made.runs.values()),
        CURVE,
        {},
    )
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "7-gone.jsonl.gz").touch()  # of contenders that it had once
    folder = save(shown, tmp_path / "small")
    assert sorted(path.name for path in folder.glob("*.jsonl.gz")) == sorted(
        json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["traces"].values()
    )
    assert document(load_comparison(folder)) == document(shown)
    for called in ("engines-small", "gpu-small"):
        load_comparison(save(dataclasses.replace(shown, workload=called), tmp_path / called))
    plain = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    plain["policies"]["static"]["wall_s"]["runs"][0] += 9
    (folder / "comparison.json").write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(InflightError, match="small says wall_s of static"):
        load_comparison(folder)


def test_the_race_gets_every_event_and_what_the_watch_tab_says_of_it(comparison):
    made = document(Shown(comparison, "small", ENVIRONMENT))
    for name, replay in made["runs"].items():
        events = comparison.runs[name].trace.events
        assert len(replay["events"]) == len(replay["captions"]) == len(events)
        assert set(replay["texts"]["output"]) == {
            finished.request for event in events for finished in event.finished
        }
        assert "prompts" not in replay["header"]
    json.dumps(made, allow_nan=False)


def equivalence_of(
    solo: list[int], batched: list[int], generated: list[int] | None, leak: bool = False
) -> dict[str, Any]:
    """One request's texts, as `core.proof.equivalence` compares them."""
    return NOTHING_COMPARED | {
        "leak": leak,
        "tokens": len(solo),
        "differing_tokens": differing(solo, batched),
        "generated_tokens": len(generated or ()),
        "differing_from_generate": differing(generated, batched) if generated else 0,
        "max_logit_difference": 0.0,
        "requests": [{"solo": solo, "batched": batched, "generated": generated}],
    }


def test_the_equivalence_says_what_generate_writes_too():
    def said(generated: list[int] | None) -> str:
        return findings.equivalence(equivalence_of([1, 2, 3], [1, 2, 3], generated))

    alone = "0 of 3 tokens differ from those written alone; the largest logit difference is 0. "
    assert said([1, 2, 3]) == alone + "model.generate itself writes the same 3 tokens."
    assert said([1, 9, 9]) == alone + "2 of 3 tokens differ from those of model.generate itself."
    assert said(None).startswith(alone + "model.generate is not run: ")


def test_no_more_tokens_differ_than_there_are_in_the_longer_text():
    found = equivalence_of([1, 2], [3, 4, 5, 6], [1, 2], leak=True)
    assert findings.equivalence(found) == (
        "With the leak 4 of 4 tokens differ from those written alone; the largest logit difference"
        " is 0. 4 of 4 tokens differ from those of model.generate itself."
    )


def test_what_differs_and_what_was_not_observed_is_said(comparison):
    """Sentences that no comparison that ships has."""
    where = {"policy": "continuous", "request": "b", "position": 7, "expected": 1, "got": 2}
    parted, unobserved = ({**where, "margin": margin} for margin in (0.012345, None))
    said = "continuous departs from static in request b at token 7"

    def outputs(*differences: dict) -> str:
        return findings.outputs(dataclasses.replace(comparison, differences=[*differences]))

    assert outputs() == "Every run wrote the same tokens."
    assert outputs(parted, unobserved) == f"{said}, where the best logit led by 0.0123."
    assert outputs(unobserved, parted) == f"{said}."

    numbers = comparison.medians
    for name in numbers:
        medians = numbers | {name: numbers[name] | {"output_tok_s": None}}
        known = dataclasses.replace(comparison, medians=medians)
        assert findings.throughput(known) == "Throughput could not be observed."

    waited = point("static", 2, 1.0)
    none = {"count": 0, "left_out": 9, "p99": None}
    waited["numbers"] |= {"ttft_s": none, "requests_per_s": 0.0}
    swept = {"capacity_requests_per_s": None, "points": [waited, point("continuous", 2, 0.2)]}
    assert verdicts.load(swept) == (
        "At 2 requests a second, 99 of 100 get their first token with static never, and 0"
        " finish; with continuous within 200 ms, and 1.8 finish."
    )
    assert findings.totals(dataclasses.replace(run("static"), events=[])) == []
    assert [findings.percent(share) for share in (None, 0.0, 0.0996, 0.1, 1.0)] == [
        "–",
        "0 %",
        "10.0 %",
        "10 %",
        "100 %",
    ]
    assert "; the largest logit difference is 0, in float32 on cpu. " in findings.equivalence(
        equivalence_of([1, 2], [1, 3], None)
    )


def test_the_size_of_a_model_is_said_where_an_engine_knows_it():
    comparison = load_comparison(RECORDED / "engines-kv-pressure").comparison
    assert verdicts.caveats(comparison)[-1].startswith("A model of 5 million parameters on a CPU")
    theirs = {name: run for name, run in comparison.runs.items() if name != "continuous"}
    assert len(verdicts.caveats(dataclasses.replace(comparison, runs=theirs))) == 1


@pytest.mark.slow
def test_what_an_engine_notes_of_its_machine_is_said_in_german_too():
    noted = {
        note
        for entry in recorded()
        for note in notes(load_comparison(RECORDED / entry["name"]).comparison)
    }
    with speaking("de"):
        assert noted and all(t(note) != note for note in noted)
        assert any("numba 0.68.1 für" in t(note) for note in noted)  # no decimal
