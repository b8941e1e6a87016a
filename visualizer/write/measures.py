"""The measures of tasks, which depend on decisions alone: steps, tokens, counts, but no seconds."""

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from core.account.metrics import metrics
from core.account.request_times import request_times
from core.trace.trace import Trace


class Measure(NamedTuple):
    """of: computes the number. asks: the goal as a sentence, with {n} for the limit. says: the
    result of a run, with {n} for its number. never: the goal if the limit is 0.
    """

    of: Callable[[Trace], float]
    asks: str
    says: str
    never: str = ""

    def goal(self, limit: float) -> str:
        return self.never if self.never and not limit else self.asks.format(n=f"{limit:,}")

    def found(self, trace: Trace) -> str:
        return self.says.format(n=f"{self.of(trace):,}")


def _overtaken(trace: Trace) -> int:
    """The most requests that were admitted before one that had arrived earlier."""
    arrived = [arrived.request for event in trace.events for arrived in event.newcomers]
    order = {request: place for place, request in enumerate(arrived)}
    admitted = (admitted.request for event in trace.events for admitted in event.admitted)
    places = [order[request] for request in dict.fromkeys(admitted)]
    # a request that was never admitted was overtaken by all later ones that were
    places += sorted(set(order.values()) - set(places))
    return max(
        (sum(other > mine for other in places[:at]) for at, mine in enumerate(places)), default=0
    )


def _first_token(trace: Trace) -> float:
    """Steps from arrival to the first token, both included: the mean over requests that got one."""
    waits = [
        times.first_token_step - times.arrival_step + 1
        for times in request_times(trace).values()
        if times.first_token_step is not None and times.arrival_step is not None
    ]
    return round(fmean(waits), 1) if waits else 0.0


def _busy(trace: Trace) -> list[tuple[int, int]]:
    """For each step: lanes that computed or stalled, and requests that waited."""
    held = [
        {s.request for s in event.segments} | {s.request for s in event.stalled}
        for event in trace.events
    ]
    return [(len(lanes), e.waiting.count) for lanes, e in zip(held, trace.events, strict=True)]


def _stalled(trace: Trace) -> int:
    """Steps in which a request that already had a token got no next one, summed over requests."""
    writing: set[str] = set()
    count = 0
    for event in trace.events:
        count += sum(stalled.request in writing for stalled in event.stalled)
        writing |= {request for request, _ in event.tokens}
        writing -= {gone.request for gone in event.preempted}
    return count


def _largest(trace: Trace) -> int:
    """Positions of the largest step in which a request decodes."""
    decoding = (e for e in trace.events if any(s.phase == "decode" for s in e.segments))
    return max((sum(p.tokens for p in event.passes) for event in decoding), default=0)


MEASURES: dict[str, Measure] = {
    "overtaken": Measure(
        _overtaken,
        "Nobody is overtaken by more than {n} [request|requests] that came later.",
        "The most that overtook one request: {n}.",
        "Nobody joins before a request that came earlier.",
    ),
    "steps": Measure(
        lambda trace: len(trace.events),
        "All is done within {n} [step|steps].",
        "The run takes {n} [step|steps].",
    ),
    "empty": Measure(
        lambda trace: sum(
            trace.config.num_lanes - busy for busy, waiting in _busy(trace) if waiting
        ),
        "At most {n} [lane is|lanes are] empty while somebody waits, all steps together.",
        "Lanes empty while somebody waited, all steps together: {n}.",
        "No lane is empty while somebody waits.",
    ),
    "alone": Measure(
        lambda trace: sum(busy == 1 and waiting > 0 for busy, waiting in _busy(trace)),
        "At most {n} [step|steps] with one request alone while others wait.",
        "Steps with one alone: {n}.",
    ),
    "first_token": Measure(
        _first_token,
        "A first token comes after at most {n} [step|steps], on average.",
        "On average the first token comes after {n} [step|steps].",
    ),
    "recomputed": Measure(
        lambda trace: metrics(trace)["tokens_recomputed"],
        "At most {n} [position is|positions are] computed twice.",
        "Positions computed twice: {n}.",
    ),
    "preempted": Measure(
        lambda trace: metrics(trace)["preemptions"],
        "At most {n} times a request has to give way.",
        "Times that a request had to give way: {n}.",
        "No request ever has to give way.",
    ),
    "stalled": Measure(
        _stalled,
        "At most {n} times a request that has begun to write has to wait for its next token.",
        "Times that a request waited for its next token: {n}.",
        "Whoever has begun to write gets a token in every step.",
    ),
    "largest": Measure(
        _largest,
        "While somebody decodes, no step computes more than {n} [position|positions].",
        "The largest step in which somebody decodes has {n} [position|positions].",
    ),
}
