"""Pages that are one file: what they hold, where they open, and what has no page."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from core import Trace
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.policies import compare, compare_policies
from core.recorders.texts import tokenizer_of
from core.workload.workload import Workload
from visualizer.lessons.document import recorded
from visualizer.page.one_file import html_of, lesson_html
from worlds.serving import char_engine
from worlds.small import request

TRACES = recorded()


def data(html: str, of: str) -> dict:
    return json.loads(
        re.search(
            rf'<script id="inflight-{of}" type="application/json">(.*?)</script>', html, re.DOTALL
        )[1]
    )


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    """Of two requests, one of which is named like a mark of the page."""
    return compare_policies(
        char_engine(), Workload([request("/*SCRIPT*/", 4, 3), request("b", 3, 2)]), repeats=1
    )


@pytest.mark.parametrize("in_cell", [False, True])
def test_a_run_opens_at_its_place_with_a_frame_only_where_it_fills_the_window(in_cell):
    props = data(html_of(TRACES("one-request"), in_cell, {"step": 3}), "props")
    assert props["step"] == 3 and props["embedded"] is in_cell and props["replay"]["events"]


@pytest.mark.parametrize(("source", "shown"), [("live", "recorded"), ("simulated", "simulated")])
def test_a_run_of_a_command_or_a_notebook_is_called_recorded_as_no_server_ran_it(source, shown):
    loaded = TRACES("one-request")
    ran = replace(loaded, header=replace(loaded.header, source=source), recorded_texts=None)
    ran.tokenizer = tokenizer_of("shakespeare-bpe")
    for trace, in_cell, is_brought in (
        (ran, True, False),  # what a notebook shows has passed through no other hands
        (ran, False, True),
        (loaded, True, True),  # unless it was in a file before
    ):
        header = data(html_of(trace, in_cell, {}), "props")["replay"]["header"]
        assert header["source"] == (shown if trace is ran else "recorded")
        assert (header.get("brought") == "uploaded") is is_brought


@pytest.mark.slow
def test_a_comparison_brings_its_traces_and_a_name_is_no_mark_of_the_page(comparison):
    html = html_of(comparison, True, {})
    brought = data(html, "data")["comparison"]
    assert brought["names"] == ["static", "continuous"]
    assert (
        html.count("/*SCRIPT*/") == json.dumps(brought).count("/*SCRIPT*/") > 0
        and 'name: "compare"' in html
    )


def test_a_lesson_brings_every_run_that_it_opens_in_one_language():
    html = lesson_html("static-batching", TRACES)
    brought, catalogue = data(html, "data"), data(html, "props")["catalogue"]
    assert {doc["header"]["brought"] for doc in brought.values() if "header" in doc} == {"uploaded"}
    opened = set(
        re.findall(
            r'"run":"([^"]+)"', json.dumps(brought["lesson"]["lessons"], separators=(",", ":"))
        )
    )
    assert brought.keys() - {"lesson"} == opened == {entry["url"] for entry in catalogue}
    assert brought["lesson"]["languages"] == {}


def test_of_a_comparison_the_load_is_told_under_which_it_was_made(comparison):
    """Not that of the moment in which its page is made."""
    for load, busy in ((0.0, False), (99.0, True), (None, False)):
        brought = data(html_of(replace(comparison, load=load), False, {}), "data")["comparison"]
        assert ("load 99" in json.dumps(brought["says"])) is busy


TRUST = "Taken on trust: everything said here"


def test_of_a_comparison_in_a_file_everything_is_taken_on_trust(comparison):
    """As it is of a run: the page, its statements and its downloads can be changed together."""
    for in_cell, source in ((True, "live"), (False, "uploaded")):
        made = data(html_of(comparison, in_cell, {}), "data")["comparison"]
        assert made["source"] == made["data"]["source"] == source
        assert any(note.startswith(TRUST) for note in made["says"]["notes"]) is not in_cell


def test_a_comparison_of_traces_claims_neither_this_machine_nor_a_warm_up():
    one, other = TRACES("kv-pressure"), TRACES("kv-pressure-stall")
    far = replace(other, header=replace(other.header, device_name="far away", threads=9))
    for second, places in ((other, 1), (far, 2)):
        shown = compare(one, second)
        made = data(html_of(shown, True, {}), "data")["comparison"]
        assert made["source"] == "uploaded"
        where = made["says"]["where"].split("; ")
        assert len(where) == places and where[0].startswith("x86_64 (cpu), 2 threads, float32, ")
        assert where[-1].startswith("far away (cpu), 9 threads, ") is (second is far)
        about = made["data"]["environment"]
        assert (about["hardware"], about["cpus"], about["load_average"]) == ("x86_64", None, None)
        assert made["says"]["method"] == "One run of each, made before and read from its trace."
        assert "CPU" not in "".join(made["says"]["where"])


def test_what_has_no_page_is_refused_in_a_sentence(comparison):
    empty = Trace(TRACES("one-request").header, {}, [], complete=False)
    runs = {name: replace(run, trace=None) for name, run in comparison.runs.items()}
    for what, says in (
        (17, r"^There is no page of a int\.$"),
        (empty, r"^An empty trace: nothing has run yet\.$"),
        (
            replace(comparison, runs=runs),
            "^No contender of this comparison left a trace that could be shown.$",
        ),
    ):
        with pytest.raises(InflightError, match=says):
            html_of(what, False, {})
    with pytest.raises(InflightError, match="^There is no lesson 'nonsense'.$"):
        lesson_html("nonsense", TRACES)
