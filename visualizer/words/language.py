"""Translates texts. English is the source and the key (see `core.trace.messages` for keys). If an
entry is missing, the English stays, and its key is added to `missing_keys`, which a test checks.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TypeVar

from core.config import ASSETS
from core.trace.messages import english, fill, key_of

T = TypeVar("T")
_HOLE = re.compile(r"\{\w+\}")
_SWAP = str.maketrans(",.", ".,")
_AS_IT_IS = re.compile(r"\d+(\.\d+){2,}$")
_spoken: ContextVar[str] = ContextVar("inflight_language", default="en")
missing_keys: set[str] = set()
COUNTS = {
    "en": [
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ],
    "de": [
        "kein",
        "ein",
        "zwei",
        "drei",
        "vier",
        "fünf",
        "sechs",
        "sieben",
        "acht",
        "neun",
        "zehn",
        "elf",
        "zwölf",
    ],
}
"""Numbers from zero on, as words."""


OTHERS = tuple(sorted(path.stem for path in (ASSETS / "words").glob("*.json")))
"""The languages beside English."""


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Translations from English, empty for English; the page and Python share them."""
    if language == "en":
        return {}
    return json.loads((ASSETS / "words" / f"{language}.json").read_text(encoding="utf-8"))


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Compose sentences in this language inside the block."""
    token = _spoken.set(language)
    try:
        yield
    finally:
        _spoken.reset(token)


def elsewhere(make: Callable[[], T]) -> dict[str, T]:
    """The results of `make` in each language other than English."""
    made = {}
    for language in OTHERS:
        with speaking(language):
            made[language] = make()
    return made


def t(text: str, **holes: str) -> str:
    """A piece of a sentence in the current language. holes: names, and translated texts."""
    said = _said(text, _spoken.get())
    if said is None:
        missing_keys.add(key_of(text)[0])
        said = english(text)
    return said.format(**holes) if holes else said


@lru_cache(maxsize=4096)  # the same pieces are tried again and again until a sentence fits
def _said(text: str, language: str) -> str | None:
    """The translation, None if there is no such entry."""
    if language == "en":
        return english(text)
    key, given = key_of(text)
    template = catalogue(language).get(key)
    if template is None and re.search("[A-Za-z]", _HOLE.sub("", text)):
        return None
    return fill(key if template is None else template, given, language, _as_written)


def _as_written(part: str) -> str:
    """Convert numbers and quotation marks to the German style: 12,345.6 becomes 12.345,6 and “a”
    „a“; quoted text and versions, like 0.68.1, stay as they are.
    """
    if part.startswith("“"):
        return f"„{part[1:-1]}“"
    return part if _AS_IT_IS.match(part) else part.translate(_SWAP)
