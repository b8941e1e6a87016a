"""Runs from elsewhere: by an address in the page's own, which the browser alone fetches, and
published workloads in the editor.
"""

from __future__ import annotations

import gzip
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from visualizer.documents.replay import replay
from worlds.browser import settled
from worlds.page_server import serve, state
from worlds.small import memory_trace


class _Giving(SimpleHTTPRequestHandler):
    """Another site: gives its files to every page, but for those that are private; and sends on."""

    def do_GET(self) -> None:
        if self.path == "/on":
            self.send_response(302)
            self.send_header("location", "http://elsewhere.test/run.json")
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self) -> None:
        if "private" not in self.path:
            self.send_header("access-control-allow-origin", "*")
        super().end_headers()

    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """The origin of another site, with the same run in every form."""
    folder = tmp_path_factory.mktemp("elsewhere")
    trace = memory_trace((5, 6), (3, 4))
    trace.save(folder / "run.jsonl")
    text = json.dumps(replay(trace))
    for name in ("run.json", "private.json"):
        (folder / name).write_text(text)
    packed = gzip.compress((folder / "run.jsonl").read_bytes())
    (folder / "run.jsonl.gz").write_bytes(packed)
    (folder / "cut.jsonl.gz").write_bytes(packed[:-50])
    (folder / "large.json").write_bytes(gzip.compress(b" " * 2**26))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Giving, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def friendly(elsewhere):
    """The page, told of that site."""
    with serve(INFLIGHT_TRACE_HOSTS=elsewhere) as url:
        yield f"{url}/"


def go(page, address: str) -> None:
    """Follow a link to a run; what the page itself was about to write into its address is written
    by then.
    """
    settled(page, "!inflight.address.due")
    page.evaluate("(a) => { location.hash = `trace=${a}`; }", address)


@pytest.mark.slow
def test_a_run_of_the_pages_own_address_opens_and_is_shared_by_it(visit, page_url, http):
    url = state(http, page_url)["catalogue"][0]["url"]
    # a replay, and the trace that it was made from
    for address in (url, url.replace(".json", ".jsonl")):
        page = visit(f"{page_url}/", hash=f"trace={address}&step=3")
        assert page.evaluate("() => [inflight.entry.trace, inflight.frame.event.step]") == [
            address,
            3,
        ]
        page.evaluate(
            "() => { navigator.clipboard.writeText = async (t) => { window.copied = t; }; }"
        )
        page.locator(".share-button").click()
        settled(page, "window.copied")
        link = page.evaluate(
            "() => new URLSearchParams(new URL(copied).hash.slice(1)).get('trace')"
        )
        assert link == address


@pytest.mark.slow
def test_the_query_names_one_too(visit, page_url, http):
    url = state(http, page_url)["catalogue"][1]["url"]
    page = visit(f"{page_url}/")
    page.goto(f"{page_url}/?trace={url}")
    settled(page, "inflight.drawn >= 0")
    assert page.evaluate("() => inflight.entry.trace") == url


@pytest.mark.slow
def test_another_site_is_asked_only_where_the_page_was_told_of_it(
    visit, page_url, friendly, elsewhere, http
):
    assert (
        f"connect-src 'self' blob: {elsewhere};"
        in f"{http.get(friendly).headers['content-security-policy']};"
    )
    page = visit(f"{page_url}/", hash=f"trace={elsewhere}/run.json")
    expect(page.locator("#watch .toast")).to_contain_text(
        "opens runs of its own address, and of no other"
    )
    page = visit(friendly)
    page.unroute_all()  # the fixture lets nobody out
    for name in ("run.json", "run.jsonl", "run.jsonl.gz"):
        address = f"{elsewhere}/{name}"
        go(page, address)
        settled(page, "(a) => inflight.entry && inflight.entry.trace === a", address)


@pytest.mark.slow
def test_what_cannot_be_opened_says_why_and_the_first_run_is_there(visit, friendly, elsewhere):
    page = visit(friendly)
    page.unroute_all()
    # the console tells of it
    page.meant += ["Failed to load resource", "CORS policy", "Content Security Policy", "Fetch API"]
    before = page.evaluate("() => inflight.entry.name")
    for name, sentence in (
        ("none.json", "answered 404"),
        ("private.json", "does not let other pages read it"),
        ("on", "did not answer"),  # sent on to where the page's policy does not let it
        ("cut.jsonl.gz", "packed, and breaks off"),
        ("large.json", "more than 32 MiB"),
    ):
        go(page, f"{elsewhere}/{name}")
        settled(
            page,
            "(words) => document.querySelector('.toast').textContent.includes(words)",
            sentence,
        )
        assert page.evaluate("() => inflight.entry.name") == before


def test_a_page_without_a_server_opens_a_replay_and_says_what_it_cannot_read(visit):
    shown = replay(memory_trace((5, 6)))
    files = {"one.json": json.dumps(shown), "run.jsonl": "\n".join(memory_trace((5, 6)).lines())}
    catalogue = [
        {
            "name": "first",
            "title": "First",
            "shows": "",
            "policy": "continuous",
            "steps": 1,
            "url": "one.json",
        }
    ]
    page = visit(options={"catalogue": catalogue}, files=files, hash="trace=one.json")
    assert page.evaluate("() => inflight.entry.trace") == "one.json"
    page = visit(options={"catalogue": catalogue}, files=files, hash="trace=run.jsonl")
    expect(page.locator(".toast")).to_contain_text("no engine that could read a trace")
    assert page.evaluate("() => inflight.entry.name") == "first"


# -- published workloads ---------------------------------------------------------------------------

# Two requests in the format of Mooncake's trace, written by hand.
MOONCAKE = "".join(
    json.dumps({"timestamp": 4000 * i, "input_length": 1000, "output_length": 8, "hash_ids": ids})
    + "\n"
    for i, ids in enumerate(([1, 2], [1, 3]))
)


def give(page, name: str, text: str) -> None:
    page.locator(".workload-file").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
    )


@pytest.mark.slow
def test_a_workload_keeps_what_the_form_has_no_field_for(visit, page_url):
    """When a client leaves; and a priority, which has a field only where the policy goes by it: as
    the command line runs the same file.
    """
    page = visit(f"{page_url}/", hash="run=short-and-long")
    page.locator(".edit-button").click()
    settled(page, "inflight.editor.state")
    requests = [
        {"id": "first", "prompt": "ROMEO", "sampling": {"max_new_tokens": 4}},
        {"id": "low", "prompt": "JULIET", "sampling": {"max_new_tokens": 4}, "priority": 9},
        {"id": "gone", "prompt": "O", "sampling": {"max_new_tokens": 40}, "leaves_after": 3},
        {"id": "high", "prompt": "NURSE", "sampling": {"max_new_tokens": 4}, "priority": -1},
    ]
    config = {"policy": "priority-first", "max_num_seqs": 1}
    workload = {"schema": 1, "name": "queue", "arrival_unit": "step", "requests": requests}
    give(page, "queue.json", json.dumps({"workload": workload, "config": config}))
    settled(page, "inflight.editor.rows.length === 4")
    assert page.locator(".preset-shows").inner_text() == ""
    assert page.evaluate("() => inflight.editor.field('preset').selectedIndex") == -1

    def ends_of_a_run() -> list[list[str]]:
        page.evaluate("() => { window.before = inflight.run; }")
        page.locator(".run-button").click()
        settled(page, "inflight.run !== before && inflight.run.complete && !inflight.running")
        return page.evaluate(
            "() => inflight.run.events.flatMap((e) => e.finished)"
            ".map((f) => [f.request, f.finishReason])"
        )

    ends = ends_of_a_run()
    assert [end for end in ends if end[0] != "gone"] == [
        ["high", "length"],
        ["first", "length"],
        ["low", "length"],
    ]
    assert ["gone", "cancelled"] in ends
    fields = page.locator(".request-row .priority")
    assert [field.input_value() for field in fields.all()] == ["0", "9", "0", "-1"]
    fields.nth(3).fill("")
    page.locator(".run-button").click()
    expect(page.locator(".drawer .run-message")).to_have_text(
        "Request 4: the priority must be a whole number."
    )
    fields.nth(3).fill("20")
    assert [end[0] for end in ends_of_a_run() if end[0] != "gone"] == ["first", "low", "high"]
    card = page.locator(".panel.request-card")
    page.evaluate("() => inflight.pin(inflight.run.request('high'))")
    expect(card).to_contain_text("priority 20: the lower, the sooner")
    page.evaluate("() => inflight.pin(inflight.run.request('first'))")
    expect(card).not_to_contain_text("priority")
    page.locator("[name=policy]").select_option("continuous")
    expect(fields.first).to_be_hidden()


@pytest.mark.slow
def test_the_editor_takes_a_published_workload_scaled_and_says_by_how_much(visit, page_url):
    page = visit(f"{page_url}/", hash="run=short-and-long")
    page.locator(".edit-button").click()
    settled(page, "inflight.editor.state")
    give(page, "talk.jsonl", MOONCAKE)
    settled(page, "document.querySelector('.preset-shows').textContent.includes('talk')")
    says = page.locator(".preset-shows").inner_text()
    assert (
        "Requests: 2 within 4.0 s" in says
        and "% of those on record" in says
        and "Prefixes are shared" in says
    )
    said = page.evaluate("() => inflight.editor.spec()")
    assert said["config"]["prefix_caching"] and said["workload"]["arrival_unit"] == "s"
    first, second = (r["prompt_token_ids"] for r in said["workload"]["requests"])
    shared = said["config"]["block_size"]
    assert first[:shared] == second[:shared] and first[shared:] != second[shared:]
    page.locator(".run-button").click()
    settled(
        page,
        "inflight.run && inflight.run.complete && !inflight.running && inflight.run.header.source"
        " === 'live'",
    )
    hits = page.evaluate(
        "() => inflight.run.events.flatMap((e) => e.kv.prefixHits).map((h) => h.numCachedTokens)"
    )
    assert hits == [shared]  # as its hash_ids say
    give(page, "bad.csv", "a,b\n1,2\n")
    settled(
        page,
        "document.querySelector('.drawer .run-message').textContent.includes('no known trace has')",
    )
