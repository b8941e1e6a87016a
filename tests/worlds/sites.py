"""The static site for tests that visit it: exported once for all processes of a test run, then
linked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from visualizer.page.engine_files import EngineFiles
from visualizer.page.site import export_site
from worlds.page_server import folder_of_the_run


@pytest.fixture(scope="module")
def site_folder(tmp_path_factory: pytest.TempPathFactory, engine_files: EngineFiles) -> Path:
    """All that ships, with the engine for its visitors' tabs. Files may be added."""
    return _linked(tmp_path_factory, "site-with-engine", engine_files)


@pytest.fixture(scope="module")
def plain_site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, without an engine."""
    return _linked(tmp_path_factory, "site", None)


def _linked(folders: pytest.TempPathFactory, name: str, engine: EngineFiles | None) -> Path:
    made = folder_of_the_run(folders) / name
    last = made / "favicon.ico"
    with FileLock(f"{made}.lock"):
        if not last.exists():
            export_site(made, engine=engine)
            last.touch()
    return Path(
        shutil.copytree(made, folders.mktemp("linked"), copy_function=os.link, dirs_exist_ok=True)
    )
