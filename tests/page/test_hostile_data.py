"""Texts and names from elsewhere are only text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from core.config import EngineConfig
from core.recorders.convert import open_run
from core.trace.trace import Texts, Trace
from visualizer.documents.replay import replay
from worlds.browser import seek, settled, still
from worlds.forging import rows_of, sealed
from worlds.player import trace_of
from worlds.visual import record, request

ROOT = Path(__file__).resolve().parents[2]
MARKUP = "<img src=x onerror=hacked=1>"


@pytest.fixture
def open_page(visit, page_url) -> Callable[..., Page]:
    return lambda **how: visit(url=f"{page_url}/", **how)


@pytest.mark.slow
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


def _named(value: object, markup: str) -> object:
    """Plain data with this in place of every text that names something."""
    if isinstance(value, dict):
        return {key: _named(inner, markup) for key, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner, markup) for inner in value]
    return markup if isinstance(value, str) else value


@pytest.mark.parametrize("source", ["own", "vllm"])
def test_markup_in_every_name_of_a_run_is_only_text(open_page, tmp_path, source):
    """Uploaded, and so checked first: the header's free texts, ids, the workload, the policy, the
    file's own name; in every view, in what is said of the run, and as one file.
    """
    if source == "own":
        rows = rows_of(trace_of("continuous"))
    else:
        rows = rows_of(open_run(ROOT / "tests/data/vllm-http/priority-pressure.raw.jsonl.gz"))
    header = rows[0]
    for name in ("created", "device", "device_name", "dtype", "versions", "notes", "absent"):
        if name in header and name != "absent":
            header[name] = _named(header[name], MARKUP)
    header["workload"]["name"] = header["model"]["name"] = header["model"]["type"] = MARKUP
    header["notes"] = [MARKUP]
    header["config"]["policy"] = header["policy"] = header["batching"]["name"] = MARKUP
    header["batching"]["order_by"] = MARKUP
    if source == "vllm":
        for name in ("name", "version", "executor", "scheduler"):
            header["engine"][name] = MARKUP
    ids = {row["asked"]["id"]: f"{MARKUP}{n}" for n, row in enumerate(rows) if "asked" in row}
    lines = sealed(json.loads(_renamed(json.dumps(rows), ids)))
    path = tmp_path / "<img src=x onerror=hacked=1>.jsonl"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    page = open_page()
    page.click(".export-button")
    with page.expect_file_chooser() as chosen:
        page.get_by_text("Open a trace").click()
    chosen.value.set_files(path)
    settled(page, "inflight.run.header.source === 'uploaded'")
    assert page.evaluate("inflight.run.header.model.name") == MARKUP
    for index in range(0, page.evaluate("inflight.run.length"), 9):
        seek(page, index)
    for tab in ("compare", "learn", "live", "watch"):
        page.evaluate(f"location.hash = 'part={tab}'")
        page.wait_for_timeout(300)
    still(page)
    made = "[...document.querySelectorAll('[onerror], img[src=x], script')].map(e => e.outerHTML)"
    assert page.evaluate("window.hacked") is None
    assert not [html for html in page.evaluate(made) if "hacked" in html]
    saved = tmp_path / "run.html"
    Trace.load(path).show().save(saved)
    alone = page.context.new_page()
    alone.goto(saved.as_uri())
    alone.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    assert alone.evaluate("window.hacked") is None
    assert not [html for html in alone.evaluate(made) if "onerror=hacked=1>" in html[:60]]


def _renamed(rows: str, ids: dict[str, str]) -> str:
    for old, new in ids.items():
        rows = rows.replace(json.dumps(old), json.dumps(new))
    return rows


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
