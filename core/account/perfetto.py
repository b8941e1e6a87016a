"""A trace as Chrome trace events, which ui.perfetto.dev and chrome://tracing open: a track for each
lane, counters for budget and KV and, in a separate process, a track for the time of each request.

Times are microseconds since the run began.
"""

from typing import Any

from core.account.delays import NAMES, SHARE_NAMES, spans
from core.trace.events import Finished, Pass, StepEvent
from core.trace.phrases import letters
from core.trace.trace import Trace

_PID, _REQUESTS = 1, 2
_ENGINE = 0  # the track of steps and passes; lane n is track n + 1


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """The JSON object of a file for Perfetto."""
    lanes = 1 + max((s.lane for e in trace.events for s in e.segments), default=-1)
    simulated = "simulated: " if trace.header.is_simulated else ""
    model = trace.header.model.name or "model"
    events = [_name("process_name", 0, f"{simulated}{model}, {trace.config.policy.name}")]
    events += [_name("thread_name", _ENGINE, "engine")] + [
        _name("thread_name", n + 1, f"lane {n}") for n in range(lanes)
    ]
    for event in trace.events:
        events += _engine(event) + _lanes(event) + _instants(event) + _counters(event)
    events += _requests(trace, lanes + 1)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"source": trace.header.source},
    }


def _engine(event: StepEvent) -> list[dict[str, Any]]:
    args: dict[str, object] = {
        "schedule_s": event.timings.schedule,
        "binding": event.budget.binding,
        "waiting": event.waiting.count,
    }
    slices = [_took(f"step {event.step}", _ENGINE, event, args)]
    for index, forward in enumerate(event.passes):
        args = {"layout": forward.layout, "tokens": forward.tokens, "padding": forward.padding}
        slices.append(_took(f"pass {index}", _ENGINE, forward, args))
    return slices


def _lanes(event: StepEvent) -> list[dict[str, Any]]:
    slices = []
    for s in event.segments:
        forward = event.passes[s.pass_index]
        args = {"step": event.step, "start": s.start, "tokens": s.length, "kv_len": s.kv_len}
        slices.append(_took(f"{s.request} {s.phase}", s.lane + 1, forward, args))
    for forward in event.passes:
        slices += [
            _took(f"{row.request} padding", row.lane + 1, forward, {"step": event.step})
            for row in forward.finished_rows
        ]
    return slices


def _instants(event: StepEvent) -> list[dict[str, Any]]:
    lane = {r.request: r.lane for r in event.released} | {s.request: s.lane for s in event.segments}
    marks = [(f"{a.request} arrives", _ENGINE, a.t) for a in event.arrived]
    marks += [(f"{p.request} preempted", p.lane + 1, event.t_start) for p in event.preempted]
    if (gap := event.resumed) is not None:
        marks.append((f"steps {gap.first} to {gap.last} are not shown", _ENGINE, event.t_start))
        marks += [(f"{a.request} arrives", _ENGINE, a.t) for a in gap.arrived]
    marks += [
        (f"{f.request} {f.finish_reason}", lane.get(f.request, _ENGINE - 1) + 1, _moment(f, event))
        for f in event.ends
    ]
    return [
        {"name": n, "ph": "i", "s": "t", "pid": _PID, "tid": tid, "ts": _us(t)}
        for n, tid, t in marks
    ]


def _moment(ended: Finished, event: StepEvent) -> float:
    """When a request ended: as recorded, or else at the start or the end of the step. A request
    that ended in steps that are not shown ended before the start.
    """
    if ended.t is not None:
        return ended.t
    is_after = ended.when != "before" and ended in event.finished  # in this step itself
    return event.t_end if is_after else event.t_start


def _counters(event: StepEvent) -> list[dict[str, Any]]:
    budget = event.budget
    tokens = {"decode": budget.decode, "prefill": budget.prefill, "unused": budget.unused}
    counts = {
        "tokens in the step": tokens,
        "KV blocks": {"used": event.kv.used, "free": event.kv.total - event.kv.used},
        "waiting": {"requests": event.waiting.count},
    }
    return [
        {"name": n, "ph": "C", "pid": _PID, "ts": _us(event.t_start), "args": args}
        for n, args in counts.items()
    ]


def _requests(trace: Trace, first: int) -> list[dict[str, Any]]:
    """The parts of each request's time, in order. first: the number of the first free track."""
    events = [_name("process_name", 0, "requests: where their time went", _REQUESTS)]
    names = letters(trace)
    for track, (request, pieces) in enumerate(spans(trace).items(), first):
        events.append(_name("thread_name", track, f"{names[request]} {request}", _REQUESTS))
        for piece in pieces:
            args = {"limit": piece.limit} if piece.limit else {}
            took = piece.end - piece.start
            name = SHARE_NAMES[NAMES[piece.part]]
            events.append(_slice(name, track, piece.start, took, args, _REQUESTS))
    return events


def _slice(
    name: str, tid: int, ts: float, dur: float, args: dict[str, Any], pid: int = _PID
) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _took(name: str, tid: int, of: StepEvent | Pass, args: dict[str, Any]) -> dict[str, Any]:
    return _slice(name, tid, _us(of.t_start), _us(of.t_end - of.t_start), args)


def _name(kind: str, tid: int, name: str, pid: int = _PID) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
