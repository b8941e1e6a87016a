"""What the page says of a step is what it shows, and what is not there is said."""

from __future__ import annotations

import itertools
import json

import pytest
from playwright.sync_api import expect

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from worlds.browser import seek, settled
from worlds.learn_tab import drawn, learn, world  # noqa: F401


def test_a_shared_block_counts_once_among_the_tokens_held(visit):
    trace = Trace.load(TRACES / "shared-prefix.jsonl")
    page = visit(replay=replay(trace))
    shares = 0
    for i, event in enumerate(trace.events):
        seek(page, i)
        said = page.inner_text(".lengths-key").split()[0].replace(",", "")
        held = page.evaluate(
            "inflight.frame.lanes.reduce((n, l) => n + (l.laneSpan && l.kvLen), 0)"
        )
        assert int(said) <= min(held, event.kv.used * trace.config.block_size)
        shares += int(said) < held
    assert shares


@pytest.mark.slow
def test_a_run_that_is_not_there_is_said(visit, page_url):
    page = visit(url=f"{page_url}/", hash="run=nope")
    expect(page.locator(".toast")).to_have_text("This recorded run is not available: nope.")
    page.evaluate("location.hash = 'run=three-short'")
    settled(page, "inflight.entry.name === 'three-short'")
    page.evaluate("location.hash = 'run=neither'")
    expect(page.locator(".toast")).to_have_text("This recorded run is not available: neither.")
    page.evaluate("location.hash = 'run=' + 'n'.repeat(50_000)")
    expect(page.locator(".toast")).to_contain_text("not available: nnn")
    height = page.locator(".toast").bounding_box()["height"]
    assert height <= page.viewport_size["height"] / 2  # the rest of the page stays in sight


def test_a_part_that_is_not_there_is_said_with_its_reason(visit):
    tabs = {"tabs": [{"name": "watch", "title": "Watch"}]}
    trace = replay(Trace.load(TRACES / "three-short.jsonl"))
    page = visit(options={"replay": trace, **tabs}, hash="part=write")
    expect(page.locator(".toast")).to_contain_text("Write is not on this page: it needs the engine")
    page.evaluate("inflightWatch.absent('nope')")
    expect(page.locator(".toast")).to_have_text("This page has no part of this name: nope.")
    page = visit(options={"replay": trace, **tabs}, hash="part=watch")
    expect(page.locator(".toast")).to_be_hidden()


def test_a_file_is_opened_from_all_runs_and_by_dropping_it(visit, tmp_path):
    files = {
        name: replay(Trace.load(TRACES / f"{name}.jsonl"))
        for name in ("one-request", "kv-pressure")
    }
    catalogue = [
        {"name": name, "title": name, "shows": "", "policy": "", "steps": 1, "url": f"{name}.json"}
        for name in files
    ]
    page = visit(
        options={"catalogue": catalogue},
        files={f"{name}.json": json.dumps(run) for name, run in files.items()},
    )
    path = tmp_path / "run.json"
    path.write_text(json.dumps(files["kv-pressure"]))
    page.click(".runs-button:visible")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a file").click()
    chooser.value.set_files(path)
    uploaded = "inflight.run.header.source === 'uploaded' && inflight.run.length === arg"
    settled(page, uploaded, len(files["kv-pressure"]["events"]))
    page.evaluate(
        """(text) => { const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([text], "other.json"));
        for (const kind of ["dragover", "drop"]) document.querySelector(".stage").dispatchEvent(
            new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true })); }""",
        json.dumps(files["one-request"]),
    )
    settled(page, uploaded, len(files["one-request"]["events"]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 390])
def test_a_phones_bar_shows_every_part_whole_and_its_mask_has_room(visit, page_url, width):
    page = visit(url=f"{page_url}/", hash="run=gpt2-six", size=(width, 740), detail="simple")
    names = page.locator("#watch .tabs").locator("button, a")
    assert names.all_inner_texts() == ["Watch", "Compare", "Live", "Learn", "Write", "Story"]
    assert page.evaluate(
        "(() => { const tabs = document.querySelector('#watch .tabs'); return tabs.scrollWidth <="
        " tabs.clientWidth; })()"
    )
    expect(page.locator("#watch .intro")).to_be_visible()
    assert page.locator("#watch .mask .canvas").bounding_box()["height"] > 50


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("width", [360, 390])
def test_every_part_and_the_story_are_in_each_bar_of_a_phone(visit, page_url, width, language):
    page = visit(
        url=f"{page_url}/",
        hash=f"run=gpt2-six&lang={language}",
        size=(width, 740),
        detail="simple",
        is_mobile=True,
        has_touch=True,
    )
    settled(page, "inflight.speech.name === arg", language)
    shown = "[...document.querySelectorAll('.tabs')].find((tabs) => tabs.offsetWidth)"
    for part in ("watch", "compare", "live", "learn", "write"):
        page.evaluate("(part) => { location.hash = `part=${part}`; }", part)
        settled(
            page, f"(document.documentElement.dataset.part || 'watch') === arg && {shown}", part
        )
        assert page.evaluate(f"{shown}.scrollWidth - {shown}.clientWidth") <= 0, part
        assert page.evaluate(f"[...{shown}.children].every((tab) => tab.offsetWidth)"), part
        assert page.evaluate(f"{shown}.lastChild.textContent") == "Story", part
        words = page.evaluate(
            f"""[...{shown}.children].map((tab) => {{ const range = document.createRange();
            range.selectNodeContents(tab); const {{ left, right }} = range.getBoundingClientRect();
            return [left, right]; }})"""
        )
        assert all(b[0] - a[1] >= 3 for a, b in itertools.pairwise(words)), (part, words)


def test_a_line_never_begins_with_what_ends_a_sentence(visit):
    page = visit(replay=replay(Trace.load(TRACES / "three-short.jsonl")))
    alone = page.evaluate(
        """() => {
            const [a, b] = inflight.run.requests, found = [];
            const line = document.querySelector(".sentence");
            line.replaceChildren(...inflightModules["parts/chips.js"].spans({ run: inflight.run, index: 9 },
                [{ request: a }, " is you: you wait for a lane, behind ", { request: b }, "."]));
            for (let width = 40; width < 400; width += 3) {
                line.style.width = `${width}px`;
                const range = document.createRange();
                range.selectNodeContents(line.lastChild);
                if (range.getBoundingClientRect().top > line.querySelector(".chip:last-of-type").getBoundingClientRect().bottom) found.push(width);
            }
            return found;
        }"""  # noqa: E501
    )
    assert alone == []


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["wave", "sum"])
def test_in_a_lesson_on_a_phone_no_button_of_the_lanes_is_cut(visit, page_url, stop):
    page = visit(
        url=f"{page_url}/",
        hash=f"part=learn&lesson=static-batching&stop={stop}",
        drawn=False,
        size=(360, 740),
        is_mobile=True,
        has_touch=True,
    )
    settled(page, "window.inflightLearn && inflightLearn.drawn === `static-batching/${arg}`", stop)
    drawn = page.locator("#watch .panel.lanes .canvas:visible").first.bounding_box()
    assert drawn["height"] > 50
    button = page.locator("#watch .beside-button")
    inside, box = page.locator("#watch .panel.lanes").bounding_box(), button.bounding_box()
    assert box["x"] + box["width"] <= inside["x"] + inside["width"]


@pytest.mark.slow
def test_what_comes_under_a_resting_pointer_is_not_pointed_at(learn):  # noqa: F811
    page = learn("lesson=static-batching&stop=wave")
    drawn(page, "static-batching", "wave")
    box = page.locator(".scrubber canvas").bounding_box()
    page.evaluate("inflightLearn.close()")
    at = box["x"] + 40, box["y"] + box["height"] / 2
    page.mouse.move(*at)
    page.evaluate("inflightLearn.open(inflightLearn._lesson('static-batching'))")
    drawn(page, "static-batching", "wave")
    page.locator(".scrubber canvas").dispatch_event(
        "pointermove", {"clientX": at[0], "clientY": at[1], "pointerType": "mouse"}
    )
    settled(page, "inflight.store.state.hovered === null")
    page.mouse.move(at[0] + 3, at[1])
    settled(page, "inflight.store.state.hovered")


def test_a_pass_says_what_went_in_and_what_came_out_of_it(visit):
    """What it writes goes in with the next one; the token that ends an answer is said in a word."""
    trace = Trace.load(TRACES / "six-questions.jsonl")
    page = visit(replay=replay(trace), detail="simple")
    went_in, ends = {}, 0
    for i, event in enumerate(trace.events[:14]):
        seek(page, i)
        rows = page.evaluate(
            "inflight.row.cells.map((c) => [c.item.request.id, c.position, c.text, c.out])"
        )
        sampled = {s.request for s in event.sampled}
        assert {request for request, _, _, out in rows if out is not None} == sampled
        for request, position, text, out in rows:
            assert text == went_in.pop((request, position), text)
            if out and position is not None:  # not behind a fold
                went_in[request, position + 1] = out
            if out == "":
                ends += 1
                assert request in {f.request for f in event.finished}
    assert went_in and ends == 2


def test_what_the_row_has_no_room_for_is_counted_by_request(visit):
    """Their pads are none."""
    trace = Trace.load(TRACES / "padding-693.jsonl")
    page = visit(replay=replay(trace), size=(360, 740), detail="simple")
    seek(page, next(i for i, e in enumerate(trace.events) if e.passes[0].padding == 693))
    shown = page.evaluate("inflight.row.cells.map((c) => [c.item.request.letter, c.text])")
    assert shown[-1][1] == "+103 tokens of 4 requests"
    assert {letter for letter, _ in shown[:-1]} == set("ABCD")
