"""Static beside continuous on Watch: the recorded pair on one clock, in a link too, and in nobody's
way where there is none.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from core.account.request_times import request_times
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED, load
from visualizer.documents.replay import replay
from worlds.browser import settled

ON = "inflight.beside.on && inflight.pair.members.length === 2 && !inflight.beside.working"


@pytest.fixture
def open_page(visit, page_url):
    return lambda **how: visit(url=f"{page_url}/", **how)


def waited(page) -> dict[str, dict[str, str]]:
    """By policy the requests named with what they have waited."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#watch .waited:not([hidden])")].map(line => [line.querySelector("b").textContent,
        Object.fromEntries([...line.querySelectorAll(".waiter")].map(w => [w.querySelector(".chip").textContent, w.lastChild.textContent]))]))"""  # noqa: E501
    )


@pytest.mark.slow
def test_the_other_policy_stands_below_on_the_same_clock_and_in_the_link(open_page):
    page = open_page(hash="run=gpt2-six&step=200", detail="simple")
    assert page.inner_text(".beside-button") == "vs. static"
    page.click(".beside-button")
    settled(page, ON)
    assert page.evaluate(
        "[inflight.run.header.policy, inflight.frame.event.step, inflight.clock]"
    ) == ["continuous", 200, True]
    assert page.evaluate("inflight.lanes.scale.per === inflight.lanes.other.scale.per")
    expect(page.locator(".pair-says")).to_contain_text(
        "The same six requests: done in 0.9 s with continuous instead of 1.6 s with static."
    )
    page.evaluate("inflight.address.write()")
    shared = page.evaluate("location.hash")
    assert "beside=static" in shared and "axis" not in shared
    # all have been served here: what they waited is what the metrics say
    page.keyboard.press("End")
    settled(page, "inflight.index === inflight.run.length - 1")
    runs = load(RECORDED / "gpt2-six").comparison.runs
    trace = runs["continuous"].trace
    times = zip("ABCDEF", request_times(trace).values(), strict=True)
    queued = {letter: time.first_pass - time.arrival for letter, time in times}
    said = {
        policy: {letter: float(s.split()[0]) for letter, s in who.items()}
        for policy, who in waited(page).items()
    }
    totals = page.evaluate(
        "[...document.querySelectorAll('#watch .waited:not([hidden])')].map((e) => parseFloat(e.lastChild.textContent))"  # noqa: E501
    )
    # as a reader adds them up
    assert sorted(totals) == pytest.approx(sorted(sum(who.values()) for who in said.values()))
    assert said["continuous"] == pytest.approx(
        {letter: s for letter, s in queued.items() if s >= 0.005}, abs=0.006
    )
    now = trace.events[-1].t_end - trace.events[0].t_start
    # still at the barrier
    assert said["static"] == pytest.approx(dict.fromkeys("DEF", now), abs=0.011)
    page.keyboard.press("s")
    settled(page, "!inflight.beside.on && inflight.entry.name === 'gpt2-six'")
    assert page.evaluate("inflight.clock") is False and not waited(page)
    other = open_page(hash=shared[1:], size="phone")
    settled(other, ON)
    assert other.evaluate("inflight.frame.event.step") == 200 and set(waited(other)) == {
        "continuous",
        "static",
    }
    boxes = [other.locator(f"#watch {s}").bounding_box() for s in (".scrubber", ".other-lanes")]
    assert all(
        box["height"] > 50 and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes
    )
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]


@pytest.mark.slow
def test_where_more_have_waited_than_are_named_the_sum_is_the_exact_one(open_page):
    page = open_page(hash="run=poisson-32&step=60", size="phone")
    assert (
        page.evaluate(
            """(() => { const { x, y, height } = document.querySelector("#watch .beside-button").getBoundingClientRect();
        return [-6, height + 17].map((dy) => document.elementFromPoint(x + 9, y + dy).className); })()"""  # noqa: E501
        )
        == ["mini beside-button"] * 2
    ), "a finger finds 44 pixels"
    page.click(".beside-button")
    settled(page, ON)
    for step in range(60, 127, 6):
        page.evaluate("(step) => inflight.seekStep(step)", step)
        settled(page, "(step) => inflight.frame.event.step === step", step)
        said, exact = page.evaluate(
            """() => { const { run, frame, pair } = inflight, below = pair.other.run;
            const now = frame.event.tEnd - run.events[0].tStart + below.events[0].tStart;
            const i = below.events.filter((e) => e.tStart <= now + 1e-9).length - 1;
            const by = Math.min(now, below.events[i].tEnd);
            const { waitedSoFar } = inflightModules["run/delays.js"];
            return [document.querySelector("#watch .waited.theirs").lastChild.textContent,
            below.requests.reduce((sum, r) => sum + waitedSoFar(below, r, i, by), 0)]; }"""
        )
        assert said == f"{exact:.2f} s in all", step


def test_where_nothing_was_recorded_and_no_engine_is_there_nothing_is_offered(visit):
    page = visit(replay=replay(Trace.load(TRACES / "three-short.jsonl")))
    assert page.locator(".beside-button").is_hidden()
    page.keyboard.press("s")
    assert page.evaluate("inflight.pair.members.length") == 0


@pytest.mark.slow
def test_an_engine_runs_both_where_nothing_was_recorded(open_page):
    page = open_page(hash="run=verses-continuous&step=3", detail="full")
    page.click(".beside-button")
    settled(page, ON)
    assert page.evaluate("inflight.pair.members.map(m => m.run.header.policy)") == [
        "continuous",
        "static",
    ]
    # where it was, by steps: what each ran for, and who has waited how many of them
    assert page.evaluate(
        "[inflight.run.header.policy, inflight.frame.event.step, inflight.clock]"
    ) == ["continuous", 3, False]
    lengths = page.evaluate("inflight.pair.members.map(m => m.run.length)")
    expect(page.locator(".pair-says")).to_have_text(
        f"The same requests, run again: {lengths[0]} steps with continuous,"
        f" {lengths[1]} steps with static."
    )
    boxes = [page.locator(f"#watch {s}").bounding_box() for s in (".scrubber", ".other-lanes")]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]
    page.keyboard.press("End")
    settled(page, "inflight.index === inflight.run.length - 1")
    waits = page.evaluate(
        "inflight.pair.members.map(({ run }) => Object.fromEntries(run.requests.map(r =>"
        " [r.letter, r.waits.reduce((n, [from, to]) => n + Math.min(to, inflight.index) - from + 1,"
        " 0)]).filter(([, n]) => n > 0)))"
    )
    said = waited(page)
    for policy, expected in zip(("continuous", "static"), waits, strict=True):
        assert {
            letter: int(words.split()[0]) for letter, words in said.get(policy, {}).items()
        } == expected
    assert waits[1]
    assert (
        page.locator("#watch .source").inner_text().startswith("Live")
        or page.evaluate("inflight.run.header.source") == "live"
    )


def test_runs_about_time_open_on_the_axis_of_time_until_somebody_chooses(open_page):
    page = open_page(hash="run=long-prompt-arrives", detail="full")
    assert page.evaluate("inflight.clock") is True
    page.evaluate("inflight.open(inflight.options.catalogue.find(e => e.name === 'three-short'))")
    settled(page, "inflight.entry.name === 'three-short' && !inflight.clock")
    page.keyboard.press("c")
    page.keyboard.press("c")
    page.evaluate("inflight.open(inflight.options.catalogue.find(e => e.name === 'decode-first'))")
    settled(page, "inflight.entry.name === 'decode-first'")
    assert page.evaluate("inflight.clock") is False
    page.evaluate("inflight.address.write()")
    assert "axis=steps" in page.evaluate("location.hash")
