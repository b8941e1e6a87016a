"""The tabs together: what if, race this run, a moment of the race in Watch; on a projector too, and
for those who read with other means.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from worlds.axe import serious
from worlds.browser import settled


@pytest.fixture
def open_page(visit, page_url):
    return lambda **how: visit(url=f"{page_url}/", **how)


def compared(page) -> None:
    settled(page, "window.inflightCompare?.doc")


@pytest.mark.slow
def test_compare_says_that_it_is_opening_and_back_leads_to_watch(open_page):
    page = open_page(hash="run=gpt2-six&step=6")
    page.evaluate(
        """() => { const { fetch } = window, held = new Promise(go => { window.letGo = go; });
        window.fetch = async (...asked) => { await held; return fetch(...asked); }; }"""
    )
    page.get_by_role("button", name="Compare", exact=True).click()
    empty = page.locator(".compare .empty-state")
    expect(empty).to_have_text("Opening the comparison …")
    page.evaluate("letGo()")
    expect(empty).to_be_hidden()
    expect(page).to_have_url(re.compile("part=compare&comparison="))
    page.go_back()
    expect(page.locator("html")).to_have_attribute("data-part", "watch")
    assert page.evaluate("[inflight.entry.name, inflight.frame.event.step]") == ["gpt2-six", 6]


@pytest.mark.slow
def test_what_if_stands_on_the_playhead_and_shows_both_runs_where_they_part(open_page):
    page = open_page(hash="run=three-lengths&step=3")
    before = page.evaluate(
        "[inflight.run.length, inflight.run.numLanes,"
        " document.querySelector('.scrubber').clientHeight]"
    )
    what, head = (
        page.locator(f"#watch {s}").bounding_box() for s in (".what-button", ".canvas > .playhead")
    )
    assert abs(what["x"] - head["x"]) < 24 and abs(what["y"] - head["y"]) < 12
    page.click(".what-button")
    message = page.locator(".what-message")
    message.evaluate("el => { el.textContent = 'Refused.'; }")
    expect(message).to_be_in_viewport(ratio=0.9)  # though the settings above it do not fit
    page.get_by_role("button", name="1 lane instead of 3").click()
    settled(page, "inflight.pair.members.length === 2")
    lanes, step = page.evaluate("[inflight.run.numLanes, inflight.frame.event.step]")
    assert lanes != before[1] and step == page.evaluate("inflight.pair.step")
    assert page.inner_text(".sentence").startswith(f"Fork at step {step}: with ")
    heights = page.evaluate(
        "['.scrubber', '.other-lanes'].map(s => document.querySelector(s).clientHeight)"
    )
    assert min(heights) >= before[2] - 6 and page.locator("[role=toolbar]:visible").count() == 1
    assert page.evaluate("inflight.lanes.scale.per === inflight.lanes.other.scale.per")
    page.evaluate("inflight.address.write()")
    shared = page.evaluate("location.hash")
    assert "what=max_num_seqs%3A1" in shared and page.evaluate("inflight.address.hindrance") is None
    other = open_page(hash=shared[1:])
    settled(other, "inflight.pair.members.length === 2")
    assert other.evaluate("[inflight.run.numLanes, inflight.frame.event.step]") == [lanes, step]
    other.close()
    page.keyboard.press("x")
    settled(page)
    assert page.evaluate("[inflight.run.numLanes, inflight.frame.event.step]") == [before[1], step]
    assert "side=before" in page.evaluate("inflight.address._hash()")
    page.click(".other-lanes", position={"x": 400, "y": 40})
    assert page.evaluate("inflight.run.numLanes") == lanes
    page.evaluate("inflight.bar.chips.length && document.querySelector('.runs-button').click()")
    assert "instead of" in page.inner_text(".visit-run")
    page.keyboard.press("Escape")
    page.click(".pair-close")
    settled(page)
    assert page.evaluate(
        "[inflight.entry.name, inflight.frame.event.step, inflight.run.length]"
    ) == [
        "three-lengths",
        3,
        before[0],
    ]


def test_the_leak_acts_on_watchs_own_mask_and_marks_the_texts_that_change(open_page):
    page = open_page(hash="run=three-lengths&step=3")
    honest = page.evaluate("inflight.run.texts")
    page.click(".panel.mask .tools >> text=Leak")
    settled(page, "inflight.pair.leaks")
    assert page.evaluate(
        "[document.documentElement.dataset.part || 'watch', inflight.frame.event.step, "
        "inflight.run.header.leak]"
    ) == ["watch", 3, True]
    assert page.locator(".legend-leak").is_visible() and "keys" in page.inner_text(".pair-says")
    leaked = page.evaluate("inflight.run.texts")
    assert leaked["prompt"] == honest["prompt"] and leaked["output"] != honest["output"]
    page.keyboard.press("End")
    settled(page, "inflight.drawn === inflight.run.length - 1")
    rows = page.locator(".texts > .said:visible").filter(has=page.locator(".changed:visible"))
    assert rows.count() and all("with the mask:" in text for text in rows.all_inner_texts())
    assert all(rows.nth(i).locator(".prompt").inner_text().strip() for i in range(rows.count()))
    page.click("#watch .share-button")
    assert "leaks on purpose" in page.inner_text("#watch .card[open]")
    page.keyboard.press("Escape")
    page.click(".panel.mask .tools >> text=Leak")
    assert page.evaluate("[inflight.run.header.leak ?? false, inflight.run.texts.output]") == [
        False,
        honest["output"],
    ]


def test_a_run_is_raced_and_a_moment_of_the_race_opens_in_watch_whole(open_page):
    page = open_page(hash="run=gpt2-six&step=3")
    page.click(".race-button")
    compared(page)
    page.wait_for_function(
        "() => inflightCompare.race.playing && inflightCompare.doc.name === 'gpt2-six'"
    )
    page.evaluate(
        "(inflightCompare.race.toggle(false), inflightCompare.race.setClock(false),"
        " inflightCompare.race.seek(120.5))"
    )
    page.click("[data-racer=static] .watch-button")
    settled(
        page,
        "document.documentElement.dataset.part === 'watch' && inflight.run.header.policy ==="
        " 'static'",
    )
    assert page.evaluate("inflight.frame.event.step") == 120
    assert page.evaluate(
        "[inflight.frame.caption.say.length > 0, inflight.run.totals.length > 0]"
    ) == [True, True]
    assert (
        page.locator(".why-button").is_visible()
        and page.locator(".texts > .said:visible .prompt").first.inner_text().strip()
    )


@pytest.mark.slow
def test_a_chart_of_the_served_page_is_taken_away_as_a_picture_of_twice_its_size(open_page):
    page = open_page(hash="part=compare&comparison=equal-lengths")
    compared(page)
    chart = page.locator("[data-chart=total_time]")
    with page.expect_download() as download:
        chart.get_by_role("button", name="PNG").click()
    assert download.value.suggested_filename == "inflight-equal-lengths-total-time.png"
    taken = Path(download.value.path()).read_bytes()
    assert taken.startswith(b"\x89PNG") and [
        int.from_bytes(taken[i : i + 4]) for i in (16, 20)
    ] == [2400, 1350]


def test_on_a_projector_the_race_fills_the_screen_and_there_is_a_way_out(open_page):
    page = open_page(size="presenter", hash="part=compare&comparison=equal-lengths")
    compared(page)
    page.click(".present-button")
    boxes = page.evaluate(
        """[".race-panel", ".transport", ".leave-button", ".headline"].map(s => document.querySelector(".compare " + s).getBoundingClientRect().toJSON())"""  # noqa: E501
    )
    assert all(
        b["left"] >= 0
        and b["right"] <= 1920
        and b["top"] >= 0
        and b["bottom"] <= 1081
        and b["height"] > 0
        for b in boxes
    )
    assert boxes[0]["height"] > 600
    small = page.evaluate(
        """[...document.querySelectorAll(".compare .page :is(h4, p, .legend, output)")].filter(e => e.offsetParent && e.textContent.trim())
        .map(e => [e.className, parseFloat(getComputedStyle(e).fontSize)]).filter(([, size]) => size < 18)"""  # noqa: E501
    )
    assert small == []
    page.click(".compare .leave-button")
    assert not page.evaluate("inflightCompare.presenter")
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    assert not page.evaluate("inflightCompare.presenter")


@pytest.mark.slow
def test_no_button_of_compare_is_cut_off_and_the_open_comparison_is_in_view(open_page):
    page = open_page(hash="part=compare&comparison=where-padding-costs")
    compared(page)
    for size in [(1440, 900), (1366, 768), (1024, 768), (768, 1024), (844, 390)]:
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.evaluate("(inflightCompare.show(inflightCompare.doc, null), 0)")
        cut = page.evaluate(
            """[...document.querySelectorAll('.compare .top :is(button, select), .compare .transport > *, .compare .presets .on')]
            .filter(b => b.getClientRects().length).map(b => [b.textContent, b.getBoundingClientRect(), b.closest('.top .presets')?.getBoundingClientRect().right ?? innerWidth])
            .filter(([, r, end]) => r.left < 0 || r.right > end + 1).map(([name]) => name)"""  # noqa: E501
        )
        shown = page.evaluate(
            "[...document.querySelectorAll('.compare .presets .on')].filter(b =>"
            " b.getClientRects().length).length"
        )
        assert (cut, shown) == ([], 1), size


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"size": "phone"}])
def test_compare_has_no_serious_violation_of_accessibility(open_page, how):
    page = open_page(hash="part=compare", **how)
    compared(page)
    assert serious(page) == []
