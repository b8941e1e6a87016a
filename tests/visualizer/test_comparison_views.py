"""Sentences and pictures of comparisons: the numbers are those of the traces, whoever wins."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math

import pytest

from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.cost_curve import CostCurve, Point
from core.measure.metrics import DEFINITIONS
from core.measure.rounds import Run
from core.trace.trace import Trace
from visualizer.charts import cost_curve, kv_use, lane_steps, latency, throughput, total_time
from visualizer.charts.contenders import hues
from visualizer.charts.theme import HUES
from visualizer.documents.comparison import FIGURES, Shown, document
from visualizer.documents.comparison_files import load, save
from visualizer.documents.comparison_table import NOT_OBSERVABLE, csv_text, table
from visualizer.words import findings
from worlds.comparison import CURVE, ENVIRONMENT
from worlds.visual import record, request

REQUESTS = [request("a", 5, 12), request("b", 3, 3), request("c", 4, 6), request("d", 6, 4)]


def run(policy: str) -> Trace:
    limits = {"max_num_batched_tokens": 8} if policy == "continuous" else {}
    return record(EngineConfig(policy=policy, max_num_seqs=2, block_size=4, **limits), *REQUESTS)


def compared(walls: dict[str, list[float]], unseen: str = "") -> Comparison:
    runs = {name: Run.of(run(name)) for name in walls if name != unseen}
    if unseen:
        runs[unseen] = Run({}, {"wall_s": 1.0, "steps": None, "ttft_s": None, "itl_s": None, "output_tok_s": 9.0})
    return Comparison(list(walls), walls, runs, {n: dict(runs[n].metrics) for n in walls}, [])


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared({"static": [3.0, 3.3, 3.1], "continuous": [1.5, 1.4, 1.6]})


def test_the_winner_is_named_with_ratios_run_by_run(comparison):
    assert (
        findings.total_time(comparison)
        == "continuous took 1.5 s, static 3.1 s: 2.0 times as fast in 3 of 3 rounds (1.94 to 2.4)."
    )


def test_a_loss_is_said_as_plainly():
    lost = compared({"static": [1.0, 1.0], "continuous": [1.25, 1.3]})
    assert (
        findings.total_time(lost)
        == "continuous loses here: it took 1.27 s, static 1 s, 1.27 times as long in 2 of 2 rounds (1.25 to 1.30)."
    )


def test_rounds_that_disagree_decide_nothing():
    close = compared({"static": [1.0, 1.4, 1.2], "continuous": [1.1, 1.3, 1.0]})
    assert findings.total_time(close).endswith("faster in 2 of 3 rounds (0.91 to 1.20), so nobody wins.")


def test_the_fastest_is_named_where_it_is_a_third():
    three = compared({"static": [3.0, 3.0, 3.0], "continuous": [1.5, 1.5, 1.5], "split": [1.4, 1.6, 1.4]})
    assert findings.total_time(three).endswith(
        "The fastest is split with 1.4 s, ahead of continuous in 2 of 3 rounds, which is a tie."
    )


@pytest.mark.parametrize(
    ("value", "text"), [(61.8, "61.8 s"), (0.0123, "12.3 ms"), (0.99999, "1.00 s"), (1.0, "1 s"), (123.4, "123 s"), (None, "–")]
)
def test_durations_have_units(value, text):
    assert findings.seconds(value) == text


def test_the_waste_of_running_ahead_is_called_so(comparison):
    metrics = {
        "lane_steps": {"useful": 90, "padding": 10, "barrier": 0, "stalled": 0, "empty": 0, "total": 100},
        "overrun_rows": 10,
    }
    ahead = dataclasses.replace(comparison, medians={name: {**m, **metrics} for name, m in comparison.medians.items()})
    assert "wastes 10% of its 100 lane-steps, all rows of requests that had stopped" in findings.lane_steps(ahead)


def test_lane_steps_name_the_waste(comparison):
    said = findings.lane_steps(comparison)
    counts = comparison.medians["static"]["lane_steps"]
    assert counts["padding"] > 0
    assert (
        f"static wastes {findings.percent((counts['total'] - counts['useful']) / counts['total'])} of its {counts['total']} lane-steps"
        in said
    )


def test_cost_says_what_a_token_costs():
    assert (
        findings.cost(CURVE)
        == "A step of 8 tokens takes 2.0 times as long as a step of 1: each token costs 4.0 times less. Reading 8 times the KV makes a step 2.5 times as long."
    )
    flat = CostCurve(CURVE.model, "cpu", "float32", (Point(1, 1, (0.01,)), Point(2, 2, (0.03,))), ())
    assert "saves nothing" in findings.cost(flat)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_states_its_finding_and_is_json(comparison, name):
    figure = FIGURES[name](comparison)
    finding = figure.layout.meta["finding"]
    assert finding.endswith(".") and any(c.isdigit() for c in finding)
    assert figure.layout.title.text.replace("<br>", " ") == finding
    assert set(figure.layout.meta["definitions"]) <= set(DEFINITIONS.values())
    assert json.loads(figure.to_json())["data"]


def test_total_time_draws_every_run(comparison):
    bars, *dots = total_time.figure(comparison).data
    assert dict(zip(bars.y, bars.x, strict=True)) == {"static": 3.1, "continuous": 1.5}
    assert {d.name: list(d.x) for d in dots} == comparison.walls


def test_throughput_integrates_to_the_tokens(comparison):
    for line in throughput.figure(comparison).data:
        tokens = sum(rate * (b - a) for rate, a, b in zip(line.y, line.x, line.x[1:], strict=False))
        assert tokens == pytest.approx(sum(r.sampling.max_new_tokens for r in REQUESTS), rel=0.01)


def test_latency_has_a_dot_a_request_and_a_gap_a_token(comparison):
    for box in latency.figure(comparison).data:
        count = len(REQUESTS) if box.hoveron == "points" else sum(r.sampling.max_new_tokens - 1 for r in REQUESTS)
        assert len(box.x) == count


def test_lane_step_shares_sum_to_one(comparison):
    figure = lane_steps.figure(comparison)
    for i, name in enumerate(figure.data[0].y):
        assert math.isclose(sum(bar.x[i] for bar in figure.data), 1.0)
        useful = next(bar for bar in figure.data if bar.name == "useful")
        counts = comparison.medians[name]["lane_steps"]
        assert useful.x[i] == pytest.approx(counts["useful"] / counts["total"])


def test_kv_lines_are_the_events_own(comparison):
    for line in kv_use.figure(comparison).data:
        events = comparison.runs[line.name].trace.events
        assert [round(y * e.kv.total) for y, e in zip(line.y, events, strict=False)] == [e.kv.used for e in events]


def test_cost_curve_has_medians_and_their_spread():
    figure = cost_curve.figure(CURVE)
    measured = figure.data[1]
    assert list(measured.y) == pytest.approx([11, 22])
    assert list(measured.error_y.array) == pytest.approx([1, 8]) and list(measured.error_y.arrayminus) == pytest.approx([1, 2])


@pytest.mark.parametrize("count", range(1, 9))
def test_no_two_contenders_share_a_colour_and_a_policy_keeps_its_own(count):
    names = [*POLICIES, "generate-waves", "generate-serial", "article", "transformers-continuous"]
    whole = hues(list(POLICIES))
    for some in (names[:count], names[-count:], names[1::2][:count]):
        found = hues(some)
        assert list(found) == some and len(set(found.values())) == len(some)
        assert set(found.values()) <= set(range(len(HUES)))
        assert all(found[name] == whole[name] for name in some if name in POLICIES)
    with pytest.raises(InflightError, match="at most 8"):
        hues([*names, "one", "two", "three"])


def test_the_table_has_every_contender_and_a_definition_for_every_column(comparison):
    made = table(comparison)
    assert [row[0] for row in made["rows"]] == ["static", "continuous"]
    assert all(len(row) == len(made["columns"]) for row in made["rows"])
    assert all(c["definition"] for c in made["columns"])
    by_title = dict(zip([c["title"] for c in made["columns"]], made["rows"][1], strict=True))
    assert by_title["wall time"] == "1.5 s" and by_title["as fast"] == "2.00×"


def test_what_cannot_be_seen_is_said_so():
    some = compared({"static": [3.0, 3.1], "other": [2.0, 2.1]}, unseen="other")
    cells = dict(zip([c["title"] for c in table(some)["columns"]], table(some)["rows"][1], strict=True))
    assert cells["TTFT p50"] == cells["lane occupancy"] == NOT_OBSERVABLE and cells["output tok/s"] == "9"
    made = document(Shown(some, "small", ENVIRONMENT))
    assert list(made["runs"]) == ["static"] and made["names"] == ["static", "other"]


def test_csv_has_plain_numbers(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_text(comparison))))
    assert [r["contender"] for r in rows] == ["static", "continuous"]
    assert float(rows[0]["wall_s.median"]) == 3.1 and float(rows[1]["steps"]) == comparison.medians["continuous"]["steps"]
    assert "ttft_s.p50" in rows[0]


def test_a_busy_machine_is_warned_of(comparison):
    quiet = document(Shown(comparison, "small", ENVIRONMENT))
    busy = document(Shown(comparison, "small", {**ENVIRONMENT, "load_average": 9.0}))
    assert not quiet["says"]["warnings"] and "busy (load 9 on 2 CPUs)" in busy["says"]["warnings"][0]


def test_saved_and_loaded_it_is_the_same_document(comparison, tmp_path):
    shown = Shown(
        comparison,
        "small",
        ENVIRONMENT,
        "recorded",
        "Small",
        "shows",
        "2026-01-02T03:04:05+00:00",
        CURVE,
        {"honest": {"says": "x"}},
    )
    folder = save(shown, tmp_path / "small")
    assert document(load(folder)) == document(shown)


def test_the_race_gets_every_event_and_no_text(comparison):
    made = document(Shown(comparison, "small", ENVIRONMENT))
    for name, replay in made["runs"].items():
        assert len(replay["events"]) == len(comparison.runs[name].trace.events)
        assert set(replay) == {"header", "complete", "letters", "events"} and "prompts" not in replay["header"]
    json.dumps(made, allow_nan=False)
