"""Clear in ten seconds: what the first screen says, what the run is limited by and cost, and what
one request went through.
"""

from __future__ import annotations

import json

import pytest

from core.account.request_times import request_times
from core.trace.trace import Trace
from core.workload.presets import GROUPS, PRESETS
from visualizer.documents.catalogue import QUESTIONS, TRACES, entry
from visualizer.documents.replay import replay
from worlds.browser import seek, settled


def preset(name: str) -> Trace:
    return Trace.load(TRACES / f"{name}.jsonl")


def test_one_line_says_what_this_is_until_the_page_is_used(visit):
    page = visit(replay=replay(preset("short-and-long")))
    intro = page.locator(".intro")
    assert (
        intro.is_visible()
        and "Continuous batching" in intro.inner_text()
        and "Space" in intro.inner_text()
    )
    page.keyboard.press("Space")
    page.wait_for_function("() => inflight.transport.playing")
    assert intro.is_hidden()
    page.reload()
    settled(page, "inflight.drawn >= 0")
    assert intro.is_hidden()
    page.keyboard.press("Shift+Slash")
    assert "Continuous batching" in page.inner_text(".card[open]")


def test_the_policy_and_its_limits_stand_beside_the_run_in_vllms_names_too(visit):
    whole, chunked = (
        visit(replay=replay(preset(name)))
        for name in ("long-prompt-arrives", "long-prompt-chunked")
    )
    says = [page.inner_text(".top .policy-chip") for page in (whole, chunked)]
    assert says[0] != says[1] and all(
        f"budget {n}" in words for words, n in zip(says, ("1,024", "48"), strict=True)
    )
    assert {"continuous", "6 lanes"} <= set(says[0].split(" · "))
    names = whole.get_attribute(".top .policy-chip", "title")
    assert (
        "max_num_seqs = " in names
        and "max_num_batched_tokens = 1024" in names
        and "enable_chunked_prefill" in names
    )
    whole.click(".top .policy-chip")
    words, explained = says[0].split(" · "), whole.locator(".card[open] dl")
    assert explained.locator("dt").all_inner_texts() == words
    assert "max_num_seqs = 6" in explained.inner_text()
    whole.keyboard.press("Escape")
    totals = [page.inner_text(".totals") for page in (whole, chunked)]
    assert (
        all("TTFT" in t and "ITL" in t and "tok/s" in t for t in totals) and totals[0] != totals[1]
    )


@pytest.mark.smoke
def test_the_card_of_a_request_says_what_its_trace_says(visit):
    trace = preset("kv-pressure")
    page = visit(replay=replay(trace))
    seek(page, len(trace.events) - 1)
    for request, life in request_times(trace).items():
        shown = page.evaluate(
            "([r, i]) => inflightModules['views/request_card.js'].timesOf(inflight.run,"
            " inflight.run.request(r), i)",
            [request, len(trace.events) - 1],
        )
        assert [shown["ttft"], shown["waited"], shown["gaps"]] == [
            pytest.approx(x) for x in (life.ttft_s, life.queue_s, life.itl_s)
        ]
        assert shown["tpot"] == pytest.approx(sum(life.itl_s) / len(life.itl_s))
    page.keyboard.press("j")
    settled(page, "inflight.pinned && !document.querySelector('.request-card').hidden")
    again = next(p.request for e in trace.events for p in e.preempted)
    page.evaluate(
        "(r) => { inflight.pin(null); inflight.pin(inflight.run.request(r)); inflight.seek(30); }",
        again,
    )
    settled(page, "inflight.drawn === 30")
    card = page.inner_text(".request-card")
    assert (again in card and "bytes (keys and values of 4 layers)" in card) or "waits" in card
    assert "Preempted\nonce" in card
    page.click(".card-close")
    settled(page, "document.querySelector('.request-card').hidden && !inflight.pinned")


@pytest.mark.smoke
def test_runs_are_grouped_by_question_each_with_its_lanes(visit):
    names = [group[0].name for group in GROUPS.values()]
    catalogue = [entry(PRESETS[n], preset(n)) | {"url": "run.json"} for n in names]
    page = visit(
        options={"catalogue": catalogue, "questions": list(QUESTIONS.values())},
        files={"run.json": json.dumps(replay(preset(names[0])))},
    )
    page.click(".runs-button")
    assert page.locator(".runs-card h3").all_inner_texts() == [
        QUESTIONS[group]["title"] for group in GROUPS
    ]
    painted = page.locator(".runs-card canvas.thumb").evaluate_all(
        "all => all.map(c => new Set(c.getContext('2d').getImageData(0, 0, c.width,"
        " c.height).data).size)"
    )
    assert len(painted) == len(names) and min(painted) > 8


@pytest.mark.parametrize("size", [(1366, 768), (1440, 900), (1920, 1080)])
def test_a_label_never_covers_the_fill_of_a_block(visit, size):
    page = visit(replay=replay(preset("kv-pressure")), size=size)
    seek(page, 30)
    fills = page.evaluate("""(() => {
        const { blocks: b, palette } = inflight, { canvas, d } = b.surface, g = canvas.getContext("2d");
        const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join();
        return [...b.owned].map(([block, [o]]) => {
            const x = Math.round(((block % b.cols) + 0.3) * b.bw * d), top = Math.floor(block / b.cols) * b.bh, solid = rgb(palette.of(o.request).solid);
            let n = 0; // pixels of the request's own colour down one column of the tile
            for (let y = Math.round(top * d); y < (top + b.bh) * d; y += 1) n += [...g.getImageData(x, y, 1, 1).data.slice(0, 3)].join() === solid;
            return [o.fill, n];
        });
    })()""")  # noqa: E501
    full = max(n for _, n in fills)
    assert {fill for fill, _ in fills} > {1.0} and all(
        abs(n - fill * full) <= 4 for fill, n in fills
    ), fills
