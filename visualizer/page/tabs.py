"""The page's other tabs as files, fetched when first opened: scripts, and compressed Plotly."""

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
"""The Write tab of a page with an engine in the browser tab, whose sandbox runs the code."""
WITHOUT_WRITE = WRITE | {"lacks": True}
"""The same tab without such an engine: its button says why it cannot run code."""


@cache
def story_tab() -> dict[str, Any]:
    """The story as a tab with the address of its own page, and its reading time."""
    return {
        "name": "story",
        "title": "Story",
        "href": "story",
        "minutes": {language: minutes(language) for language in LANGUAGES},
    }


@cache
def tab_files(name: str) -> dict[str, Any]:
    """What a tab brings besides its code: its style and markup, and the data of its figures."""
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
    return files


@cache
def tab_script(name: str) -> str:
    """A classic script that sets `window.inflight<Name>Mount(holder, options)`."""
    return (
        f"window.inflight{name.capitalize()}Files ="
        f" {inert_json(tab_files(name))};\n{script(f'{name}/{name}.js')}"
    )


@cache
def packed_plotly() -> bytes:
    # late: the rest of this file does not need Plotly
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), 6, mtime=0)


EDITOR = ASSETS / "vendor" / "codemirror.js"


def write_files(folder: Path) -> dict[str, Path]:
    """Write the files that the page fetches; returns them by tab, "plotly" and "codemirror"."""
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
    """The options of `parts/tabs.js` for a page with a server. url: gives the address of a file.
    live: the options of the Live tab, see live.js, if there is one. engine: the options of the
    engine in the browser tab, see `EngineFiles`, if there is one.
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
    """The options of the player besides recorded runs. tabs: `{"name", "title"}`, its own first."""
    return {
        "catalogue": catalogue,
        "questions": list(QUESTIONS.values()),
        "tabs": tabs,
        "terms": hints(),
        "asked": faq(),
        "policies": {p.name: p.shows for p in POLICIES.values()},
    }


def part(name: str, script: str, options: dict[str, Any]) -> dict[str, Any]:
    """A tab as a part of the page. script: its address; options: see the tab's script."""
    return {
        "script": script,
        "mounts": f"inflight{name.capitalize()}Mount",
        "options": {"tabs": TABS, **options},
    }
