"""Data for pages of figures: replays reduced to what a figure needs, and the words that its views
can say. Also the embeddable page: one figure of a recorded run in a frame of another site, chosen
by its address (`#run=…&view=lanes,mask`).
"""

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from core.trace.trace import Trace
from visualizer.documents.catalogue import RUNS
from visualizer.documents.replay import drawn
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import PLAYER, figure_style, inert_json, modules, page_of, script
from visualizer.words.captions import captions
from visualizer.words.language import catalogue, elsewhere, speaking, t

_HEADER = (
    "config",
    "batching",
    "kv_groups",
    "num_blocks",
    "execution",
    "engine",
    "source",
)
_HOLES = re.compile(r"\[[^\[\]]*\]|#|“…”|\{\w+\}")  # numbers, quotes and choices


def figure_replay(trace: Trace, language: str = "en") -> dict[str, Any]:
    """A run for `Figure` in one language: the replay without the parts that only Watch shows."""
    with speaking(language):
        whole = {**drawn(trace), "captions": captions(trace)}
    header = whole["header"]
    asked = [
        {"id": r["id"], "sampling": {"max_new_tokens": r["sampling"]["max_new_tokens"]}}
        for r in header["workload"]["requests"]
    ]
    kept = _only(header, *_HEADER) | {
        "model": _only(header["model"], "windows", "eos_token_ids"),
        "workload": {"requests": asked},
    }
    return _only(whole, "schema", "records", "complete", "letters", "texts", "events") | {
        "header": kept,
        "captions": [{"why": [], **_only(one, "say", "simple")} for one in whole["captions"]],
    }


def _only(whole: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: whole[key] for key in keys if key in whole}


@cache
def figure_words(language: str, entry: str = "figure/figure.js") -> dict[str, str]:
    """The translations that the modules of `entry` need."""
    said = "\n".join(modules(entry).values())
    return {
        key: text
        for key, text in catalogue(language).items()
        if all(part.strip() in said for part in _HOLES.split(key))
    }


ENTRY = "figure/embed.js"


def embed_html(urls: Mapping[str, Mapping[str, str]], player: str) -> str:
    """The embeddable page. urls: of `figure_replay`s, by run and language; player: the address of
    the page with all of the player.
    """
    data = {
        "runs": {
            name: {"title": {"en": title, **elsewhere(partial(t, title))}, "urls": dict(found)}
            for name, found in urls.items()
            for title in [RUNS[name].title]
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
    return page_of(PLAYER / "figure" / "embed.html", parts)
