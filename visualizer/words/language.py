"""Translates what is said. English is the source and the key: in a key every number, and every sum of numbers, is written #, so
that one entry stands for all of them. Where an entry is missing, the English stays, and `missing` has its key for a test
to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import count
from typing import TypeVar

from core.assets import ASSETS

T = TypeVar("T")
_HOLE = re.compile(r"\{\w+\}")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?: \+ \d+(?:[.,]\d+)*)*")
_said: ContextVar[Mapping[str, str] | None] = ContextVar("inflight_language", default=None)
missing: set[str] = set()


OTHERS = tuple(sorted(path.stem for path in (ASSETS / "words").glob("*.json")))
"""The languages beside English."""


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


def elsewhere(make: Callable[[], T]) -> dict[str, T]:
    """What is made when each language beside English is spoken, by language."""
    made = {}
    for language in OTHERS:
        with speaking(language):
            made[language] = make()
    return made


def t(text: str, **holes: str) -> str:
    """A piece of a sentence in the language that is spoken. holes: what stands in it at {name}: names, and what is in that language already."""
    said = _translated(text)
    return said.format(**holes) if holes else said


def _translated(text: str) -> str:
    words = _said.get()
    if words is None:
        return text
    numbers = _NUMBER.findall(text)
    key = _NUMBER.sub("#", text)
    if key not in words:
        if not re.search("[A-Za-z]", _HOLE.sub("", text)):
            return _NUMBER.sub(lambda n: _as_written(n[0]), text)
        missing.add(key)
        return text
    at = count()
    return re.sub(r"#", lambda _: _as_written(numbers[next(at)]), words[key])


def _as_written(number: str) -> str:
    """12,345.6 as 12.345,6."""
    return number.translate(str.maketrans(",.", ".,"))
