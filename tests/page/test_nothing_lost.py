"""Nothing of a visitor is lost when their page is loaded again: what they run, what they have
typed, and nothing of another tab.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from visualizer.page.bundle import script
from worlds.browser import open_editor, settled
from worlds.pyodide import engine_files  # noqa: F401
from worlds.static_host import hosted

pytestmark = pytest.mark.slow
RUN = ".inflight:not(.compare) .drawer .run-button"
CANCEL = ".inflight:not(.compare) .drawer .cancel-button"
PROMPTS = ".inflight:not(.compare) .request-rows > .request-row > textarea"
OWN = "Wherefore art thou silent"
ASKED = "inflight.run.header.workload.requests[0].prompt"
ENDED = f"!inflight.running && inflight.live.ended && {ASKED} === '{OWN}'"
# in the turn in which the run is one of this visit
ADDRESS_OF_RUN = """new Promise((done) => {
  const look = () => (inflight.entry?.spec ? done(location.hash) : setTimeout(look));
  look();
})"""


@pytest.fixture(scope="module")
def site(site_folder):
    with hosted(site_folder) as host:
        yield host


@pytest.fixture
def opened(request, site, visit):
    """`opened(hash)`: a page whose engine is in the visitor's tab, on a site of files unless a test
    says otherwise.
    """
    on_a_server = getattr(request, "param", "") == "a server's page"
    url = request.getfixturevalue("page_url") if on_a_server else site.url
    return lambda hash="run=short-and-long": visit(url=url, hash=hash, in_tab=True)


WHEREVER = pytest.mark.parametrize("opened", ["a site of files", "a server's page"], indirect=True)


def type_own(page, tokens=6):
    open_editor(page)
    page.locator(PROMPTS).first.fill(OWN)
    for row in page.locator(".request-row [aria-label='New tokens']").all():
        row.fill(str(tokens))
    page.select_option(".inflight:not(.compare) [name=policy]", "sequential")


def reload(page):
    page.reload()
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")


def at_work(page):
    settled(page, f"inflight.running && {ASKED} === '{OWN}' && inflight.run.length > 3")


def has_typed(page, text):
    open_editor(page)
    expect(page.locator(PROMPTS).first).to_have_value(text)


@WHEREVER
def test_a_run_goes_on_after_a_reload_and_after_another(opened):
    page = opened()
    type_own(page, tokens=200)
    page.click(RUN)
    for _ in range(2):
        at_work(page)
        reload(page)
    at_work(page)
    has_typed(page, OWN)
    page.click(CANCEL)
    settled(page, "!inflight.running")
    assert page.evaluate("sessionStorage['inflight-run']") is None


def test_what_was_run_comes_back_at_once_and_what_is_typed_stays_beside_it(opened):
    page = opened()
    type_own(page)
    page.click(RUN)
    assert "spec=" in page.evaluate(ADDRESS_OF_RUN)  # a page that is reloaded now finds it
    settled(page, ENDED)
    reload(page)
    # another run is drawn, and the address written, while this one is prepared
    page.evaluate("new Promise((done) => setTimeout(done, 600))")
    reload(page)
    settled(page, f"{ENDED} && location.hash.includes('spec=')")
    open_editor(page)
    page.locator(PROMPTS).first.fill("Not yet run")
    reload(page)
    settled(page, ENDED)
    has_typed(page, "Not yet run")
    expect(page.locator(RUN)).to_have_text("Run these changes")


@WHEREVER
def test_typed_and_never_run(opened):
    page = opened()
    type_own(page)
    for _ in range(2):
        reload(page)
    assert page.evaluate("inflight.entry.name") == "short-and-long"
    page.locator(".toast").get_by_role("button", name="Edit requests").click()
    expect(page.locator(PROMPTS).first).to_have_value(OWN)
    expect(page.locator(".drawer .run-message").first).to_contain_text("These are your edits")
    page.get_by_role("button", name="Show its requests").click()
    reload(page)
    open_editor(page)
    expect(page.locator(PROMPTS)).to_have_count(12)


def test_each_tab_has_its_own(opened):
    one = opened()
    type_own(one)
    other = one.context.new_page()
    other.goto(one.url)
    other.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    open_editor(other)
    other.locator(PROMPTS).first.fill("Of the other tab")
    other.reload()
    other.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    has_typed(other, "Of the other tab")
    one.bring_to_front()
    reload(one)
    has_typed(one, OWN)


def test_requests_too_long_for_an_address(opened):
    page = opened()
    type_own(page, tokens=2)
    page.evaluate(
        """() => {
            const spec = inflight.editor.spec(), [request] = spec.workload.requests;
            const noise = () => [...crypto.getRandomValues(new Uint8Array(60))].join(' ');
            spec.workload.requests = Array.from({ length: 60 }, (_, n) => ({
                ...request, id: `n${n}`, prompt: n ? noise() : request.prompt, arrival: n }));
            inflight.editor.edit(spec);
        }"""
    )
    page.click(RUN)
    settled(page, ENDED)
    assert page.evaluate("inflight.entry.spec") is None
    reload(page)
    has_typed(page, OWN)
    expect(page.locator(PROMPTS)).to_have_count(60)


def test_code_that_another_tab_wrote_meanwhile_stays(site, fresh):
    page = f"<script>{script('write/own_code.js')}</script>"
    (site.folder / "own.html").write_text(f"<!doctype html><title>Code</title>{page}")
    one = fresh()
    other = one.context.new_page()
    for tab in (one, other):
        tab.goto(f"{site.url}own.html")
        tab.evaluate("window.own = new inflightModules['write/own_code.js'].OwnCode()")
    one.evaluate("own.keep('first', { code: 'a' })")
    other.evaluate("own.keep('second', { code: 'b' })")
    one.evaluate("own.keep('first', { done: true })")
    other.reload()
    kept = "(own => ['first', 'second'].map(task => [own.of(task), own.isDone(task)]))"
    own = "new inflightModules['write/own_code.js'].OwnCode()"
    assert other.evaluate(f"{kept}({own})") == [["a", True], ["b", False]]
