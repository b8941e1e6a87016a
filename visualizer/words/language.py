"""Translates what is said. English is the source and the key (`core.trace.messages` has what a key is). Where an entry is missing, the English stays,
and `missing_keys` has its key for a test to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from core.config import ASSETS
from core.trace.messages import english, fill, key_of

T = TypeVar("T")
_HOLE = re.compile(r"\{\w+\}")
_SWAP = str.maketrans(",.", ".,")
_spoken: ContextVar[str] = ContextVar("inflight_language", default="en")
missing_keys: set[str] = set()


OTHERS = tuple(sorted(path.stem for path in (ASSETS / "words").glob("*.json")))
"""The languages beside English."""


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """From English to another language; empty for English. The page and Python share it."""
    return {} if language == "en" else json.loads((ASSETS / "words" / f"{language}.json").read_text(encoding="utf-8"))


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Sentences composed inside are in this language."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


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
    language = _spoken.get()
    if language == "en":
        return english(text)
    key, given = key_of(text)
    template = catalogue(language).get(key)
    if template is not None:
        return fill(template, given, language, _as_written)
    if not re.search("[A-Za-z]", _HOLE.sub("", text)):
        return fill(key, given, language, _as_written)
    missing_keys.add(key)
    return english(text)


def _as_written(part: str) -> str:
    """12,345.6 as 12.345,6; quoted text as it is."""
    return part if part.startswith("“") else part.translate(_SWAP)
