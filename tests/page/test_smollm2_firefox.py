"""SmolLM2 in a tab of Firefox: what it writes is what was recorded, token for token. Of every
recorded run, Chromium's test says so.
"""

from __future__ import annotations

import pytest

from core.browser.pyodide import find_pyodide
from core.config import SMOLLM2
from core.torch_engine.models.names import packed_smollm2
from visualizer.page.engine_files import EngineFiles
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine
from worlds.tab_runs import writes_again

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(firefox, users_packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFLIGHT_MODELS_DIR", users_packed)
        files = EngineFiles(find_pyodide(), packed_smollm2())
        files.write(folder)
    (folder / "index.html").write_text("<!doctype html><title>An engine</title>")
    with hosted(folder) as host:
        page = firefox.new_page()
        page.goto(host.url)
        found = TabEngine(page, files.address + "worker.js")
        found.ask("load", model=SMOLLM2, agreed=True)
        yield found
        page.close()


# in chunks, under pressure, with a prefix that is shared
@pytest.mark.parametrize(
    "name", ["page-to-summarize", "chat-under-pressure", "shared-system-prompt"]
)
def test_a_recorded_run_is_written_again(engine, name):
    assert writes_again(engine, name).header.device_name.startswith("Firefox")
