"""Bundles the player: its modules as one script, its style, its markup, and pages that need no
server. Modules import each other by name only (`import { a } from "./b.js"`); each becomes a
function that runs after those of its imports (see assets/player/parts/modules.js).
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from core.config import ASSETS
from visualizer.documents.replay import UPLOADED

PLAYER = ASSETS / "player"
STYLES = (
    "tokens",
    "shared",
    "base",
    "panels",
    "floating",
    "layouts",
    "phone",
    "presenter",
    "touch",
    "simple",
    "ask",
    "opening",
    "beside",
    "rooms",
)
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[\w./]+\.js)";$', re.MULTILINE)
_DOC = re.compile(r"/\*\*.*?\*/", re.DOTALL)
# indentation and comment lines
_LEADING = re.compile(r"^[ \t]+(?://[^\n]*)?|^//[^\n]*", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const|let) (\w+))", re.MULTILINE)


@cache
def script(entry: str = "watch/player.js") -> str:
    """`entry` and its imports as a classic script; the player's sets `window.Inflight.mount`."""
    return (
        (PLAYER / "parts" / "modules.js")
        .read_text(encoding="utf-8")
        .replace("/*MODULES*/ {}", inert_json(modules(entry)))
    )


def modules(entry: str) -> dict[str, str]:
    """Every module that `entry` imports, and itself last: path → a script that puts its exports
    into `inflightModules[path]`. Raises ValueError for circular imports.
    """
    found: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(
                f"Modules import each other in a circle: {' → '.join((*importers, name))}."
            )
        if name in found:
            return
        imported, scoped = _module(PLAYER, name)
        for other in imported:
            add(other, (*importers, name))
        found[name] = scoped

    add(entry, ())
    return found


@cache
def _module(player: Path, name: str) -> tuple[list[str], str]:
    """The paths that a module imports, and the module as `_scoped` gives it."""
    source = (player / name).read_text(encoding="utf-8")
    return [_path(name, match[2]) for match in _IMPORT.finditer(source)], _scoped(name, source)


def _path(importer: str, relative: str) -> str:
    return normpath(join(dirname(importer), relative))


def _scoped(name: str, source: str) -> str:
    """The module as a function that is called once. Line numbers are kept; comments and indentation
    are dropped, because every saved page contains the script. No string in a module may span lines.
    """
    source = _LEADING.sub("", _DOC.sub(lambda m: "\n" * m[0].count("\n"), source))
    exported = ", ".join(_EXPORT.findall(source))
    taken = _IMPORT.sub(
        lambda m: (
            f'const {{{m[1].replace(" as ", ": ")}}} = inflightModules["{_path(name, m[2])}"];'
        ),
        source,
    )
    body = _EXPORT.sub("", taken)
    return (
        f'inflightModules["{name}"] = (() => {{ "use strict"; {body}\nreturn {{ {exported}'
        f" }};\n}})();\n//# sourceURL=inflight/{name}\n"
    )


@cache
def style() -> str:
    """The style sheets of Watch in one, in which later rules override equal earlier ones."""
    return _packed(PLAYER / "watch" / "style" / f"{name}.css" for name in STYLES)


@cache
def figure_style() -> str:
    """The style of a page of figures: the rules of the panels in them, then its own."""
    watch = [
        PLAYER / "watch" / "style" / f"{name}.css"
        for name in ("tokens", "shared", "base", "panels")
    ]
    return _packed((*watch, PLAYER / "figure" / "figure.css"))


def _packed(sheets: Iterable[Path]) -> str:
    return _LEADING.sub(
        "", _COMMENT.sub("", "".join(sheet.read_text(encoding="utf-8") for sheet in sheets))
    )


@cache
def markup() -> str:
    """The markup in which `mount` finds its elements."""
    return _LEADING.sub("", (PLAYER / "watch" / "player.html").read_text(encoding="utf-8"))


def page_of(template: Path, parts: Mapping[str, str]) -> str:
    """A page with the marks of its template replaced by these parts."""
    page = template.read_text(encoding="utf-8")
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], page)


ICON = PLAYER / "watch" / "icon.svg"
PICTURE = ASSETS / "site" / "preview.png"


def head(picture: str | None) -> str:
    """The tags that describe the page to link previews. picture: its address, absolute if known."""
    lines = (PLAYER / "watch" / "head.html").read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line.replace("<!--PICTURE-->", picture or "")
        for line in lines
        if picture or "<!--PICTURE-->" not in line
    )


def page_html(
    options: dict[str, Any], parts: dict[str, Any] | None = None, picture: str | None = None
) -> str:
    """A whole page with one player. options: of the player, including `replay` or `catalogue`; they
    are escaped. parts: other parts of the page, whose scripts are separate files (see
    assets/player/parts/tabs.js). picture: see `head`.
    """
    scripts = (
        f'{script()}Inflight.mount(document.querySelector(".inflight"),'
        ' JSON.parse(document.getElementById("inflight-props").textContent));\n'
    )
    if parts:
        scripts += (
            f'{script("parts/tabs.js")}inflightParts(document.getElementById("parts"),'
            f" {inert_json(parts)});\n"
        )
    marks = {
        "<!--HEAD-->": f"{head(picture)}\n{icon_link()}",
        "/*STYLE*/": style(),
        "<!--BODY-->": markup(),
        "<!--PARTS-->": '<div id="parts"></div>' if parts else "",
        "<!--PROPS-->": inert_json(options),
        "/*SCRIPT*/": scripts,
    }
    return page_of(PLAYER / "watch" / "page.html", marks)


def icon_link() -> str:
    icon = base64.b64encode(ICON.read_bytes()).decode()
    return f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">'


def standalone_html(replay: dict[str, Any], place: dict[str, Any] | None = None) -> str:
    """A single file that opens from disk, without a network. replay: of a run, or of all ranks.
    place: where it opens, see `Player`.
    """
    return page_html({"replay": brought(replay), **(place or {})})


def brought(document: dict[str, Any]) -> dict[str, Any]:
    """A replay as it is in a file: whoever passes the file on can change it."""
    if "ranks" in document:
        ranks = [one | {"replay": brought(one["replay"])} for one in document["ranks"]]
        return document | {"ranks": ranks}
    return document | {"header": document["header"] | {"brought": UPLOADED}}


def inert_json(data: object) -> str:
    """JSON that is safe inside a script element, with any text in its strings."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate has no UTF-8
