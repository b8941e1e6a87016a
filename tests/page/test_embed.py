"""Figures in pages of other sites: a frame that shows chosen views of a recorded run, and the code
that makes one.
"""

from __future__ import annotations

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from worlds.browser import settled

MOST = 150_000  # bytes that a frame takes over the network, its run included


@pytest.fixture
def elsewhere(tmp_path):
    """Another site, with one page that holds the code."""
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()

        def page(code: str) -> str:
            (tmp_path / "page.html").write_text(
                f"<!doctype html><title>Elsewhere</title><p>Look:</p>{code}", encoding="utf-8"
            )
            return f"http://127.0.0.1:{server.server_address[1]}/page.html"

        yield page
        server.shutdown()


def test_the_code_that_is_copied_shows_the_same_step_in_a_page_of_another_site(
    visit, page_url, elsewhere
):
    page = visit(f"{page_url}/", hash="run=gpt2-six&step=6")
    settled(page, "inflight.address.embedCode")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".share-button")
    page.get_by_role("button", name="Copy embed code").click()
    expect(page.locator(".toast")).to_contain_text("Code copied")
    code = page.evaluate("navigator.clipboard.readText()")
    assert (
        code.startswith("<iframe ")
        and f"{page_url}/embed#run=gpt2-six&amp;view=lanes,row,mask&amp;step=6" in code
    )
    other = page.context.browser.new_context().new_page()
    other.goto(elsewhere(code))
    frame = other.frame_locator("iframe")
    expect(frame.locator(".figure-says")).to_contain_text("Step 6.")
    tokens = sum(s.length for s in Trace.load(TRACES / "gpt2-six.jsonl").event(6).segments)
    expect(frame.locator(".row .key")).to_contain_text(f"{tokens} tokens")
    frame.get_by_role("button", name="Next").click()
    expect(frame.locator(".figure-says")).to_contain_text("Step 7.")
    hand, height = (
        frame.locator(".figure-hand").bounding_box(),
        other.locator("iframe").bounding_box(),
    )
    assert hand["y"] + hand["height"] <= height["y"] + height["height"]  # nothing is cut off
    assert frame.locator("a.figure-source").get_attribute("href") == "./#run=gpt2-six&step=6"
    other.context.close()


@pytest.mark.slow
def test_an_embedded_figure_speaks_german_and_says_what_is_not_there(visit, page_url):
    page = visit(f"{page_url}/", drawn=False)
    page.goto(f"{page_url}/embed#run=kv-pressure&view=lanes,kv&step=16&lang=de&theme=dark")
    expect(page.locator(".figure-says")).to_contain_text("Schritt 16.")
    expect(page.locator(".figure-claim b")).to_have_text("Cache voll")
    assert (
        page.locator("html").get_attribute("data-theme") == "dark"
        and page.locator(".panel").count() == 2
    )
    page.evaluate("location.hash = 'run=__proto__'")
    expect(page.locator(".embed-says")).to_have_text("There is no recorded run of this name here.")
    page.evaluate("location.hash = 'run=one-request&view=%3Cimg%3E,text'")
    expect(page.locator(".figure-says")).to_contain_text("Step 0.")
    assert page.locator(".panel").count() == 1


def test_a_frame_takes_few_bytes_and_any_site_may_hold_it(http, page_url):
    answers = [
        http.get(f"{page_url}/{path}", headers={"Accept-Encoding": "gzip"})
        for path in ("embed", "inflight/embed/gpt2-six-en.json")
    ]
    assert sum(int(a.headers["content-length"]) for a in answers) < MOST
    assert "frame-ancestors *" in answers[0].headers["content-security-policy"]
    assert "frame-ancestors 'self'" in http.get(f"{page_url}/").headers["content-security-policy"]
    for missing in ("none-en", "gpt2-six-xx", "gpt2-six"):
        assert http.get(f"{page_url}/inflight/embed/{missing}.json").status_code == 404


def test_only_a_recorded_run_of_the_page_can_be_embedded(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    assert page.evaluate("inflight.address.embedCode") is None
    page.click(".export-button")
    assert not re.search("embed", page.inner_text(".menu"), re.IGNORECASE)
