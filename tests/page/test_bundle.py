"""The joined script, and a run as one page."""

from __future__ import annotations

import re

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.replay import replay
from visualizer.page import bundle


def test_the_modules_share_no_name():
    names = re.findall(r"^(?:async )?(?:const|let|function\*?|class) (\w+)", bundle.script(), re.MULTILINE)
    assert len(names) == len(set(names)) > 60
    assert not re.search(r"^(import|export)\b", bundle.script(), re.MULTILINE)


def test_standalone_html_opens_from_disk(chromium, traces, tmp_path):
    text = bundle.standalone_html(replay(traces["continuous"]))
    (tmp_path / "run.html").write_text(text, encoding="utf-8")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_function("() => window.inflight && inflight.drawn >= 0")
    assert page.locator(".edit-button").is_hidden()
    context.close()


def test_standalone_html_is_small():
    trace = Trace.load(TRACES / "gpt2-masks.jsonl")
    size = len(bundle.standalone_html(replay(trace)).encode())
    assert len(trace.events) >= 300 and size < 1_000_000, f"{size:,} bytes"
