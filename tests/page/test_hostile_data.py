"""Texts and names from elsewhere are only text."""

from __future__ import annotations

import pytest

from core.config import EngineConfig
from core.trace.trace import Texts
from visualizer.documents.replay import replay
from worlds.browser import seek, still
from worlds.player import trace_of
from worlds.visual import record, request


@pytest.mark.smoke
def test_hostile_texts_are_only_text(visit, traces):
    trace = trace_of("continuous")
    nasty = [
        "<img src=x onerror=window.hacked=1>",
        "</script><script>window.hacked=1</script>",
        "\u202eabc\u202d",
        "\x00\x1b[31m",
        "👩‍👩‍👧‍👦",
        "x" * 100_000,
        "\ud800",
        "مرحبا",
        "${window.hacked=1}",
        "{{hacked}}",
    ]
    texts = trace.texts
    trace.recorded_texts = Texts(
        {r: [nasty[i % len(nasty)] for i, _ in enumerate(p)] for r, p in texts.prompt.items()},
        {
            r: [nasty[(i + 3) % len(nasty)] for i, _ in enumerate(o)]
            for r, o in texts.output.items()
        },
    )
    data = replay(trace)
    for size in ("desk", "phone"):
        page = visit(replay=data, size=size)
        for index in range(0, len(trace.events), 4):
            seek(page, index)
        still(page)
        assert page.evaluate(
            "[window.hacked, document.querySelectorAll('.texts img, .texts script').length]"
        ) == [None, 0]
        assert page.evaluate(
            "[document.documentElement.scrollWidth <= innerWidth,"
            " document.documentElement.scrollHeight <= innerHeight]"
        ) == [True, True]
        assert page.evaluate(
            "[...document.querySelectorAll('.panel')].every(p => p.scrollWidth <= p.clientWidth + 1"
            " || getComputedStyle(p).overflow === 'hidden')"
        )


def test_hostile_ids_are_only_names(visit):
    names = ["__proto__", "constructor", "<b>x</b>", "\u202er", "toString"]
    trace = record(
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=8, block_size=4),
        *[request(n, 3, 3, i) for i, n in enumerate(names)],
    )
    page = visit(replay=replay(trace))
    for index in range(len(trace.events)):
        seek(page, index)
    assert page.evaluate("inflight.run.requests.map(r => [r.letter, r.samples.length])") == [
        [letter, 3] for letter in "ABCDE"
    ]


def test_an_empty_run_says_so(visit, traces):
    data = {
        **replay(traces["continuous"]),
        "events": [],
        "captions": [],
        "texts": {"prompt": {}, "output": {}},
    }
    page = visit(replay=data, drawn=False)
    page.wait_for_selector(".empty-state:not([hidden])")
    assert "no steps" in page.inner_text(".empty-state")
