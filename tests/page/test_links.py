"""Links: what the page copies shows the same in a fresh browser, and where no link can exist it
says so.
"""

from __future__ import annotations

import pytest

from visualizer.documents.catalogue import TRACES
from worlds.browser import settled

# a frame without the permission
DENIED = "void (navigator.clipboard.writeText = () => Promise.reject(new Error()))"


@pytest.fixture
def open_page(visit, page_url):
    return lambda **how: visit(url=f"{page_url}/", **how)


def shared(page, part: str = "#watch") -> str:
    """What Share shows where it may not copy; the menu has it where the bar is full."""
    page.evaluate(DENIED)
    button = page.locator(f"{part} .share-button")
    if button.is_visible():
        button.click()
    else:
        page.locator(f"{part} .more-button").click()
        page.click("[role=menuitem] >> text=Copy link")
    link = page.locator(".card[open] .link-field").input_value()
    page.keyboard.press("Escape")
    return link


def compared(page) -> None:
    settled(page, "window.inflightCompare && inflightCompare.doc")


@pytest.mark.slow
def test_a_link_to_a_moment_of_a_comparison_opens_it_in_its_theme(open_page):
    page = open_page(hash="part=compare&comparison=equal-lengths")
    compared(page)
    assert page.evaluate("inflightCompare.doc.name") == "equal-lengths"
    page.evaluate(
        "(inflightCompare.race.setClock(false), inflightCompare.race.seek(7),"
        " inflight.setTheme('dark'))"
    )
    page.click(".who >> text=dynamic")
    link = shared(page, ".inflight-compare")
    again = open_page(hash=link.split("#")[1], color_scheme="light")
    compared(again)
    settled(again, "inflightCompare.race.now === 7 && !inflightCompare.race.clock")
    seen = (
        "[inflightCompare.doc.name, inflightCompare.palette.dark, inflightCompare.race.racers.map(r"
        " => r.name).join()]"
    )
    assert again.evaluate(seen) == page.evaluate(seen)
    settled(
        again,
        "location.hash.includes('comparison=equal-lengths') && location.hash.includes('at=7')",
    )
    # the last step of the first has just ended: so it has behind the link
    page.evaluate(
        "(({ race }) => { race.setClock(true); race.seek(race.racers[0].seconds); })"
        "(inflightCompare)"
    )
    settled(page)
    number = page.locator(".racer-now").first.inner_text()
    ended = open_page(hash=shared(page, ".inflight-compare").split("#")[1])
    compared(ended)
    settled(ended, "inflightCompare.race.now > 0 && inflightCompare.race.clock")
    assert ended.locator(".racer-now").first.inner_text() == number
    assert ended.locator(".final").first.is_visible()


@pytest.mark.slow
def test_a_link_to_a_step_opens_its_view_and_theme(open_page):
    page = open_page(hash="run=kv-pressure&step=30&axis=time", color_scheme="dark")
    page.evaluate(
        "(inflight.pin(inflight.frame.lanes[1].request), inflight.mask.zoom = {view: [0, 2, 0,"
        " 40]}, inflight.redraw())"
    )
    link = shared(page)
    again = open_page(hash=link.split("#")[1], color_scheme="light")
    seen = (
        "[inflight.entry.name, inflight.frame.event.step, inflight.pinned.letter,"
        " inflight.mask.zoom.view, inflight.palette.dark, inflight.clock]"
    )
    assert (
        again.evaluate(seen)
        == page.evaluate(seen)
        == ["kv-pressure", 30, "B", [0, 2, 0, 40], True, True]
    )


@pytest.mark.slow
def test_what_no_link_can_show_is_said_and_offered_as_a_file(open_page):
    page = open_page()
    page.click(".export-button")
    with page.expect_file_chooser() as chosen:
        page.get_by_text("Open a trace").click()
    chosen.value.set_files(TRACES / "chunk-7-by-4.jsonl")
    settled(page, "inflight.run.header.source === 'uploaded'")
    settled(page, "!location.hash.includes('step=') && !location.hash.includes('run=')")
    page.evaluate("inflight.seek(3)")
    page.click("#watch .share-button")
    card = page.locator(".card[open]")
    assert "opened from a file" in card.inner_text() and not card.locator(".link-field").count()
    with page.expect_download() as download:
        card.get_by_text("Save it as one page").click()
    assert (
        download.value.suggested_filename
        == f"inflight-uploaded-step-{page.evaluate('inflight.frame.event.step')}.html"
    )
    html = download.value.path().read_text(encoding="utf-8")
    page.route(
        "http://saved.test/", lambda route: route.fulfill(body=html, content_type="text/html")
    )
    saved = page.context.new_page()
    saved.set_content(html)
    settled(saved, "window.inflight && inflight.drawn >= 0")
    assert saved.evaluate("inflight.index") == 3


@pytest.mark.slow
def test_a_run_that_arrives_in_seconds_is_shared_in_seconds(open_page):
    page = open_page()
    page.click(".edit-button")
    page.wait_for_selector(".request-rows > *")
    page.select_option(".preset-select", "nanogpt-chunked-4")
    page.select_option("[name=arrival_unit]", "s")
    page.click(".run-button")
    settled(page, "!inflight.running && inflight.entry && inflight.entry.spec")
    link = shared(page)
    again = open_page(hash=link.split("#")[1])
    settled(again, "inflight.run.header.source === 'live' && !inflight.running")
    assert again.evaluate("inflight.run.header.workload.arrival_unit") == "s"
    # another run's address has nothing of it
    again.evaluate("inflight.open(inflight.options.catalogue[0])")
    settled(again, "location.hash.includes('run=') && !location.hash.includes('spec=')")


@pytest.mark.slow
def test_a_contender_opened_in_watch_has_a_link_of_its_own(open_page):
    page = open_page(hash="part=compare&comparison=equal-lengths")
    compared(page)
    page.evaluate("(inflightCompare.race.setClock(false), inflightCompare.race.seek(7))")
    page.click("[data-racer=static] .watch-button")
    settled(page, "location.hash.includes('racer=static')")
    page.evaluate("inflight.pin(inflight.frame.lanes[1].request)")
    link = shared(page)
    again = open_page(hash=link.split("#")[1])
    settled(again, "inflight.entry && inflight.entry.racer === 'static'")
    settled(again)
    seen = (
        "[inflight.run.header.policy, inflight.frame.event.step, inflight.pinned.letter,"
        " inflight.run.texts.output, document.documentElement.dataset.part || 'watch']"
    )
    assert again.evaluate(seen) == page.evaluate(seen)
    assert again.evaluate("[inflight.frame.event.step, inflight.run.header.policy]") == [
        7,
        "static",
    ]
    # followed without a new page
    again.evaluate("location.hash = '#comparison=equal-lengths&racer=dynamic&step=3'")
    settled(again, "inflight.run.header.policy === 'dynamic' && inflight.frame?.event.step === 3")
    again.click("#watch .race-button")  # and it leads back to where it races
    compared(again)
    again.wait_for_function(
        "() => inflightCompare.doc.name === 'equal-lengths' && inflightCompare.race.playing"
    )


def test_a_link_to_nobody_says_so(open_page):
    page = open_page(hash="comparison=equal-lengths&racer=nobody")
    settled(
        page,
        "document.querySelector('#watch .toast').textContent.includes('nobody in it is called"
        " nobody')",
    )
    assert page.evaluate("inflight.entry.name") == page.evaluate(
        "inflight.options.catalogue[0].name"
    )
