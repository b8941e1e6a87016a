"""The player as text: its modules joined into one script, its style, its markup, and pages that need no server. Knows no Gradio.

The modules import each other by name alone (`import { a } from "./b.js"`) and share no top-level name, so that joining them in the order
of their imports, inside one function, is the same program. Nothing is built or downloaded.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from core.assets import ASSETS

PLAYER = ASSETS / "player"
_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[\w./]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script(entry: str = "watch/player.js") -> str:
    """All modules that `entry` needs, as one classic script. It leaves `window.Inflight.mount(root, options)`."""
    joined: list[str] = []
    seen: set[Path] = set()

    def add(path: Path) -> None:
        if path in seen:
            return
        seen.add(path)
        source = path.read_text(encoding="utf-8")
        for needed in _IMPORT.findall(source):
            add((path.parent / needed).resolve())
        joined.append(_EXPORT.sub("", _IMPORT.sub("", source)))

    add((PLAYER / entry).resolve())
    return '(() => {\n"use strict";\n' + "\n".join(joined) + "})();\n"


@cache
def style() -> str:
    return (PLAYER / "watch" / "player.css").read_text(encoding="utf-8")


@cache
def markup() -> str:
    """What `mount` finds its elements in."""
    return (PLAYER / "watch" / "player.html").read_text(encoding="utf-8")


def page_html(options: dict, parts: dict | None = None) -> str:
    """A whole page with one player. options: those of the player, `replay` or `catalogue` among them; none of it can become markup.

    parts: the page's other parts, whose scripts lie beside it; see assets/player/parts/tabs.js.
    """
    boot = 'Inflight.mount(document.querySelector(".inflight"), JSON.parse(document.getElementById("inflight-props").textContent));\n'
    page = (PLAYER / "watch" / "page.html").read_text(encoding="utf-8")
    parts = {
        "/*STYLE*/": style(),
        "<!--BODY-->": markup(),
        "<!--PARTS-->": '<div id="parts"></div>' if parts else "",
        "<!--PROPS-->": inert_json(options),
        "/*SCRIPT*/": script()
        + boot
        + (f'{script("parts/tabs.js")}inflightParts(document.getElementById("parts"), {inert_json(parts)});\n' if parts else ""),
    }
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], page)


def standalone_html(replay: dict) -> str:
    """One file with everything in it: opens from disk, asks no network."""
    return page_html({"replay": replay})


def inert_json(data: object) -> str:
    """JSON that is safe inside a script element whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate has no UTF-8
