"""A run as pandas tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from core.account.delays import delays
from core.account.request_times import request_times
from core.errors import InflightError
from core.trace.trace import Trace, require_trace

if TYPE_CHECKING:
    import pandas


class Tables(NamedTuple):
    """steps: a row for each step. requests: a row for each request, with its times in seconds and
    where they went. segments: a row for each request in each pass.
    """

    steps: pandas.DataFrame
    requests: pandas.DataFrame
    segments: pandas.DataFrame


def tables(trace: Trace) -> Tables:
    """A run as tables of steps, requests and segments; raises InflightError without pandas."""
    require_trace(trace)
    try:
        from pandas import DataFrame
    except ImportError:
        raise InflightError(
            "Tables need the package pandas, which is not installed here."
        ) from None
    steps: list[dict[str, Any]] = [
        {
            "step": event.step,
            "t_start": event.t_start,
            "t_end": event.t_end,
            "arrived": len(event.arrived),
            "admitted": len(event.admitted),
            "running": len(event.running),
            "waiting": event.waiting.count,
            "preempted": len(event.preempted),
            "finished": len(event.finished),
            "passes": len(event.passes),
            "decode_tokens": event.budget.decode,
            "prefill_tokens": event.budget.prefill,
            "padding": sum(p.padding for p in event.passes),
            "new_tokens": len(event.sampled),
            "kv_blocks": event.kv.used,
            "binding": event.budget.binding,
            "schedule_s": event.timings.schedule,
            "forward_s": event.timings.forward,
        }
        for event in trace.events
    ]
    parts = {delay.request: delay.to_json()["us"] for delay in delays(trace).requests}
    requests = [
        {**times.to_json(), **{f"{part}_us": us for part, us in parts.get(request, {}).items()}}
        for request, times in request_times(trace).items()
    ]
    segments = [
        {"step": event.step, **segment._asdict()}
        for event in trace.events
        for segment in event.segments
    ]
    return Tables(DataFrame(steps), DataFrame(requests), DataFrame(segments))
