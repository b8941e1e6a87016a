"""The embeddable page: one figure of a recorded run in a frame of another site, as its address says
(`#run=…&view=lanes,mask`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from visualizer.documents.catalogue import RUNS
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import PLAYER, figure_style, inert_json, script
from visualizer.page.figure import figure_words
from visualizer.words.language import elsewhere, t

ENTRY = "figure/embed.js"


def embed_html(urls: Mapping[str, Mapping[str, str]], player: str) -> str:
    """The page. urls: by run and language, where its `figure_replay` is; player: where the whole
    player is.
    """
    data = {
        "runs": {
            name: {"title": _titles(RUNS[name].title), "urls": dict(found)}
            for name, found in urls.items()
        },
        "words": {
            language: figure_words(language, ENTRY) for language in LANGUAGES if language != "en"
        },
        "player": player,
    }
    parts = {
        "/*STYLE*/": figure_style(),
        "<!--DATA-->": inert_json(data),
        "/*SCRIPT*/": script(ENTRY),
    }
    html = (PLAYER / "figure" / "embed.html").read_text(encoding="utf-8")
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], html)


def _titles(title: str) -> dict[str, str]:
    return {"en": title, **elsewhere(lambda: t(title))}
