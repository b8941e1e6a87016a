"""The walk over a run that all its numbers are based on: each event, the state while its passes
run, and what they compute for each request.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from core.trace.events import Segment, StepEvent
from core.trace.run_state import RunState
from core.trace.trace import Trace


class Computed(NamedTuple):
    """What a pass computes for a request. again: positions that had been computed for it before and
    were discarded; those of a rejected draft do not count, since the token was another one. tokens:
    how many tokens the request got.
    """

    segment: Segment
    again: int
    tokens: int


class Moment(NamedTuple):
    """A step. state: while its passes run. rows: by request, one entry for each pass."""

    event: StepEvent
    state: RunState
    rows: dict[str, list[Computed]]


def walk(trace: Trace) -> Iterator[Moment]:
    """The run, step by step. The state object is reused: read it at once, or copy it."""
    reached: dict[str, int] = {}  # the most positions computed so far, by request
    for event, state in trace.states():
        for carried in event.resumed.carried if event.resumed else ():
            reached[carried.request] = max(reached.get(carried.request, 0), carried.computed)
        rejected = {draft.request: draft.drafted - draft.accepted for draft in event.drafts}
        tokens = Counter([(s.request, s.pass_index) for s in event.sampled])
        rows: dict[str, list[Computed]] = {}
        for segment in event.segments:
            request, start, end = segment.request, segment.start, segment.kv_len
            high = reached.get(request, 0)
            again = min(end, high) - start if start < high else 0
            end -= rejected.get(request, 0)
            if end > high:
                reached[request] = end
            got = tokens[request, segment.pass_index]
            rows.setdefault(request, []).append(Computed(segment, again, got))
        yield Moment(event, state, rows)
