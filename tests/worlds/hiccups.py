"""Steps that something other than the run held up: with one of them nothing is recorded to ship."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from core.account.pass_sizes import PassSizes, microseconds
from core.trace.events import StepEvent

FAR = 5.0  # times as long as others of its kind


def far_steps(
    events: Sequence[StepEvent], like: Iterable[Sequence[StepEvent]] = ()
) -> list[tuple[int, float]]:
    """The steps far from their kind, each with how many times as long it took as other passes of
    its passes' sizes, with what lies between its passes; the farthest first. like: further rounds
    of the run, whose passes tell how long a kind takes as its own do.
    """
    sizes = PassSizes(chain(events, *like))

    def times_of(event: StepEvent) -> float:
        others = [sizes._others(j, event) for j in range(len(event.passes))]
        if not others or not all(others):
            return 0.0
        took = microseconds(event.t_end) - microseconds(event.t_start)
        return took / sum(filter(None, others))

    found = ((event.step, times_of(event)) for event in events)
    return sorted(((step, times) for step, times in found if times > FAR), key=lambda far: -far[1])
