"""How a wheel is built: one package `inflight` that holds core, visualizer, app.py and the
assets, so that no `core` lies beside other people's.

In the sources these are packages of their own, which a Space and a clone run from their folder;
here their imports of one another, and the commands that their messages name, are moved to where
they are in the wheel. Their requirements are those of requirements.txt, and their description is
README.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PARTS = ("core", "visualizer", "assets", "app.py")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyi", "train.py")
_OURS = "core|visualizer|app"
MOVES = (
    (re.compile(rf"^(\s*)from ({_OURS})(?=[. ])", re.MULTILINE), r"\1from inflight.\2"),
    (re.compile(r"python -m (core|visualizer)\.(?=[\w.])"), r"python -m inflight.\1."),
    (re.compile(r"python -m inflight(?![\w.])|python app\.py"), "inflight"),
)
# would bind another name once it is moved
_STAYS = re.compile(rf"^\s*import ({_OURS})\b", re.MULTILINE)
MAIN = (
    '"""`python -m inflight …`, which is the command `inflight`."""\n\n'
    "from inflight import _start\n\n_start()\n"
)


class Wheel(BuildHookInterface):
    """Writes the package into a folder of its own, which goes into the wheel whole."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.directory) / "package" / "inflight"
        shutil.rmtree(package, ignore_errors=True)
        package.mkdir(parents=True)
        for part in PARTS:
            source = Path(self.root) / part
            if source.is_dir():
                shutil.copytree(source, package / part, ignore=LEFT_OUT)
            else:
                shutil.copy(source, package / part)
        for path in package.rglob("*.py"):
            path.write_text(moved(path.read_text(encoding="utf-8"), path.name), encoding="utf-8")
        init = (Path(self.root) / "inflight.py").read_text(encoding="utf-8")
        (package / "__init__.py").write_text(moved(init, "inflight.py"), encoding="utf-8")
        (package / "py.typed").touch()
        (package / "__main__.py").write_text(MAIN, encoding="utf-8")
        build_data["force_include"][str(package)] = "inflight"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(Path(self.directory) / "package")


class Metadata(MetadataHookInterface):
    """The requirements, and README without the lines that configure a Space."""

    def update(self, metadata: dict[str, Any]) -> None:
        lines = (Path(self.root) / "requirements.txt").read_text(encoding="utf-8").splitlines()
        metadata["dependencies"] = [line for line in lines if line and not line.startswith("#")]
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = readme.split("---\n", 2)[2].lstrip()
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def moved(source: str, name: str) -> str:
    """A module's source as it is in the wheel. Raises ValueError where an import cannot be
    moved.
    """
    if found := _STAYS.search(source):
        raise ValueError(
            f"{name}: write {found[0].strip()!r} as `from … import …`, so that a wheel can hold it"
        )
    for pattern, replacement in MOVES:
        source = pattern.sub(replacement, source)
    return source
