"""The page's other tabs as files, fetched when first opened: scripts, and Plotly's, compressed."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.config import ASSETS, POLICIES
from visualizer.documents import hand
from visualizer.documents.catalogue import QUESTIONS
from visualizer.lessons.document import faq, hints
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import PLAYER, inert_json, script
from visualizer.page.story import minutes
from visualizer.write.tasks import MODEL, tasks

TABS: list[dict[str, Any]] = [
    {"name": "watch", "title": "Watch"},
    {"name": "compare", "title": "Compare"},
    {"name": "learn", "title": "Learn", "speaks": LANGUAGES},  # it brings other languages
]
WRITE: dict[str, Any] = {"name": "write", "title": "Write"}
"""Where there is an engine in the visitor's tab, whose sandbox runs what is written."""
WITHOUT_WRITE = WRITE | {"lacks": True}
"""The same where there is none: its button says why."""


@cache
def story_tab() -> dict[str, Any]:
    """A page of its own, by its address, with the minutes that it takes to read."""
    return {
        "name": "story",
        "title": "Story",
        "href": "story",
        "minutes": {language: minutes(language) for language in LANGUAGES},
    }


@cache
def tab_script(name: str) -> str:
    """A classic script that leaves `window.inflight<Name>Mount(holder, options)`."""
    sheets = [PLAYER / "figure" / "figure.css"] * (name == "compare") + [
        PLAYER / name / f"{name}.css"
    ]
    files: dict[str, Any] = {
        "style": "".join(sheet.read_text(encoding="utf-8") for sheet in sheets),
        "markup": (PLAYER / name / f"{name}.html").read_text(encoding="utf-8"),
    }
    if name == "compare":
        files["hand"] = hand.shipped()
    if name == "write":
        files |= {"model": MODEL, "tasks": [task.to_json() for task in tasks().values()]}
    return (
        f"window.inflight{name.capitalize()}Files ="
        f" {inert_json(files)};\n{script(f'{name}/{name}.js')}"
    )


@cache
def packed_plotly() -> bytes:
    # all that is needed of that package, and not where only the rest of this file is
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), 6, mtime=0)


EDITOR = ASSETS / "vendor" / "codemirror.js"


def write_files(folder: Path) -> dict[str, Path]:
    """Write what the page fetches, named by content; the files by tab, "plotly", "codemirror"."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: tab_script(name).encode() for name in ("compare", "learn", "live", "write")}
    contents |= {"plotly": packed_plotly(), "codemirror": EDITOR.read_bytes()}
    paths = {}
    for kind, content in contents.items():
        suffix = "js.gz" if kind == "plotly" else "js"
        paths[kind] = folder / f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}.{suffix}"
        paths[kind].write_bytes(content)
    return paths


def options(
    paths: dict[str, Path],
    url: Callable[[Path], str],
    live: dict[str, Any] | None = None,
    engine: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """What `parts/tabs.js` needs to know about a page with a server. url: the address under which a
    file is served. live: the options of the Live tab, see live.js, if there is one. engine: the
    options of the engine that runs in the visitor's tab, see `EngineFiles`, if there is one.
    """
    of_a_server = {"server": True, "base": "", **engine}
    found = {"compare": {**of_a_server, "plotly": url(paths["plotly"])}, "learn": of_a_server}
    tabs = [*TABS, WRITE if engine else WITHOUT_WRITE, story_tab()]
    if live is not None:
        found["live"] = {"base": "", **live}
        tabs.insert(2, {"name": "live", "title": "Live"})
    if engine:
        found["write"] = {"engine": engine["engine"], "codemirror": url(paths["codemirror"])}
    return {
        name: part(name, url(paths[name]), {"tabs": tabs, **given}) for name, given in found.items()
    }


def player_options(
    catalogue: Sequence[dict[str, Any]], tabs: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The player's options beside recorded runs. tabs: `{"name", "title"}`, its own first."""
    return {
        "catalogue": catalogue,
        "questions": list(QUESTIONS.values()),
        "tabs": tabs,
        "terms": hints(),
        "asked": faq(),
        "policies": {p.name: p.shows for p in POLICIES.values()},
    }


def part(name: str, script: str, options: dict[str, Any]) -> dict[str, Any]:
    """A tab among the parts of a page. script: its address; options: see the tab's script."""
    return {
        "script": script,
        "mounts": f"inflight{name.capitalize()}Mount",
        "options": {"tabs": TABS, **options},
    }
