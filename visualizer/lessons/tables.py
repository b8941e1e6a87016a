"""Tables that a stop shows below its text: what other engines call things, and what was measured of texts in company.

{"label", "head": [{"name", "url"}], "rows": [[what, cell, …]]}; a cell is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from core.trace.phrases import letter
from visualizer.lessons.facts import value
from visualizer.lessons.facts.company import PAIRS, run
from visualizer.lessons.places import At
from visualizer.lessons.texts import FOLDER, number, texts
from visualizer.words.language import speaking, t

_SHOWN = 56  # characters of a text


def table(name: str, at: At, language: str) -> dict[str, Any]:
    return TABLES[name](at, language)


def _names(at: At, language: str) -> dict[str, Any]:
    """What the limits are called in other engines."""
    data = _names_file()
    with speaking(language):
        rows = [
            [t(what), *(cell if isinstance(cell, str) else t(cell["say"]) for cell in cells)] for what, *cells in data["rows"]
        ]
    return {"label": texts(language, "page")["names"], "head": data["engines"], "rows": rows}


def _company(at: At, language: str) -> dict[str, Any]:
    """How far texts in company are from those alone, in each arithmetic and under a wrong mask."""
    words = texts(language, "tables")["company"]

    def row(pair: str) -> list[str]:
        told = {name: value(name, at, pair) for name in ("differing", "compared", "drift", "lead")}
        shown = {name: number(found, language) for name, found in told.items()}  # type: ignore[arg-type]
        lead = shown["lead"] if told["differing"] else "–"
        return [words[pair], words["of"].format(**shown), shown["drift"], lead]

    head = [{"name": words[column], "url": None} for column in ("tokens", "drift", "lead")]
    return {"label": words["label"], "head": head, "rows": [row(pair) for pair in PAIRS]}


def _unmasked(at: At, language: str) -> dict[str, Any]:
    """The beginning of each text alone, and as a mask wrote it that let rows read their pads."""
    words = texts(language, "tables")["unmasked"]
    traces = [run(name) for name in PAIRS["unmasked"]]
    rows = [[letter(i), *(_short(trace.text(r)) for trace in traces)] for i, r in enumerate(traces[0].prompts)]
    return {
        "label": words["label"],
        "head": [{"name": words[column], "url": None} for column in ("right", "wrong")],
        "rows": rows,
    }


TABLES: dict[str, Callable[[At, str], dict[str, Any]]] = {"names": _names, "company": _company, "unmasked": _unmasked}


def _short(text: str) -> str:
    """The beginning of a text on one line, cut at a word."""
    line = text.strip().replace("\n", "↵")
    return line if len(line) <= _SHOWN else line[:_SHOWN].rsplit(" ", 1)[0] + " …"


@cache
def _names_file() -> dict[str, Any]:
    return json.loads((FOLDER / "names.json").read_text(encoding="utf-8"))
