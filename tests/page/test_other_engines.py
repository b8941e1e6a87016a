"""vLLM's own steps on the page: rows in their real order, guesses as what they are, what is inferred labelled, what is absent said."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from visualizer.documents.replay import replay
from worlds.browser import seek

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def plain():
    return to_trace(read_raw([DATA / "vllm-0.32.raw.jsonl.gz"])[0])


def test_the_engine_and_what_is_inferred_are_named(visit, plain):
    page = visit(replay=replay(plain))
    assert "vLLM 0.32.0" in page.locator(".policy-chip").first.inner_text()
    for panel, fact in ((".panel.lanes", "lanes"), (".panel.queue", "reasons")):
        mark = page.locator(f"{panel} .inferred")
        assert mark.is_visible() and mark.get_attribute("title") == plain.header.inferred[fact]
    times = page.locator(".timings dd").all_inner_texts()
    assert times.count("not recorded") == 2


def test_rows_stand_in_their_real_order(visit, plain):
    at = next(i for i, e in enumerate(plain.events) if [s.lane for s in e.segments] != sorted(s.lane for s in e.segments))
    page = visit(replay=replay(plain))
    seek(page, at)
    drawn = page.evaluate("() => inflight.frame.passes[0].items.map((i) => i.request.id)")
    assert drawn == [s.request for s in plain.events[at].segments]


def test_guesses_are_drawn_as_guesses(visit):
    trace = to_trace(read_raw([DATA / "vllm-0.32-speculation.raw.jsonl.gz"])[0])
    at, event = next(
        (i, e) for i, e in enumerate(trace.events) if {(d.drafted, d.accepted) for d in e.drafts} == {(3, 1), (3, 0)}
    )
    page = visit(replay=replay(trace))
    seek(page, at)
    cells = page.evaluate("() => inflight.row.cells.map((c) => [c.item.request.id, c.guess || '', c.text])")
    for draft in event.drafts:
        guesses = [guess for request, guess, _ in cells if request == draft.request and guess]
        assert guesses == ["taken"] * draft.accepted + ["forgotten"] * (draft.drafted - draft.accepted)
    assert all(text == "✗" for _, guess, text in cells if guess == "forgotten")
    guessed, right = sum(d.drafted for d in event.drafts), sum(d.accepted for d in event.drafts)
    assert f"{guessed} guessed: {right} right" in page.locator(".panel.row .key").inner_text()
    assert trace.mask(event.step).queries[-1].text  # the mask in a terminal knows no later token either
