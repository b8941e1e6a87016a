"""The page where strangers come by: a reload in the middle of a run, and links that somebody made
to do harm.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib

import pytest
from playwright.sync_api import expect

from worlds.browser import settled
from worlds.page_server import serve
from worlds.proxy import proxied
from worlds.visitors import endless, spec


def packed(data: bytes) -> str:
    press = zlib.compressobj(9, wbits=-15)
    return base64.urlsafe_b64encode(press.compress(data) + press.flush()).decode().rstrip("=")


@pytest.mark.slow
def test_a_reload_in_the_middle_of_a_run_finds_it_again(visit, page_url):
    """From its first step on, and can cancel it."""
    page = visit(page_url)
    page.evaluate(
        "(spec) => { inflight.editor.ready().then(() => { inflight.editor.fill(spec);"
        " inflight.editor.runSpec(spec); }); }",
        endless(),
    )
    page.wait_for_function(
        "() => inflight.running && inflight.run.header.source === 'live' && inflight.run.length > 5"
    )
    before = page.evaluate("inflight.run.events.map(e => e.step)")
    page.reload()
    page.wait_for_function(
        "() => window.inflight && inflight.running && inflight.run && inflight.run.header.source"
        " === 'live'"
    )
    settled(page, "(n) => inflight.run.length >= n", len(before))
    page.evaluate("document.querySelector('.cancel-button').click()")
    settled(page, "!inflight.running")
    steps = page.evaluate("inflight.run.events.map(e => e.step)")
    # a step in which nobody was there has no event
    assert steps[: len(before)] == before and steps == sorted(set(steps))
    assert not page.evaluate("inflight.run.complete")
    assert page.evaluate("sessionStorage.getItem('inflight-run')") is None


def test_a_link_runs_no_model_that_is_not_built_in(visit, page_url):
    asked: list[str] = []
    page = visit(page_url)
    page.on("request", lambda r: asked.append(r.url))
    page.evaluate(
        "(hash) => { location.hash = hash; }",
        f"spec={packed(json.dumps(spec() | {'model': '../../etc'}).encode())}",
    )
    expect(page.locator(".run-message")).to_contain_text("not built in: run it if you trust it")
    assert not [url for url in asked if "inflight/jobs" in url] and not page.evaluate(
        "inflight.running"
    )


def test_an_odd_link_is_answered_in_a_sentence(visit, page_url):
    page = visit(page_url)
    for data in (
        b"null",
        b"[]",
        b'{"workload": null}',
        b'{"preset": {}}',
        b" " * 80_000_000 + b"{}",
    ):
        page.evaluate("() => { document.querySelector('.toast').textContent = ''; }")
        page.evaluate("(hash) => { location.hash = hash; }", f"spec={packed(data)}")
        expect(page.locator(".toast")).to_have_text("This link's workload cannot be read.")
        assert not page.evaluate("inflight.running")


def test_a_space_asks_nothing_elsewhere(visit, space_url):
    page = visit(space_url)
    page.wait_for_load_state("networkidle")
    assert page.locator("#huggingface-space-header").count() == 0


@pytest.mark.slow
def test_the_policy_for_content_hinders_nothing_and_is_in_force(visit, page_url):
    page = visit(page_url)
    page.evaluate(
        "() => { window.hindered = []; document.addEventListener('securitypolicyviolation', (e) =>"
        " hindered.push(e.effectiveDirective)); }"
    )
    for part, there in (
        ("compare", "window.inflightCompare && inflightCompare.doc"),
        ("learn", "document.querySelector('.learn')"),
        ("watch", "inflight.run"),
    ):
        page.evaluate("(part) => { location.hash = `part=${part}`; }", part)
        settled(page, f"{there}")
    assert page.evaluate("hindered") == []
    page.meant.append("data:text/plain,x")  # the console tells of it
    page.evaluate("() => fetch('data:text/plain,x').catch(() => null)")
    settled(page, "hindered.includes('connect-src')")


def test_without_scripts_the_page_says_what_it_is_and_nothing_of_gradio(http, page_url):
    for encoding in ("identity", "gzip"):
        page = http.get(page_url, headers={"Accept-Encoding": encoding})
        head = page.text.split("<script", 1)[0]
        said = dict(
            re.findall(r'<meta\s+(?:property|name)="([\w:]+)"\s+content="([^"]*)"\s*/?>', head)
        )
        assert (
            said["og:title"].startswith("Inflight")
            and "forward pass" in said["og:description"] == said["description"]
        )
        assert (
            head.count("og:title") == 1
            and "<title>Inflight</title>" in head
            and "gradio.app" not in head
        )
        assert said["og:image"].startswith(f"{page_url}/")
        picture = http.get(said["og:image"])
        assert picture.headers["content-type"] == "image/png" and len(picture.content) > 10_000
    assert http.get(f"{page_url}/favicon.ico").headers["content-type"] == "image/svg+xml"


def picture_for(http, url: str, **headers: str) -> str:
    return re.search(r'property="og:image" content="([^"]*)"', http.get(url, headers=headers).text)[
        1
    ]


def test_a_link_preview_finds_the_picture_under_the_address_by_which_it_came(http, space_url):
    assert picture_for(
        http, space_url, Host="talks.example.org", **{"X-Forwarded-Proto": "https"}
    ).startswith("https://talks.example.org/inflight/")
    for made_up in ('a"><script>', "a/b", "a b", "é"):
        assert picture_for(http, space_url, Host=made_up.encode()).startswith("inflight/")
    for n in range(20):
        found = picture_for(http, space_url, Host=f"{n}.example.org")
    assert found.startswith("inflight/")  # others' addresses are kept for a few only
    assert picture_for(
        http, space_url, Host="talks.example.org", **{"X-Forwarded-Proto": "https"}
    ).startswith("https://talks")


def test_the_page_works_behind_a_proxy_that_has_it_under_a_path(visit, page_url):
    with proxied(page_url, "/lab/inflight") as url:
        page = visit(f"{url}/", hash="run=kv-pressure")
        settled(page, "inflight.entry && inflight.entry.name === 'kv-pressure' && inflight.run")
        assert page.evaluate("gradio_config.root") == url
        page.evaluate(
            "(spec) => inflight.editor.ready().then(() => { inflight.editor.fill(spec);"
            " inflight.editor.runSpec(spec); })",
            spec(),
        )
        settled(
            page,
            "!inflight.running && inflight.run.header.source === 'live' && inflight.run.complete",
        )
        page.goto("about:blank")  # what the page still asks for would find no proxy


@pytest.mark.slow
def test_a_shared_page_asks_nothing_elsewhere_and_is_drawn(visit):
    """Through Gradio's tunnel, which needs the network: here it leads nowhere, and the page is the
    one that it would show.
    """
    share = (
        "import gradio.networking as n; n.setup_tunnel = lambda **_: 'https://x.gradio.live';"
        " import app; app.main(['--share'])"
    )
    with serve((sys.executable, "-c", share)) as url:
        assert visit(url).evaluate("inflight.run.length") > 0
