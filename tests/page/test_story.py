"""The tabs as one story: what if, race this run, a moment of the race in Watch; on a projector too, and for those who read with other means."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe


@pytest.fixture
def open_page(visit, page_url):
    return lambda **how: visit(url=f"{page_url}/", **how)


def compared(page) -> None:
    page.wait_for_function("() => window.inflightCompare && inflightCompare.doc", timeout=60_000)


def test_what_if_runs_again_with_one_setting_changed_and_shows_where_they_part(open_page):
    page = open_page(hash="run=three-lengths&step=3")
    before = page.evaluate("[inflight.run.length, inflight.run.numLanes]")
    page.click(".what-button")
    page.locator(".menu button").first.click()
    page.wait_for_selector(".toast:not([hidden]) .mini", timeout=120_000)
    said = page.inner_text(".toast")
    changed = page.evaluate("[inflight.run.length, inflight.run.numLanes]")
    assert changed[1] != before[1] and f"{changed[0]} steps instead of {before[0]}" in said
    assert page.evaluate("inflight.visit.runs.length") == 1
    page.click(".runs-button")
    assert "instead of" in page.inner_text(".visit-run")
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('.toast .mini').click()")
    page.wait_for_function("(n) => inflight.run.length === n", arg=before[0])
    assert page.evaluate("[inflight.entry.name, inflight.frame.event.step]") == ["three-lengths", 3]


def test_a_run_is_raced_and_a_moment_of_the_race_opens_in_watch(open_page):
    page = open_page(hash="run=gpt2-six&step=3")
    page.click(".race-button")
    compared(page)
    page.wait_for_function("() => inflightCompare.race.playing && inflightCompare.doc.name === 'gpt2-six'")
    page.evaluate("(inflightCompare.race.toggle(false), inflightCompare.race.setClock(false), inflightCompare.race.seek(120.5))")
    page.click("[data-racer=static] .watch-button")
    page.wait_for_function("() => document.documentElement.dataset.part === 'watch' && inflight.run.header.policy === 'static'")
    assert page.evaluate("inflight.frame.event.step") == 120
    page.click("#watch .share-button")
    assert "recorded for a race" in page.inner_text("#watch .card[open]")


def test_on_a_projector_the_race_fills_the_screen_and_there_is_a_way_out(open_page):
    page = open_page(size="presenter", hash="part=compare&comparison=equal-lengths")
    compared(page)
    page.click(".present-button")
    boxes = page.evaluate(
        """[".race-panel", ".transport", ".leave-button", ".headline"].map(s => document.querySelector(".compare " + s).getBoundingClientRect().toJSON())"""
    )
    assert all(b["left"] >= 0 and b["right"] <= 1920 and b["top"] >= 0 and b["bottom"] <= 1081 and b["height"] > 0 for b in boxes)
    assert boxes[0]["height"] > 600
    small = page.evaluate("""[...document.querySelectorAll(".compare .page :is(h4, p, .legend, output)")].filter(e => e.offsetParent && e.textContent.trim())
        .map(e => [e.className, parseFloat(getComputedStyle(e).fontSize)]).filter(([, size]) => size < 18)""")
    assert small == []
    page.click(".compare .leave-button")
    assert not page.evaluate("inflightCompare.presenter")
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    assert not page.evaluate("inflightCompare.presenter")


@pytest.mark.parametrize("how", [{}, {"size": "phone"}])
def test_compare_has_no_serious_violation_of_accessibility(open_page, how):
    page = open_page(hash="part=compare", **how)
    compared(page)
    page.wait_for_function("() => document.getAnimations().every(a => a.playState !== 'running')")
    found = Axe().run(page).response["violations"]
    assert not [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found if v["impact"] in ("serious", "critical")]
