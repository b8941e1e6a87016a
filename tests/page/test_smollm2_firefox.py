"""SmolLM2 in a tab of Firefox: a recorded run is written again, token for token."""

from __future__ import annotations

import pytest

from core.browser.pyodide import find_pyodide
from core.config import SMOLLM2
from core.torch_engine.models.names import packed_smollm2
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import TRACES
from visualizer.jobs.offers import preset_entry
from visualizer.page.engine_files import EngineFiles
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine

pytestmark = pytest.mark.slow


def test_a_recorded_run(firefox, users_packed, tmp_path, monkeypatch):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_packed)
    files = EngineFiles(find_pyodide(), packed_smollm2())
    files.write(tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html><title>An engine</title>")
    with hosted(tmp_path) as host:
        page = firefox.new_page()
        page.goto(host.url)
        engine = TabEngine(page, files.address + "worker.js")
        engine.ask("load", model=SMOLLM2, agreed=True)
        found = Trace.from_lines(engine.trace(preset_entry(PRESETS["six-questions"])["spec"]))
        page.close()
    assert found.header.device_name.startswith("Firefox")
    assert found.outputs == Trace.load(TRACES / "six-questions.jsonl").outputs
