"""What is drawn is what ran: the player in a real browser, on traces of every policy, compared with
the traces themselves.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import Page

from core.config import EngineConfig
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import TRACES, recorded_runs
from visualizer.documents.replay import replay
from worlds.browser import mask_drawn, seek, settled, still
from worlds.player import trace_of, wide_replay
from worlds.visual import record, request

# Between them they have every kind of cell: two policies, stalls, preemptions, prefix hits, chunks,
# many waiting.
QUICK = (
    "kv-pressure",
    "shared-prefix",
    "three-lengths",
    "long-prompt-chunked",
    "equal-lengths",
    "padding-693",
)


@pytest.mark.smoke
@pytest.mark.parametrize("policy", ["static", "split-chunked", "continuous"])  # one of each layout
def test_the_mask_on_the_canvas_is_the_mask(visit, traces, policy):
    """Every cell of every pass of every step, read from the canvas's pixels."""
    trace = traces[policy]
    page = visit(replay=replay(trace))
    for index, event in enumerate(trace.events):
        seek(page, index)
        for number in range(len(event.passes)):
            drawn = mask_drawn(page, number)
            expected = np.array(trace.mask(event.step, number).allowed)
            assert drawn.shape == expected.shape and np.array_equal(drawn, expected), (
                f"step {event.step}, pass {number}"
            )


@pytest.mark.parametrize("policy", ["static", "continuous"])
def test_a_leak_is_drawn_and_explained(visit, policy):
    trace = trace_of(policy)
    trace.header = replace(trace.header, leak=True)
    page = visit(replay=replay(trace))
    several = [i for i, e in enumerate(trace.events) if len(e.segments) > 2]
    for index in several:
        seek(page, index)
        expected = np.array(trace.mask(trace.events[index].step).allowed)
        drawn = mask_drawn(page)
        assert np.array_equal(drawn, expected)
        said = page.evaluate(
            "([q, k]) => inflight.mask.explain(q, k)", [int(n) for n in np.argwhere(expected)[-1]]
        )
        assert said["reason"] in ("allowed", "leak")
    assert page.locator(".legend-leak").is_visible()
    assert {
        page.evaluate("(k) => inflight.mask.explain(inflight.mask.drawn.pass.nq - 1, k).reason", k)
        for k in range(expected.shape[1])
    } >= {"leak", "allowed"}


def test_a_sliding_window_is_drawn(visit):
    trace = trace_of("continuous")
    trace.header = replace(trace.header, model=replace(trace.header.model, windows=(4, None, 6)))
    page = visit(replay=replay(trace))
    for layer in (0, 1, 2):
        page.evaluate("(l) => { inflight.mask.layer = l; inflight.draw(); }", layer)
        for index in (2, 5, len(trace.events) - 1):
            seek(page, index)
            expected = trace.mask(trace.events[index].step, 0, layer=layer).allowed
            assert np.array_equal(mask_drawn(page), expected)
            explained = page.evaluate(
                "Array.from({length: inflight.mask.drawn.pass.nq}, (_, q) =>"
                " Array.from({length: inflight.mask.drawn.pass.nk}, (_, k) =>"
                " inflight.mask.explain(q, k).reason === 'allowed'))"
            )
            assert np.array_equal(explained, expected)


@pytest.mark.parametrize("name", QUICK)
def test_drawn_counts_are_the_traces(visit, name):
    trace = Trace.load(TRACES / f"{name}.jsonl")
    drawn_counts_are_of(visit(replay=replay(trace)), trace)


@pytest.mark.slow
def test_drawn_counts_of_every_other_run_are_its_traces(visit):
    """On one page, one after the other: nothing of the run before is counted."""
    traces = {name: Trace.load(TRACES / f"{name}.jsonl") for name in PRESETS if name not in QUICK}
    catalogue = [
        entry | {"url": f"{entry['name']}.json"}
        for entry, _ in recorded_runs()
        if entry["name"] in traces
    ]
    files = {f"{name}.json": json.dumps(replay(trace)) for name, trace in traces.items()}
    page = visit(options={"catalogue": catalogue}, files=files)
    for name, trace in traces.items():
        page.evaluate(
            "(name) => inflight.open(inflight.options.catalogue.find((e) => e.name === name))", name
        )
        settled(page, "(name) => inflight.entry.name === name && inflight.drawn >= 0", name)
        drawn_counts_are_of(page, trace)


def drawn_counts_are_of(page: Page, trace: Trace) -> None:
    """Lane cells by kind and everybody's waiting; KV blocks and budget at a few steps."""
    counts = page.evaluate("inflight.lanes.counted")
    expected = {
        "prefill": sum(
            len({s.lane for s in e.segments if s.phase == "prefill"}) for e in trace.events
        ),
        "decode": sum(
            len({s.lane for s in e.segments if s.phase == "decode"}) for e in trace.events
        ),
        "wasted": sum(
            len({r.lane for p in e.passes for r in p.finished_rows}) for e in trace.events
        ),
        "stalled": sum(len(e.stalled) for e in trace.events),
        "preempted": sum(len(e.preempted) for e in trace.events),
        "waiting": sum(e.waiting.count for e in trace.events),
    }
    assert {k: counts[k] for k in expected} == expected, trace.workload.name
    for index in sorted({0, len(trace.events) // 3, len(trace.events) // 2, len(trace.events) - 1}):
        event = trace.events[index]
        seek(page, index)
        assert page.evaluate("inflight.frame.waiting.length") == event.waiting.count
        assert page.evaluate("inflight.blocks.owners(inflight.frame).size") == event.kv.used
        cells = page.evaluate(
            "inflight.row.cells.map(c => [c.pads || 0, c.fold || (c.pads ? 0 : 1)])"
        )
        assert sum(c[0] for c in cells) == sum(p.padding for p in event.passes)
        assert sum(c[1] for c in cells) == sum(p.tokens for p in event.passes)


def test_blocks_vanish_with_a_preempted_cache(visit):
    trace = trace_of("continuous", num_blocks=5)
    index = next(i for i, e in enumerate(trace.events) if e.preempted)
    event = trace.events[index]
    page = visit(replay=replay(trace))
    seek(page, index)
    assert page.evaluate("inflight.frame.vanished.map(v => [v.request.id, v.tokensLost])") == [
        [p.request, p.tokens_lost] for p in event.preempted
    ]
    assert page.evaluate("inflight.blocks.ghosts.size") > 0
    for i, e in enumerate(trace.events):
        seek(page, i)
        assert page.evaluate("inflight.blocks.owners(inflight.frame).size") == e.kv.used, (
            f"step {e.step}"
        )


@pytest.mark.slow
def test_jumping_and_stepping_draw_the_same(visit, traces):
    page = visit(replay=replay(traces["continuous"]))
    last = len(traces["continuous"].events) - 1
    seek(page, 0)
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    settled(page, "inflight.drawn === 7")
    stepped = still(page)
    seek(page, last)
    seek(page, 7)
    assert still(page) == stepped


@pytest.mark.smoke
def test_live_hues_and_letters_are_unique(visit):
    trace = record(
        EngineConfig(max_num_seqs=8, max_num_batched_tokens=32, block_size=4),
        *[request(f"q{i}", 3, 4 + i % 5, i // 3) for i in range(30)],
    )
    page = visit(replay=replay(trace))
    for index in range(0, len(trace.events), 3):
        seek(page, index)
        pairs = page.evaluate(
            "inflight.frame.lanes.filter(l => l.request).map(l => [l.request.hue,"
            " l.request.letter])"
        )
        hues = [hue for hue, _ in pairs]
        assert len(set(hues)) == len(hues) and len({letter for _, letter in pairs}) == len(pairs)


def test_tiles_show_what_is_allowed(visit):
    """A tile is empty exactly where nothing in it is allowed."""
    data = wide_replay(600, 3000, 10, 2)
    page = visit(replay=data, device_scale_factor=1)
    tiles = page.evaluate(
        """(() => { const c = inflight.mask.tiles.canvas, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return [c.width, c.height, Array.from({length: c.width * c.height}, (_, i) => d[4 * i + 3] > 0 ? 1 : 0)]; })()"""  # noqa: E501
    )
    width, height, shown = (
        tiles[0],
        tiles[1],
        np.array(tiles[2], dtype=bool).reshape(tiles[1], tiles[0]),
    )
    allowed = np.zeros((600, 3000), dtype=bool)
    q = k = 0
    for segment in StepEvent.from_json(data["events"][0]).segments:
        start, length, kv_len = segment.start, segment.length, segment.kv_len
        for i in range(length):
            allowed[q + i, k : k + start + i + 1] = True
        q, k = q + length, k + kv_len
    allowed = allowed[:q, :k]
    rows, columns = np.arange(q) * height // q, np.arange(k + 1) * width / k
    for y in range(height):
        any_here = allowed[rows == y].any(axis=0)
        edges = np.zeros(width)
        for x in np.flatnonzero(any_here):
            first, last = int(columns[x]), min(width - 1, int(np.ceil(columns[x + 1])) - 1)
            edges[first : last + 1] = 1
        assert np.array_equal(shown[y], edges.astype(bool)), f"row of tiles {y}"
