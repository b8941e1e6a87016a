"""The static site for tests that visit it: exported once for all processes of a test run, then
linked.

Writing all that ships takes 13 seconds, so only `plain_site_folder` has all of it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from visualizer.page.engine_files import EngineFiles
from visualizer.page.site import export_site
from worlds.page_server import folder_of_the_run


@pytest.fixture(scope="module")
def site_folder(tmp_path_factory: pytest.TempPathFactory, engine_files: EngineFiles) -> Path:
    """All runs that ship, one comparison, and the engine for its visitors' tabs. Files may be
    added.
    """
    return _linked(tmp_path_factory, "site-with-engine", engine_files)


@pytest.fixture(scope="module")
def plain_site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that ships, without an engine. Files may be added."""
    return _linked(tmp_path_factory, "site", None)


def some(folder: Path, *runs: str, comparisons: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """Two folders for `export_site`, with these of the runs and comparisons that ship."""
    made = folder / "traces", folder / "comparisons"
    for path in made:
        path.mkdir(parents=True)
    for run in runs:
        (made[0] / f"{run}.jsonl").symlink_to(TRACES / f"{run}.jsonl")
    for name in comparisons:
        (made[1] / name).symlink_to(RECORDED / name)
    return made


def _linked(folders: pytest.TempPathFactory, name: str, engine: EngineFiles | None) -> Path:
    made = folder_of_the_run(folders) / name
    last = made / "favicon.ico"
    with FileLock(f"{made}.lock"):
        if not last.exists():
            _, one = some(folders.mktemp("some"), comparisons=("equal-lengths",))
            export_site(made, comparisons=one if engine else RECORDED, engine=engine)
            last.touch()
    return Path(
        shutil.copytree(made, folders.mktemp("linked"), copy_function=os.link, dirs_exist_ok=True)
    )
