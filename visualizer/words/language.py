"""Translates what is said. English is the source and the key: in a key every number, and every sum of numbers, is written #, so
that one entry stands for all of them. Where an entry is missing, the English stays, and `missing` has its key for a test
to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count

from core.assets import ASSETS

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?: \+ \d+(?:[.,]\d+)*)*")
_said: ContextVar[Mapping[str, str] | None] = ContextVar("inflight_language", default=None)
missing: set[str] = set()


@cache
def catalogue(language: str) -> Mapping[str, Mapping[str, str]]:
    """By part, "sentences" about steps and "labels" of the player: English to another language; empty for English."""
    if language == "en":
        return {"sentences": {}, "labels": {}}
    return json.loads((ASSETS / "words" / f"{language}.json").read_text(encoding="utf-8"))


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Sentences composed inside are in this language."""
    token = _said.set(None if language == "en" else catalogue(language)["sentences"])
    try:
        yield
    finally:
        _said.reset(token)


def t(text: str) -> str:
    """A piece of a sentence in the language that is spoken."""
    words = _said.get()
    if words is None or not re.search("[A-Za-z]", text):
        return text
    numbers = _NUMBER.findall(text)
    key = _NUMBER.sub("#", text)
    if key not in words:
        missing.add(key)
        return text
    at = count()
    return re.sub(r"#", lambda _: _as_written(numbers[next(at)]), words[key])


def _as_written(number: str) -> str:
    """12,345.6 as 12.345,6."""
    return number.translate(str.maketrans(",.", ".,"))
