"""The site whose engine runs in its visitors' tabs, on hosts and in browsers as they are: a run is
computed, or one sentence says why not.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from worlds.browser import PATIENCE, SIZES, executable, open_editor, settled
from worlds.static_host import hosted

pytestmark = pytest.mark.slow

RUN = "one-joins-two"
_SEEN = "try { localStorage.setItem('inflight-opening', '1'); } catch {}"


@pytest.fixture
def host(site_folder):
    with hosted(site_folder) as found:
        yield found


def opened(page, url):
    """The player in this page, on a recorded run."""
    page.set_default_timeout(PATIENCE)
    page.add_init_script(_SEEN)
    page.problems = []
    page.on("pageerror", lambda e: page.problems.append(str(e)))
    page.on(
        "request",
        lambda r: (
            None if r.url.startswith((url, "data:", "blob:")) else page.problems.append(r.url)
        ),
    )
    page.goto(f"{url}watch.html#run={RUN}")
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    return page


def press_run(page):
    if not page.get_by_role("button", name="Run", exact=True).is_visible():
        open_editor(page)
    page.get_by_role("button", name="Run", exact=True).click()


def ran(page):
    """Wait until a run of this tab is on screen, to its end: its tokens are those recorded."""
    settled(
        page,
        "!inflight.live.going && inflight.live.ended && inflight.run === inflight.live.ended.run",
    )
    is_as_recorded(page)


def is_as_recorded(page):
    saved = page.evaluate(
        "inflight.engines.call('export', 'jsonl', inflight.entry.id).then(({ url }) =>"
        " fetch(url)).then(f => f.text())"
    )
    trace = Trace.from_lines(saved.splitlines())
    assert (
        "WebAssembly" in trace.header.device_name
        and trace.outputs == Trace.load(TRACES / f"{RUN}.jsonl").outputs
    )
    assert not page.problems, page.problems


def test_under_a_path_of_its_own_on_a_host_that_knows_no_content_type_but_that_of_scripts(
    site_folder, fresh
):
    """And whose form is not filled yet when it is opened."""
    with hosted(site_folder, "/team/inflight") as host:
        host.kinds = {
            ".gz": "text/html",
            ".json": "text/plain",
            ".wasm": "text/plain",
            ".mjs": "application/octet-stream",
        }
        page = opened(fresh(), host.url)
        host.held = {"engine/offers.js"}
        page.get_by_role("button", name="Edit", exact=True).click()
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
        host.held = set()
        press_run(page)
        ran(page)
        assert all(
            path.startswith("/team/inflight/") for path in host.asked if path != "/favicon.ico"
        )


def test_a_host_that_has_packed_files_unpacked_on_the_way_to_a_phone_on_a_slow_network(host, fresh):
    width, height = SIZES["phone"]
    host.packed = {".gz"}
    page = opened(
        fresh(viewport={"width": width, "height": height}, is_mobile=True, has_touch=True), host.url
    )
    host.held = {"weights.gz"}
    press_run(page)
    bar = page.locator(".engine-bar")
    expect(bar).to_contain_text("Fetching the model shakespeare-bpe")
    box = bar.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    host.held = set()
    ran(page)


def test_reloading_the_page_while_the_engine_is_fetched(host, fresh):
    page = opened(fresh(), host.url)
    host.held = {"pyodide.asm.wasm.gz"}
    press_run(page)
    expect(page.locator(".engine-bar")).to_contain_text("Fetching")
    page.reload()
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    host.held = set()
    press_run(page)
    ran(page)


def test_two_tabs_at_once_of_which_one_goes_away_and_comes_back(host, fresh):
    one = opened(fresh(), host.url)
    other = opened(one.context.new_page(), host.url)
    press_run(one)
    press_run(other)
    for page in (one, other):
        page.bring_to_front()  # a tab behind another one is not drawn
        ran(page)
    # the address names the run a moment later
    settled(page, "location.hash.includes('spec=')")
    page.goto(f"{host.url}index.html")
    page.go_back()
    # loaded anew, the page runs what its address describes
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    page.wait_for_function("() => inflight.entry?.spec && !inflight.live.going", polling=100)
    is_as_recorded(page)


def test_an_address_without_tls(host, browser_with):
    """Of a class on one network: `http://` and no loopback, where a browser has no cache to
    offer.
    """
    page = opened(
        browser_with("--host-resolver-rules=MAP class.test 127.0.0.1").new_page(),
        host.url.replace("127.0.0.1", "class.test"),
    )
    assert not page.evaluate("isSecureContext")
    press_run(page)
    ran(page)


def test_a_browser_that_refuses_all_storage(host, tmp_path, chromium):
    refusing = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(refusing))
    context = chromium.browser_type.launch_persistent_context(
        str(tmp_path), executable_path=executable(has_profile=True), args=["--no-sandbox"]
    )
    page = opened(context.new_page(), host.url)
    assert "SecurityError" in page.evaluate("caches.open('a').catch(String)")
    press_run(page)
    ran(page)
    context.close()


def test_a_processor_without_simd(host, browser_with):
    page = opened(browser_with("--js-flags=--no-enable-sse4-1").new_page(), host.url)
    press_run(page)
    expect(
        page.get_by_text(
            "This browser cannot run the engine: WebAssembly with SIMD is missing or turned off."
        )
    ).to_be_visible()
    assert not [path for path in host.asked if path.endswith(".gz")], (
        "nothing is fetched for nothing"
    )


@pytest.fixture
def browser_with(chromium):
    """`browser_with(flag)`: a Chromium started with it."""
    browsers = []

    def start(flag):
        browsers.append(
            chromium.browser_type.launch(executable_path=executable(), args=["--no-sandbox", flag])
        )
        return browsers[-1]

    yield start
    for browser in browsers:
        browser.close()
