"""Words that sentences about a step are made of: names, numbers, plurals, reasons. Knows no step.

A sentence is a list of spans: plain text, or `{"r": request}` where the page draws the request's letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from core.trace.events import Pass, Why

Span = str | dict[str, str]
Sentence = list[Span]
NAMED = 4  # requests named before "and 7 more"


def plain(sentence: Sentence, name: Callable[[str], str] = str) -> str:
    """The sentence as text; `name` turns a request id into what is shown for it."""
    return "".join(span if isinstance(span, str) else name(span["r"]) for span in sentence)


def letter(index: int) -> str:
    """A … Z, AA …: the letter of the request that arrived as number `index`."""
    letters = ""
    while index >= 0:
        letters = chr(65 + index % 26) + letters
        index = index // 26 - 1
    return letters


def reason(why: Why) -> str:
    """The scheduler's reason in words, with its numbers."""
    if why.limit == "lanes":
        return "the one lane is taken" if why.total == 1 else f"all {why.total} lanes are taken"
    if why.limit == "budget":
        if not why.have:
            return f"the budget of {count(why.total, 'token')} is spent, and it needs {why.need}"
        return (
            f"{why.have} of {count(why.total, 'budget token')} {'is' if why.have == 1 else 'are'} left, and it needs {why.need}"
        )
    if why.limit == "blocks":
        return (
            f"it needs {count(why.need, 'KV block')}, and {why.have} of {why.total} {'is' if why.have == 1 else 'are'} to spare"
        )
    if why.limit == "barrier":
        return f"the wave must end first, and {why.have} of {count(why.total, 'lane')} still {'computes' if why.have == 1 else 'compute'}"
    if why.limit == "prefill":
        return "another prompt is being computed, one at a time"
    return "nothing binds"


def brief(why: Why) -> str:
    """The reason in a few words."""
    if why.limit == "budget" and why.have:
        return "too little budget is left"
    return {
        "lanes": "no lane is free", "budget": "the token budget is spent", "blocks": "too few KV blocks are free",
        "barrier": "the wave must end first", "prefill": "one prompt at a time", "none": "nothing binds",
    }[why.limit]  # fmt: skip


def once_more(again: int, total: int) -> str:
    """How much of what is computed was computed before."""
    return " again" if again == total else f", {again} of them again"


def padding_causes(passes: Sequence[Pass]) -> list[str]:
    """Where padding comes from: finished requests that are computed on, and rows shorter than the longest."""
    over = sum(len(p.finished_rows) for p in passes)
    positions_over = sum(len(p.finished_rows) * p.width for p in passes)
    shorter = sum(p.padding for p in passes) - positions_over
    causes = [f"{count(over, 'row')} of finished requests"] if over else []
    return causes + ([f"{shorter} to fill rows up to the longest"] if shorter else [])


def names(requests: Sequence[str], limit: int = NAMED) -> Sentence:
    """Letters side by side; many are counted: "A B C and 7 more"."""
    shown = requests if len(requests) <= limit + 1 else requests[:limit]
    spans: Sentence = []
    for request in shown:
        spans += [" "] * bool(spans) + [{"r": request}]
    if len(shown) < len(requests):
        spans.append(f" and {len(requests) - len(shown)} more")
    return spans


def joined(sentences: Iterable[Sentence], separator: str, end: str) -> Sentence:
    """One sentence of several clauses, neighbouring texts merged."""
    merged: Sentence = []
    for sentence in sentences:
        for span in [*([separator] if merged else []), *sentence]:
            if isinstance(span, str) and merged and isinstance(merged[-1], str):
                merged[-1] += span
            elif span:
                merged.append(span)
    if merged and isinstance(merged[-1], str):
        merged[-1] += end
    return merged


def count(number: int, noun: str) -> str:
    """A number with its noun in the right number."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def agree(actors: Sequence, one: str, many: str) -> str:
    """The verb that goes with so many actors."""
    return one if len(actors) == 1 else many


def ending(actors: Sequence, ending: str) -> str:
    return ending if len(actors) == 1 else ""


def milliseconds(seconds: float) -> str:
    """As the player writes a duration."""
    ms = seconds * 1000
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"
