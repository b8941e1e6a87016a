"""The engine's files for tests that run it in a browser: Pyodide comes from npm, which not every
machine has.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.browser.pyodide import find_pyodide
from core.errors import InflightError
from visualizer.page.engine_files import EngineFiles, sources


@pytest.fixture(scope="session")
def engine_files() -> EngineFiles:
    """Made once. INFLIGHT_REQUIRE_NODE makes a missing Pyodide an error."""
    return engine_files_here()


def engine_files_here() -> EngineFiles:
    """See the fixture."""
    try:
        return EngineFiles(find_pyodide())
    except InflightError as error:
        (pytest.fail if os.environ.get("INFLIGHT_REQUIRE_NODE") else pytest.skip)(str(error))


def unpacked(folder: Path) -> Path:
    """The sources as they lie in a tab."""
    for name, text in sources().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
