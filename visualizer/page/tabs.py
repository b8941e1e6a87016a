"""The Compare page as files, fetched when it is first opened: its script with markup and style inside, and Plotly's, packed. Knows no Gradio."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from plotly.offline import get_plotlyjs

from visualizer.page.bundle import PLAYER, inert_json, markup, script, style

MOUNTS = "inflightCompareMount"
TABS = [{"name": "watch", "title": "Watch"}, {"name": "compare", "title": "Compare"}]


@cache
def compare_script() -> str:
    """A classic script that leaves `window.inflightCompareMount(holder, options)`."""
    files = {
        "style": (PLAYER / "compare" / "compare.css").read_text(encoding="utf-8"),
        "markup": (PLAYER / "compare" / "compare.html").read_text(encoding="utf-8"),
    }
    return f"window.inflightCompareFiles = {inert_json(files)};\n{script('compare/compare.js')}"


def parts_script() -> str:
    """Shows one part of the page at a time; leaves `window.inflightParts(holder, parts)`."""
    return script("parts/tabs.js")


@cache
def packed_plotly() -> bytes:
    return gzip.compress(get_plotlyjs().encode(), 6, mtime=0)


def write_files(folder: Path) -> dict[str, Path]:
    """Write what the page fetches, named by content: `{"script", "plotly"}`."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"script": (compare_script().encode(), "compare-{}.js"), "plotly": (packed_plotly(), "plotly-{}.js.gz")}
    paths = {}
    for kind, (content, name) in contents.items():
        path = paths[kind] = folder / name.format(hashlib.sha256(content).hexdigest()[:12])
        if not path.exists():
            path.write_bytes(content)
    return paths


def page_html(options: dict) -> str:
    """The Compare page alone, with no server behind it. options: `comparisons` and `plotly`, by their addresses; see compare.js."""
    page = (PLAYER / "compare" / "page.html").read_text(encoding="utf-8")
    sprite = re.search(r'<svg class="sprite"[\s\S]*?</svg>', markup())
    parts = {
        "/*STYLE*/": style(),
        "<!--SPRITE-->": sprite[0] if sprite else "",
        "<!--PROPS-->": inert_json(options),
        "/*SCRIPT*/": compare_script(),
    }
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], page)


def options(paths: dict[str, Path], url: Callable[[Path], str]) -> dict:
    """What `parts_script` is told of this page. url: the address under which a file is served."""
    return part(url(paths["script"]), {"server": True, "base": "", "plotly": url(paths["plotly"])})


def part(script: str, options: dict) -> dict:
    """The Compare tab among the parts of a page. script: its address; options: see compare.js."""
    return {"compare": {"script": script, "mounts": MOUNTS, "options": {"tabs": TABS, **options}}}
