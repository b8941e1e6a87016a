"""Texts of lessons: templates, one file per lesson and language, filled with facts of a place
(`visualizer.lessons.facts`).

    {forward.padding}           a fact at the stop's own place
    {forward.padding|pad|pads}  with its noun, in singular or plural
    {metrics.lane_occupancy%}   the same in per cent
    {metrics.steps@static}      a fact at another place of the stop
    {metrics.requests!word}     a small number as a word; {seconds_packed!2}: with so many decimals
    {B}                         a request, drawn as its letter
    [lane] [lanes|lane]         a term of the glossary
    <Press →|Tap the arrow>     instructions for mouse and keyboard, or for touch

A sentence is a list of spans: text, `{"r": letter}`, `{"n": number as text}`, `{"t": term, "s":
text}` or `{"keys": text, "touch": text}`.
"""

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from core.config import ASSETS
from core.errors import InflightError, shown
from visualizer.lessons.facts import At, Value, Who, fact
from visualizer.words.language import COUNTS

FOLDER = ASSETS / "lessons"
LANGUAGES = {"en": "English", "de": "Deutsch"}
Span = str | dict[str, str]

_PART = re.compile(r"\{([^{}]+)\}|\[([^\[\]]+)\]|<([^<>|]+)\|([^<>|]+)>")
_FACT = re.compile(r"(?P<path>[\w.]+)(?P<share>%)?(?:@(?P<place>\w+))?(?:!(?P<how>[Ww]ord|\d))?")


@cache
def texts(language: str, name: str) -> dict[str, Any]:
    """The texts of a file; raises InflightError for an unknown language or a missing file."""
    path = FOLDER / language / f"{name}.toml"
    if language not in LANGUAGES or not path.exists():
        raise InflightError(f"There is no text {shown(name)} in {shown(language)}.")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def languages(name: str) -> list[str]:
    """The languages in which a file exists, English first."""
    return [language for language in LANGUAGES if (FOLDER / language / f"{name}.toml").exists()]


def filled(template: str, at: At, places: Mapping[str, At], language: str) -> list[Span]:
    """The template as spans; raises InflightError for an unknown fact, place or request."""
    spans: list[Span] = []
    last = 0
    for match in _PART.finditer(template):
        spans += [template[last : match.start()]] * bool(template[last : match.start()])
        if match[3]:
            spans.append({"keys": match[3], "touch": match[4]})
        elif match[2]:
            words, _, key = match[2].partition("|")
            spans.append({"t": key or words, "s": words})
        else:
            spans += _fact(match[1], at, places, language)
        last = match.end()
    return spans + [template[last:]] * bool(template[last:])


def evaluated(expression: str, at: At, places: Mapping[str, At]) -> tuple[Value, At]:
    """The fact of an expression, and the place that it was taken from."""
    match = _FACT.fullmatch(expression)
    if match is None:
        raise InflightError(f"This is not a fact: {{{expression}}}.")
    if match["place"] and match["place"] not in places:
        raise InflightError(f"There is no place {match['place']!r} for {{{expression}}}.")
    there = places[match["place"]] if match["place"] else at
    return fact(match["path"], there), there


def by_pointer(text: str) -> str | dict[str, str]:
    """A text of the page that may have two forms, `<by mouse and keyboard|by touch>`: as it is, or
    `{"keys": text, "touch": text}`.
    """
    whole = _PART.fullmatch(text)
    return {"keys": whole[3], "touch": whole[4]} if whole and whole[3] else text


def plain(spans: list[Span]) -> str:
    """Spans as text, with the instructions for mouse and keyboard."""
    return "".join(
        s if isinstance(s, str) else s.get("s") or s.get("n") or s.get("keys") or s.get("r", "")
        for s in spans
    )


def number(found: int | float, language: str, share: bool = False, how: str = "") -> str:
    """A number as the language writes it. share: in percent. how: "word", "Word", or decimals."""
    if share:
        return f"{found * 100:.0f} %"
    if how in ("word", "Word") and isinstance(found, int) and found < len(COUNTS[language]):
        return COUNTS[language][found].capitalize() if how == "Word" else COUNTS[language][found]
    if how.isdigit():
        text = f"{found:,.{how}f}"
    elif isinstance(found, int):
        text = f"{found:,}"
    else:
        text = f"{found:.1f}" if found >= 1 else format(Decimal(f"{found:.2g}"), "f")
    return text.translate(str.maketrans(",.", ".,")) if language == "de" else text


def _fact(text: str, at: At, places: Mapping[str, At], language: str) -> list[Span]:
    if re.fullmatch("[A-Z]", text):
        at.request(text)  # raises if there is none
        return [{"r": text}]
    expression, *nouns = text.split("|")
    found, there = evaluated(expression, at, places)
    span: Span
    if isinstance(found, Who):
        span = {"r": there.letters[found.request]}
    elif isinstance(found, str):
        span = found
    else:
        how = expression.partition("!")[2]
        span = {"n": number(found, language, share="%" in expression, how=how)}
    return [span, f" {nouns[found != 1]}"] if nouns else [span]
