"""Presets run by the engine in a browser's tab, beside the recorded runs: what must hold in every
browser.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from core.cli.check import _engine
from core.config import BUILTIN_MODELS
from core.measure.compare import first_parting
from core.proof.verify import verify
from core.recorders.texts import tokenizer_of
from core.trace.trace import Trace
from core.workload.presets import PRESETS
from visualizer.documents.catalogue import TRACES
from visualizer.jobs.offers import preset_entry
from visualizer.page.engine_files import EngineFiles
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine

RUN_IN_A_TAB = [name for name, p in PRESETS.items() if p.model in BUILTIN_MODELS]

# Two presets are recorded in bfloat16, which a tab computes in float32. Where the recording then
# goes another way, its two best logits were this close: (request, position of the first other
# token) to the recording's margin there.
NEAR_TIES = {"greedy-alone-bf16": {("r0", 41): 0.0, ("r1", 22): 0.0}}


@pytest.fixture(scope="module")
def engine_site(
    tmp_path_factory: pytest.TempPathFactory, engine_files: EngineFiles
) -> Iterator[tuple[str, str]]:
    """A host with the engine's files and a blank page: its address, and from there that of the
    engine's worker.
    """
    folder = tmp_path_factory.mktemp("engine")
    (folder / "index.html").write_text("<!doctype html><title>An engine</title>")
    engine_files.write(folder)
    with hosted(folder) as host:
        yield host.url, engine_files.address + "worker.js"


def engine_in(browser: Browser, site: tuple[str, str]) -> Iterator[TabEngine]:
    """One with both models, in a page that is closed afterwards."""
    page = browser.new_page()
    page.goto(site[0])
    engine = TabEngine(page, site[1])
    engine.load("shakespeare-bpe")
    engine.load("shakespeare-char")
    yield engine
    page.close()


def accept(engine: TabEngine, name: str, browser: str) -> None:
    """Run it: `check` accepts the trace, and its tokens are the recorded ones, which torch wrote;
    where they part, torch computes them again.
    """
    preset = PRESETS[name]
    lines = engine.trace(
        {
            "workload": preset.workload.to_json(),
            "config": preset.config.to_json(),
            "model": preset.model,
        }
    )
    parted = NEAR_TIES.get(name, {})
    found = verify(lines, tokenizer_of, _engine if parted else None)
    assert found.complete and found.num_tokens > 0 and not found.warnings
    trace = Trace.from_lines(lines)
    assert trace.header.device == "cpu" and trace.header.device_name.startswith(browser)
    assert _partings(Trace.load(TRACES / f"{name}.jsonl"), trace) == parted


def writes_again(engine: TabEngine, name: str) -> Trace:
    """Run it: it has the recorded tokens."""
    found = Trace.from_lines(engine.trace(preset_entry(PRESETS[name])["spec"]))
    assert found.outputs == Trace.load(TRACES / f"{name}.jsonl").outputs
    return found


def _partings(recorded: Trace, trace: Trace) -> dict[tuple[str, int], float | None]:
    """Where a request's tokens first depart from the recorded ones, with the recording's margin
    there.
    """
    margins: dict[str, list[float | None]] = {}
    for event in recorded.events:
        for token in event.sampled:
            margins.setdefault(token.request, []).append(token.margin)
    parted = {
        request: first_parting(tokens, trace.outputs[request])
        for request, tokens in recorded.outputs.items()
    }
    return {(request, at): margins[request][at] for request, at in parted.items() if at is not None}
