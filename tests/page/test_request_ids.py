"""vLLM's own request ids: a link names one, a field finds one, and what no request has is said. A
real server's recording, in a real browser.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest
from playwright.sync_api import Page, expect

from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from worlds.axe import serious
from worlds.browser import settled
from worlds.page_server import serve

VLLM = Path(__file__).resolve().parents[1] / "data" / "vllm-http" / "hybrid.raw.jsonl.gz"
TOAST = ".inflight .toast"
# as a client may choose: signs of an address, markup, more than a line
HARD = "cmpl-a&b=c#d%25+e f/“<img src=x onerror=alert(1)>”👩‍👩‍👧 " + "x" * 300


@pytest.fixture(scope="module")
def trace() -> Trace:
    return to_trace(read_raw([VLLM])[0])


@pytest.fixture(scope="module")
def renamed(trace) -> dict:
    """The run with a hard id in place of its fourth request's."""
    text = json.dumps(replay(trace), ensure_ascii=False)
    before = json.dumps(list(trace.prompt_lengths)[3])
    return json.loads(text.replace(before, json.dumps(HARD, ensure_ascii=False)))


def pinned(page: Page) -> str | None:
    return page.evaluate("inflight.pinned?.id ?? null")


def carried(page: Page) -> dict[str, list[str]]:
    return parse_qs(page.evaluate("location.hash").removeprefix("#"))


def first_computed(trace: Trace, request: str) -> int:
    return next(e.step for e in trace.events if any(s.request == request for s in e.segments))


def test_a_link_with_an_id_opens_the_step_that_first_computes_it(visit, trace):
    """The engine's own id, and the one that its client saw; a step in the link counts for more."""
    ids = [r for r in trace.prompt_lengths if first_computed(trace, r) > 0]
    last = ids[-1]
    seen_by_client = last.rsplit("-", 2)[0]
    assert last.startswith("cmpl-") and sum(r.startswith(seen_by_client) for r in ids) == 1
    for name in (last, seen_by_client):
        page = visit(replay=replay(trace), hash=f"request={name}")
        assert pinned(page) == last and page.evaluate(
            "inflight.frame.event.step"
        ) == first_computed(trace, last)
        settled(page, "location.hash.includes('step=')")
        assert carried(page)["request"] == [last] and "pin" not in carried(page)
    page = visit(replay=replay(trace), hash=f"request={seen_by_client}&step=3")
    assert pinned(page) == last and page.evaluate("inflight.frame.event.step") == 3
    # followed without a new page
    page.evaluate("(id) => { location.hash = `#request=${id}`; }", ids[0])
    settled(page, "inflight.pinned?.id === arg", ids[0])
    assert page.evaluate("inflight.frame.event.step") == first_computed(trace, ids[0])


def test_an_id_that_no_request_has_is_said_and_changes_nothing(visit, trace):
    page = visit(replay=replay(trace), hash="step=5&request=cmpl-nobody")
    expect(page.locator(TOAST)).to_have_text("No request of this run has the id “cmpl-nobody”.")
    page.evaluate("(inflight.seekStep(7), inflight.pin(inflight.run.requests[2]))")
    settled(page, "location.hash.includes('step=7')")
    before = [pinned(page), 7]
    page.evaluate("location.hash = '#step=9&request=' + encodeURIComponent('<b>chatcmpl-0</b>')")
    expect(page.locator(TOAST)).to_have_text(
        "No request of this run has the id “<b>chatcmpl-0</b>”."
    )
    settled(page)
    assert [pinned(page), page.evaluate("inflight.frame.event.step")] == before
    assert page.locator(f"{TOAST} b").count() == 0


@pytest.mark.smoke
def test_our_own_runs_are_linked_by_letter(visit):
    """The control: ids of our presets mean nothing outside them."""
    page = visit(replay=replay(Trace.load(TRACES / "kv-pressure.jsonl")), hash="step=30&pin=B")
    settled(page, "location.hash.includes('pin=B')")
    assert "request" not in carried(page) and page.evaluate("inflight.pinned.letter") == "B"


def test_any_id_is_found_again_by_its_link_and_is_only_text(visit, renamed):
    page = visit(replay=renamed)
    page.evaluate("(id) => inflight.pin(inflight.run.request(id))", HARD)
    settled(page, "location.hash.includes('request=')")
    assert carried(page)["request"] == [HARD]
    again = visit(replay=renamed, hash=page.evaluate("location.hash").removeprefix("#"))
    assert pinned(again) == HARD
    assert pinned(visit(replay=renamed, hash=f"request={quote(HARD[:16], safe='')}")) == HARD
    again.keyboard.press("/")
    again.keyboard.type("#D%25+e F/“<IMG")
    expect(again.locator(".slow-table tbody tr")).to_have_count(1)
    assert (
        again.locator(".slow-table img").count() == 0
        and again.locator(".slow-id").get_attribute("title") == HARD
    )


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_the_field_keeps_the_rows_with_a_piece_of_an_id_or_a_letter(visit, trace, size):
    page = visit(replay=replay(trace), size=size)
    page.keyboard.press("/")
    field = page.get_by_label("Find a request by its id")
    expect(field).to_be_focused()
    assert field.input_value() == ""
    ids, rows = list(trace.prompt_lengths), page.locator(".slow-table tbody tr")
    assert rows.count() == len(ids)
    field.fill(ids[-1][-8:])
    expect(rows).to_have_count(1)
    name = page.locator(".slow-id")
    assert name.inner_text() == name.get_attribute("title") == ids[-1]
    assert page.evaluate(
        "document.querySelector('.slow-id').getBoundingClientRect().right <= innerWidth"
    )
    boxes = (
        "['.slow-table tbody .chip', '.slow-id', '.slow-bar'].map((s) =>"
        " document.querySelector(s).getBoundingClientRect())"
    )
    # nothing lies over it
    assert page.evaluate(f"{boxes}.every((box, n, all) => !n || all[n - 1].right <= box.left)")
    assert not serious(page)
    field.fill("b")  # that letter comes first, then the ids that have one
    page.wait_for_function(
        "(n) => document.querySelectorAll('.slow-table tbody tr').length === n",
        arg=sum("b" in i for i in ids),
    )
    expect(rows.first.locator(".chip")).to_have_text("B")
    field.fill("nobody")
    expect(rows).to_have_count(0)
    expect(page.locator(".slow-says")).to_have_text(
        "No request has this as its letter or in its id."
    )
    page.keyboard.press("Enter")  # nothing to select
    assert page.locator(".slow-card[open]").count() == 1 and pinned(page) is None
    field.fill(f"  {ids[4].upper()} ")
    page.keyboard.press("Enter")
    settled(page, "inflight.pinned?.id === arg", ids[4])
    assert page.locator(".slow-card[open]").count() == 0


def test_the_key_is_in_the_list_of_keys(visit, trace):
    page = visit(replay=replay(trace))
    page.keyboard.press("?")
    expect(page.locator(".card[open] dl")).to_contain_text("find a request by its id")


@pytest.mark.slow
def test_a_request_of_a_followed_engine_is_found_now_or_when_it_comes(visit, tmp_path):
    header, *steps = gzip.decompress(VLLM.read_bytes()).decode().splitlines(keepends=True)
    arrived = [
        (n, r["request"])
        for n, step in enumerate(steps)
        for r in json.loads(step).get("arrived", ())
    ]
    n, late = arrived[-1]
    (tmp_path / "recordings").mkdir()
    file = tmp_path / "recordings" / "run.raw.jsonl"
    file.write_text("".join([header, *steps[:n]]))
    with serve((sys.executable, "app.py", "--follow", str(file.parent))) as url:
        page = visit(f"{url}/", hash=f"part=live&request={late.rsplit('-', 2)[0]}", drawn=False)
        says = page.locator(".live .find-says")
        expect(says).to_contain_text(
            "No request in the steps that are kept has an id that begins so."
        )
        settled(page, "inflight.run === inflightLive.batch.run && inflight.run.length > 0")
        assert pinned(page) is None
        with file.open("a") as more:
            more.writelines(steps[n:])
        settled(page, "inflight.pinned?.id === arg", late)
        expect(says).to_be_hidden()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("/")
        field = page.locator(".live .find input")
        expect(field).to_be_focused()
        early = page.evaluate("inflight.run.requests[0].id")  # the first that is kept
        field.fill(early[:-9])
        page.keyboard.press("Enter")
        settled(page, "inflight.pinned?.id === arg", early)
        assert carried(page) == {"part": ["live"], "request": [early[:-9]]}
        page.evaluate(
            "location.hash = '#part=live&request=' + arguments[0]".replace(
                "arguments[0]", json.dumps(late)
            )
        )
        settled(page, "inflight.pinned?.id === arg", late)
        assert not serious(page)
