"""What a fact is: a named expression at a place, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.errors import InflightError
from core.trace.events import Pass, Segment
from visualizer.lessons.places import At


@dataclass(frozen=True)
class Who:
    """A request, drawn as its letter."""

    request: str


@dataclass(frozen=True)
class Share:
    """A part of a whole, written in per cent."""

    value: float


Value = int | float | str | Who | Share
Fact = Callable[..., Value]
FACTS: dict[str, Fact] = {}


def fact(function: Fact) -> Fact:
    FACTS[function.__name__] = function
    return function


def value(name: str, at: At, argument: str | None = None) -> Value:
    """The fact at a place; raises InflightError for one that is unknown or that the run does not have."""
    if name not in FACTS:
        raise InflightError(f"There is no fact {name!r}.")
    try:
        return FACTS[name](at) if argument is None else FACTS[name](at, argument)
    except (IndexError, StopIteration, ValueError, KeyError, TypeError) as error:
        raise InflightError(f"The fact {name} cannot be computed in step {at.step}: {error!r}.") from None


def positions_of(forward: Pass) -> int:
    """Positions that a pass computes, pads included."""
    return forward.rows * forward.width


def segment_of(at: At, letter: str) -> Segment:
    """A request's first segment of the step."""
    return next(s for s in at.event.segments if s.request == at.request(letter))


def cache_of(at: At, letter: str) -> int:
    """Positions in a request's cache when the step is over."""
    return next(r.kv_len for r in at.frame.lanes if r.request == at.request(letter))
