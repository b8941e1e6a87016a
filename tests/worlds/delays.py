"""What must hold of the parts of requests' times, in whatever run: they add up, leave no hole, and
agree with the metrics.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from core.account.delays import (
    AGAIN,
    NAMES,
    PREEMPTED,
    QUEUED,
    STALLED,
    WORST,
    Delays,
    delays,
    microseconds,
    spans,
)
from core.account.request_times import request_times
from core.trace.trace import Trace


def adds_up(trace: Trace) -> Delays:
    """The delays of a trace, each of them checked against the trace."""
    found, lives, pieces = delays(trace), request_times(trace), spans(trace)
    arrived = {a.request: (i, a.t) for i, e in enumerate(trace.events) for a in e.arrived}
    preempted = {p.request for e in trace.events for p in e.preempted}
    assert [d.request for d in found.requests] == list(arrived) == list(pieces)
    for d in found.requests:
        life, (first, arrival) = lives[d.request], arrived[d.request]
        assert (
            sum(d.us) == d.whole_us and sum(d.steps) == d.whole_steps and min(*d.us, *d.steps) >= 0
        )
        assert (
            sum(d.queued_us.values()) == d.us[QUEUED]
            and sum(d.queued_steps.values()) == d.steps[QUEUED]
        )
        assert (
            d.start_us == microseconds(arrival) and d.uncompared_us <= d.us[NAMES.index("decode")]
        )
        _tile(d, pieces[d.request])
        if life.e2e_s is not None:
            assert d.whole_us == pytest.approx(life.e2e_s * 1e6, abs=1)
        if life.queue_s is not None and d.request not in preempted and not d.steps[STALLED]:
            assert d.us[QUEUED] == pytest.approx(life.queue_s * 1e6, abs=1)
        over = next((i for i, e in enumerate(trace.events) if e.step == life.finish_step), None)
        last = len(trace.events) - 1 if over is None else over - (life.finish_reason == "cancelled")
        assert d.whole_steps == last - first + 1 and (d.reason is None) == (over is None)
        if d.request not in preempted:
            assert not d.us[PREEMPTED] and not d.us[AGAIN]
    gaps = sorted((round(gap * 1e6) for life in lives.values() for gap in life.itl_s), reverse=True)
    assert len(found.gaps) <= WORST and [g.whole_us for g in found.gaps[:1]] == pytest.approx(
        [g for g in gaps[:1] if g], abs=1
    )
    for gap in found.gaps:
        assert sum(gap.us) == gap.whole_us
    return found


def _tile(d, pieces) -> None:
    """The pieces lie one behind the other, and are what the parts count."""
    assert [p.start for p in pieces[:1]] == [d.start_us][: len(pieces)]
    assert all(a.end == b.start and a.start < a.end for a, b in pairwise(pieces))
    for part in range(len(NAMES)):
        assert sum(p.end - p.start for p in pieces if p.part == part) == d.us[part]
    for limit, us in d.queued_us.items():
        assert sum(p.end - p.start for p in pieces if p.limit == limit) == us
