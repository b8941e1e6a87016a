"""The plan of a kept run as a page asks for it: its document in both languages, one setting as a
run to be watched, and what is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.account.request_times import SLOs, request_times
from core.errors import InflightError
from core.measure.plan import plan
from core.recorders.convert import open_run
from core.trace.trace import Trace
from visualizer.documents.plan import plan_document
from visualizer.jobs.limits import HERE, Refused, TimeIsUp
from visualizer.jobs.planned import PlanJob, SettingJob
from visualizer.jobs.work import Work
from visualizer.words.findings import seconds
from visualizer.words.language import missing_keys

DATA = Path(__file__).resolve().parents[1] / "data"
PRIORITY = DATA / "vllm-http" / "priority-smollm2.raw.jsonl.gz"
SETTING = DATA / "vllm-settings" / "smollm2-lanes-8-budget-512.raw.jsonl.gz"


class Kept:
    """A `Host` that keeps one run, and what is made of it."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.made = trace, list[Any]()

    def recorded(self, run: object) -> Trace:
        assert run == "it"
        return self.trace

    def keep(self, trace: Trace) -> dict[str, Any]:
        self.made.append(trace)
        return {"id": "made", "url": "made"}

    def keep_document(self, document: dict[str, Any]) -> str:
        self.made.append(document)
        return "made"


def done(work: Work, host: Any) -> Iterator[str]:
    """Do it to its end; the names of what it was at."""
    for _ in work.run(host):
        if (name := work.progress.get("setting")) is not None:
            yield name
    work.keep(host)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_run(SETTING)


def test_a_plan_is_the_same_in_python_and_on_the_page(trace: Trace) -> None:
    host, spec = Kept(trace), {"run": "it", "lanes": [8, 16], "blocks": [727, 1]}
    missing_keys.clear()
    names = dict.fromkeys(done(PlanJob(spec, HERE), host))
    (document,) = host.made
    made = plan(trace, lanes=[8, 16], blocks=[727, 1])
    assert [*names] == ["as recorded", "1 block", "16 lanes", "16 lanes, 1 block"]
    assert document["data"] == made.to_json() and document["says"]["headline"] == made.verdict
    rows = document["table"]["rows"]
    assert [row[0] for row in rows][:3] == ["measured", "as recorded", "16 lanes"]
    assert {len(row) for row in rows} == {len(document["table"]["columns"])}
    # those that cannot run are not watched, and say why
    assert [config is not None for config in document["configs"]] == [True, True, False, False]
    assert any("1 block; 16 lanes, 1 block: " in note for note in document["says"]["notes"])
    said = document["translations"]["de"]
    assert said["table"]["rows"][2][0] == "16 Spuren" and "daneben" in said["says"]["headline"]
    assert not {key for key in missing_keys if "KV pool" not in key}


def test_a_plan_whose_time_is_up_is_none(trace: Trace) -> None:
    """Wherever it is told: no setting is said to be impossible that was only not reached."""
    work = PlanJob({"run": "it", "lanes": [4]}, HERE)
    going = work.run(Kept(trace))
    while work.progress.get("setting") != "4 lanes":
        next(going)
    next(going)
    with pytest.raises(TimeIsUp) as up:
        going.throw(TimeIsUp("The plan was stopped."))
    assert work.failed(up.value) == {"error": "The plan was stopped."}


def test_every_count_of_a_plan_is_written_as_its_language_writes_numbers(trace: Trace) -> None:
    made = plan(trace)
    many = {**made.measured.numbers, "preemptions": 12_345, "most_waiting": 2_345}
    told = replace(made, measured=replace(made.measured, numbers=many))
    document = plan_document(told, trace, "it")
    german = document["translations"]["de"]
    for said, counts in ((document, ["12,345", "2,345"]), (german, ["12.345", "2.345"])):
        assert said["table"]["rows"][0][8:] == counts


def test_a_request_has_its_own_story_across_the_settings(trace: Trace) -> None:
    host = Kept(trace)
    [*done(PlanJob({"run": "it", "lanes": [4]}, HERE), host)]
    (document,) = host.made
    made = plan(trace, lanes=[4])
    assert [one["letter"] for one in document["requests"]][:3] == ["A", "B", "C"]
    assert len(document["requests"]) == len(trace.asked)
    last = [point.requests[[*trace.asked][-1]].e2e_s for point in (made.measured, *made.points)]
    told = document["requests"][-1]["rows"]
    own = made.measured.requests[[*trace.asked][-1]]
    assert told[0] == [*map(seconds, (own.queue_s, own.ttft_s, own.e2e_s))]
    assert len({*told[0]}) == 3
    assert [told[0][2], told[2][2]] == [f"{e2e:#.3g} s" for e2e in last if e2e is not None]


def test_a_point_of_the_picture_tells_its_own_numbers(trace: Trace) -> None:
    """The measured one, in both panels: TTFT and ITL, the half before the worst."""
    made = plan(trace, lanes=[4])
    document = plan_document(made, trace, "it")
    (figure,) = document["figures"]
    stars = [mark for mark in figure["figure"]["data"] if mark.get("name") == "measured"]
    numbers = made.measured.numbers
    assert numbers is not None
    for star, name in zip(stars, ("ttft_s", "itl_s"), strict=True):
        half, worst = (seconds(numbers[name][share]) for share in ("p50", "p99"))
        assert half != worst and star["text"] == [
            f"measured<br>{half} at p50, {worst} at p99<br>"
            f"{numbers['output_tok_s']:.1f} tokens per second<br>"
            f"{numbers['preemptions']} preemptions, at most {numbers['most_waiting']} waiting"
        ]
        assert [star["x"], star["y"]] == [
            [round(numbers["output_tok_s"], 3)],
            [numbers[name]["p50"]],
        ]
        assert star["customdata"] == [None]  # no row of the table is to be opened for it


@pytest.mark.slow
def test_settings_are_ranked_by_the_limits_of_a_good_request(trace: Trace) -> None:
    host, limits = Kept(trace), {"ttft_s": 0.5, "e2e_s": 6.0}
    [*done(PlanJob({"run": "it", "lanes": [4, 16], "slos": limits}, HERE), host)]
    (document,) = host.made
    made = plan(trace, lanes=[4, 16], slos=SLOs(**limits))
    assert document["data"] == made.to_json() and "goodput" in document["says"]["headline"]
    assert document["table"]["columns"][-1]["title"] == "good/s"
    rates = [float(row[-1]) for row in document["table"]["rows"]]
    shown = (made.measured, made.again, *made.points)
    told = [point.numbers["goodput"]["requests_per_s"] for point in shown if point.numbers]
    assert rates == [round(rate, 2) for rate in told] and rates[2] > rates[3] > 0


def test_a_setting_can_be_watched(trace: Trace) -> None:
    """The run that the plan simulated, labelled, with the prompts' texts."""
    host = Kept(trace)
    made = plan(trace, lanes=[16])
    (point,) = made.points
    [*done(SettingJob({"run": "it", "config": point.config.to_json()}, HERE), host)]
    (run,) = host.made
    assert run.header.is_simulated and run.config.max_num_seqs == 16
    assert run.events == made.run(point).events
    assert run.texts.prompt == trace.texts.prompt
    assert not any(run.text(request) for request in run.asked)


def test_a_watched_run_has_the_times_of_its_row_where_another_engine_was_recorded() -> None:
    made = plan(open_run(SETTING), lanes=[4])
    (point,) = made.points
    assert request_times(made.run(point)) == point.requests


def test_a_setting_that_lies_beyond_what_was_measured_is_named(trace: Trace) -> None:
    made = plan(trace, lanes=[4])
    beyond = replace(made.points[0], beyond="Half of it lies beyond.")
    document = plan_document(replace(made, points=(beyond,)), trace, "it")
    assert "4 lanes: Half of it lies beyond." in document["says"]["notes"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"lanes": [0]}, "whole numbers from 1"),
        ({"blocks": [2**40]}, "whole numbers from 1"),
        ({"budgets": "512"}, "whole numbers from 1"),
        ({"lanes": [True]}, "whole numbers from 1"),
        ({"policies": ["fastest"]}, "Choose policies by name"),
        ({"policies": [["static"]]}, "Choose policies by name"),
        ({"slos": {"ttft_s": 0}}, "The limits of a good request are seconds above 0"),
        ({"slos": {"ttft_s": True}}, "seconds above 0"),
        ({"slos": {"ttft": 1.0}}, "seconds above 0"),
        ({"slos": [1.0]}, "seconds above 0"),
        ({"lanes": [*range(1, 3000)], "budgets": [*range(8000, 12000)]}, "settings are too many"),
    ],
)
def test_what_is_no_setting_is_refused(trace: Trace, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(InflightError, match=why):
        [*done(PlanJob({"run": "it", **spec}, HERE), Kept(trace))]


@pytest.mark.parametrize("limit", ["max_num_seqs", "max_num_batched_tokens", "num_blocks"])
def test_a_setting_that_is_too_large_is_not_simulated(limit: str) -> None:
    """In any of its limits, of which the cache need not have one."""
    most = {"policy": "static"}
    SettingJob({"run": "it", "config": most | {limit: 2**20}}, HERE)
    with pytest.raises(Refused, match="whole numbers from 1"):
        SettingJob({"run": "it", "config": most | {limit: 2**20 + 1}}, HERE)


@pytest.mark.slow
def test_what_the_recording_does_not_say_is_said_in_german_too() -> None:
    host = Kept(open_run(PRIORITY))
    missing_keys.clear()
    [*done(PlanJob({"run": "it"}, HERE), host)]
    assert not missing_keys
    assert any("„priority“" in note for note in host.made[0]["translations"]["de"]["says"]["notes"])
