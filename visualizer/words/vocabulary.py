"""The building blocks of sentences about a step. A sentence is a list of spans: plain text, or
`{"r": request}`, for which the page draws the letter of the request. `core.trace.phrases` has the
words for limits.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

from core.trace.events import Pass
from visualizer.words.language import t

Span = str | dict[str, str]
Sentence = list[Span]
NAMED = 4  # requests named before "and 7 more"


class AsItIs(str):
    """Text by others that is not translated: [a|b] and # in it have no meaning."""


def plain(sentence: Sentence, name: Callable[[str], str] = str) -> str:
    """The sentence as text; `name` gives the name shown for a request id."""
    return "".join(span if isinstance(span, str) else name(span["r"]) for span in sentence)


def once_more(again: int, total: int) -> str:
    """How much of a computation is repeated."""
    return " again" if again == total else f", {again:,} of them again"


def padding_causes(passes: Sequence[Pass]) -> Sentence:
    """The causes of padding: finished rows, and rows shorter than the longest."""
    over = sum(len(p.finished_rows) for p in passes)
    positions_over = sum(len(p.finished_rows) * p.width for p in passes)
    shorter = sum(p.padding for p in passes) - positions_over
    causes: Sentence = [f"{over:,} [row|rows] of finished requests"] if over else []
    return (
        causes
        + [" and "] * bool(over and shorter)
        + [f"{shorter:,} to fill rows up to the longest"] * bool(shorter)
    )


def names(requests: Sequence[str], limit: int = NAMED) -> Sentence:
    """Letters side by side, and the rest as a number: "A B C and 7 more"."""
    shown = requests if len(requests) <= limit + 1 else requests[:limit]
    spans: Sentence = []
    for request in shown:
        spans += [" "] * bool(spans) + [{"r": request}]
    if len(shown) < len(requests):
        spans.append(f" and {len(requests) - len(shown):,} more")
    return spans


def said(sentence: Sentence) -> Sentence:
    """The sentence in the current language, piece by piece; adjacent texts are merged."""
    merged: Sentence = []
    for span in sentence:
        spoken = span if isinstance(span, dict | AsItIs) else t(span)
        if isinstance(spoken, str) and merged and isinstance(merged[-1], str):
            merged[-1] += spoken
        elif spoken:
            merged.append(spoken)
    return merged


def joined(sentences: Iterable[Sentence], separator: str, end: str) -> Sentence:
    """One sentence made of several clauses, in the current language."""
    spans: Sentence = []
    for sentence in sentences:
        spans += [separator] * bool(spans) + sentence
    return said(spans + [end] * bool(spans))


def milliseconds(seconds: float) -> str:
    """A duration as the player writes it: halves are rounded up, as in JavaScript."""
    ms = seconds * 1000
    if ms >= 9_999.5:
        return f"{_half_up(ms / 1000, '0.1')} s"
    return f"{_half_up(ms, '1' if ms >= 100 else '0.1' if ms >= 10 else '0.01')} ms"


def _half_up(value: float, places: str) -> Decimal:
    return Decimal(value).quantize(Decimal(places), ROUND_HALF_UP)
