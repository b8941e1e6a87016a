"""The Compare tab alone, as a page with no server behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from visualizer.page.bundle import inert_json, markup, style
from visualizer.page.tabs import tab_script

_PAGE = Path(__file__).with_name("compare_tab.html")


def compare_page(options: dict[str, Any]) -> str:
    """options: `comparisons` and `plotly`, by their addresses; see compare.js."""
    sprite = re.search(r'<svg class="sprite"[\s\S]*?</svg>', markup())
    parts = {
        "/*STYLE*/": style(),
        "<!--SPRITE-->": sprite[0] if sprite else "",
        "<!--PROPS-->": inert_json(options),
        "/*SCRIPT*/": tab_script("compare"),
    }
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], _PAGE.read_text(encoding="utf-8"))
