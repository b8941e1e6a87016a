"""Sentences with numbers, in any language. assets/player/parts/messages.js does the same for the
page.

English is the key: in it every number, and every sum of numbers, becomes #, and quoted text “…”.
Where a form depends on a number, the forms are listed side by side, one for each plural category of
the language, in the order zero, one, two, few, many, other: "3 [token|tokens]". They agree with the
number before them (or the first number, if none comes before), or with a number of their own, which
is not shown: "[=3 waits|wait]".
"""

import re
from collections.abc import Callable, Sequence

_PARTS = re.compile(r"“[^”]*”|\d+(?:[.,]\d+)*(?: \+ \d+(?:[.,]\d+)*)*")
_HOLES = re.compile(r"\[(=# )?([^\[\]|]*(?:\|[^\[\]|]*)+)\]|#|“…”")


def key_of(text: str) -> tuple[str, list[str]]:
    """The key of a text, and the values of its placeholders."""
    key = _PARTS.sub(lambda part: "“…”" if part[0].startswith("“") else "#", text)
    return key, _PARTS.findall(text)


def fill(
    template: str, given: Sequence[str], language: str, written: Callable[[str], str] = str
) -> str:
    """Fill a template's placeholders in order, as far as given. written: writes a value."""
    parts, number = iter(given), next(iter(given), "0")

    def filled(hole: re.Match[str]) -> str:
        nonlocal number
        own, forms = hole.groups()
        part = next(parts, None) if own or forms is None else number
        if part is None:
            return hole[0]
        if hole[0] != "“…”":
            number = part
        return written(part) if forms is None else forms.split("|")[_PLACES[language](_value(part))]

    return _HOLES.sub(filled, template)


def english(text: str) -> str:
    """An English text with the plural forms that its numbers require."""
    return fill(*key_of(text), "en") if "[" in text else text


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if words[1:] else words[0]


def _one_or_other(number: float) -> int:
    return int(number != 1)


_PLACES: dict[str, Callable[[float], int]] = {"en": _one_or_other, "de": _one_or_other}
"""By language, the index of the form that a number takes, by the plural rules of Unicode. Browsers
have these rules built in, and a test compares them with one browser's.
"""


def _value(number: str) -> float:
    """ "1,234 + 2" is 1236."""
    value = sum((float(part.replace(",", "")) for part in number.split(" + ")), 0.0)
    return int(value) if value.is_integer() else value
