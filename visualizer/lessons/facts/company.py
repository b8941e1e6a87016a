"""Facts of a text written alone and the same text in company, from two recorded runs of the same requests: how far rounding moves a logit, how
near a tie it has to be to change a token, and how different a wrong mask is.
"""

from __future__ import annotations

from functools import cache as remembered

from core.assets import ASSETS
from core.trace.events import Sampled
from core.trace.trace import Trace
from visualizer.lessons.facts.fact import fact
from visualizer.lessons.places import At

PAIRS = {
    "float32": ("greedy-alone", "greedy-together"),
    "bf16": ("greedy-alone-bf16", "greedy-together-bf16"),
    "unmasked": ("greedy-alone", "mistakes/greedy-unmasked"),
}
"""What is compared: the run in which each is alone, and the one in which they are together."""


@fact
def differing(at: At, pair: str) -> int:
    """Tokens that are another in company."""
    return sum(a.token_id != b.token_id for ours, theirs in _written(pair) for a, b in zip(ours, theirs, strict=True))


@fact
def compared(at: At, pair: str) -> int:
    """Tokens of all requests."""
    return sum(len(ours) for ours, _ in _written(pair))


@fact
def drift(at: At, pair: str) -> float:
    """Most by which the log-probability of a token differs that both wrote after the same text."""
    same = [(a, b) for ours, theirs in _written(pair) for a, b in zip(ours[: _parts(ours, theirs)], theirs, strict=False)]
    return max(abs((a.logprob or 0.0) - (b.logprob or 0.0)) for a, b in same)


@fact
def lead(at: At, pair: str) -> float:
    """How far the best logit was ahead, alone, where a text parts: the most of all texts that do; 0 where none does."""
    parted = [ours[n].margin or 0.0 for ours, theirs in _written(pair) if (n := _parts(ours, theirs)) < len(ours)]
    return max(parted, default=0.0)


def parts_at(alone: Trace, together: Trace) -> int:
    """The first step of `together` that writes another token than `alone` has there; its last step where the texts are the same."""
    found = []
    for ours, theirs in _both(alone, together):
        if (n := _parts(ours, theirs)) < len(ours):
            found.append(next(e.step for e in together.events if any(s is theirs[n] for s in e.sampled)))
    return min(found, default=together.events[-1].step)


@remembered
def run(name: str) -> Trace:
    """A recorded run by its name."""
    return Trace.load(ASSETS / "traces" / f"{name}.jsonl")


@remembered
def _written(pair: str) -> list[tuple[list[Sampled], list[Sampled]]]:
    return _both(*(run(name) for name in PAIRS[pair]))


def _both(alone: Trace, together: Trace) -> list[tuple[list[Sampled], list[Sampled]]]:
    """The new tokens of each request, alone and together."""
    ours, theirs = ({r: [s for e in t.events for s in e.sampled if s.request == r] for r in t.prompts} for t in (alone, together))
    return [(ours[r], theirs[r]) for r in ours]


def _parts(ours: list[Sampled], theirs: list[Sampled]) -> int:
    return next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.token_id != b.token_id), len(ours))
