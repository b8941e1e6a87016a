"""What must hold for any engine's event so that it can be followed: every request it names has
arrived; a lane is free or held as it says; blocks, lanes and passes exist; counts are valid. An
event that breaks any of this is refused. `core.trace.rules.checker` has further rules; another
engine's event that breaks one of those is shown with a warning.

Each function says in words what is wrong with its part of the event, given the state before that
part, or returns None. It does not depend on policies.
"""

from collections.abc import Iterable

from core.trace.events import BeforeOrAfter, Pass, Segment, StepEvent
from core.trace.header import Header
from core.trace.rules.bounds import in_order
from core.trace.run_state import RunState
from core.trace.schema import misshapen

FINISH_REASONS = ("length", "stop", "cancelled", "error")
_PHASES = ("prefill", "decode")
_LONGEST = 1e16  # seconds


def quoted(name: str) -> str:
    """A request's id in quotation marks, with unprintable characters escaped."""
    return f"“{repr(name)[1:-1]}”"


def shape(event: StepEvent, step: int, t: float) -> str | None:
    """Checks the form of an event. step, t: the number and the end of the event before."""
    if wrong := misshapen(event):
        return f"the values of {wrong} are of the wrong kind"
    if event.step <= step:
        return "steps are counted from 0" if event.step < 0 else f"it follows step {step}"
    if event.t_end > _LONGEST:
        return "it ends later than any clock shows"
    return None if in_order(event, t) else "its times run backwards"


def arrivals(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about arrivals: requests that are unknown, or there already."""
    come = set(state.arrived)
    for arrived in event.arrived:
        if arrived.request not in state.num_tokens or arrived.request in come:
            return f"request {quoted(arrived.request)} cannot arrive"
        come.add(arrived.request)
    return None


def cancellations(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about cancellations, and ends with an unknown reason."""
    for finished in event.finished:
        request, reason = finished.request, finished.finish_reason
        if reason not in FINISH_REASONS:
            return f"request {quoted(request)} cannot finish by “{reason}”"
        if (
            finished.when == "before"
            and request not in state.waiting
            and request not in state.running
        ):
            return f"request {quoted(request)} cannot be cancelled"
    if _twice(f.request for f in event.finished):
        return "a request finishes twice"
    return _leaving(event, state, "before")


def preemptions(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about preemptions: of requests not in that lane, over, or twice."""
    for preempted in event.preempted:
        request, lost, lane = preempted.request, preempted.tokens_lost, preempted.lane
        if state.lanes.get(lane) != request or request in state.finished or lost < 0:
            return f"request {quoted(request)} was not running as the preemption says"
    return "a request is preempted twice" if _twice(p.request for p in event.preempted) else None


def admissions(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about admissions: requests not in the queue, lanes not free."""
    taken, joined = set(state.lanes), set[str]()
    for admitted in event.admitted:
        request, lane = admitted.request, admitted.lane
        if request not in state.waiting or request in joined:
            return f"request {quoted(request)} was admitted before another that came first"
        if lane in taken:
            return f"lane {lane} is taken"
        if not 0 <= lane < header.config.num_lanes:
            return f"there is no lane {lane}"
        taken.add(lane)
        joined.add(request)
    hits = event.kv.cached_tokens
    if not hits.keys() <= joined:
        return "a prefix was found for a request that was not admitted"
    if len(hits) < len(event.kv.prefix_hits):
        return "a prefix was found twice for one request"
    for request, cached in hits.items():
        if not 0 <= cached < state.num_tokens[request]:
            return f"a prefix of {cached} tokens cannot be found for request {quoted(request)}"
    return None


def queue(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about the queue: its requests, its head, its length, its reason."""
    count, head, why = event.waiting
    if event.queue and sorted(event.queue) != sorted(state.waiting):
        return "its queue is not made of those that wait"
    is_known = head is None or (head in state.arrived and head not in state.finished)
    if count < 0 or not is_known or (why is None) != (head is None):
        return "its queue is impossible"
    return None


def blocks(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about the KV blocks: their numbers, their holders."""
    used, total = event.kv.used, event.kv.total
    if total != header.num_blocks:
        return f"the pool does not have {total} blocks"
    if not 0 <= used <= total:
        return f"{used} of {total} blocks cannot be in use"
    holders = set(state.lanes.values())
    for change in event.kv.changes:
        if change.request not in state.arrived:
            return f"request {quoted(change.request)} has blocks but never arrived"
        if not 0 <= change.group < len(header.groups):
            return f"there is no KV cache group {change.group}"
        if any(b is not None and not 0 <= b < total for b in change.added):
            return f"request {quoted(change.request)} got a block that the pool does not have"
        if change.added and change.request not in holders:
            return f"request {quoted(change.request)} got blocks but is not running"
    return None


def passes(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about the computation: passes, segments, tokens, drafts."""
    if {s.pass_index for s in event.segments} != set(range(len(event.passes))):
        return "segments and passes do not match"
    for index, forward in enumerate(event.passes):
        if fault := _pass(
            index, forward, [s for s in event.segments if s.pass_index == index], state
        ):
            return fault
    is_double = _twice(draft.request for draft in event.drafts)
    for draft in event.drafts:
        length = sum([s.length for s in event.segments if s.request == draft.request])
        if is_double or not 0 <= draft.accepted <= draft.drafted < max(1, length):
            return (
                f"{draft.drafted} tokens cannot have been drafted for request"
                f" {quoted(draft.request)}"
            )
    room = sum([s.length for s in event.segments])
    for s in event.segments:
        if state.lanes.get(s.lane) != s.request:
            return f"request {quoted(s.request)} does not hold lane {s.lane}"
        if s.length < 1 or s.start < 0 or s.kv_len != s.start + s.length:
            return f"request {quoted(s.request)} computes positions that do not follow its cache"
        if s.kv_len > state.num_tokens[s.request] + room:
            return f"request {quoted(s.request)} computes tokens that it does not have"
        if s.phase not in _PHASES:
            return f"request {quoted(s.request)} is not in the phase “{s.phase}”"
    holders = set(state.lanes.values())
    if any(not 0 <= s.pass_index < len(event.passes) for s in event.sampled):
        return "a token was sampled in no pass"
    for sampled in event.sampled:
        if sampled.request not in holders or sampled.token_id < 0:
            return (
                f"token {sampled.token_id} of request {quoted(sampled.request)} is not one that can"
                " be sampled"
            )
    computing = {s.request for s in event.segments}
    if (
        not {row.request for row in event.overrun} <= computing
        or not {s.request for s in event.stalled} <= holders
    ):
        return "an overrun or a stall names a request without a lane"
    return None


def _pass(index: int, forward: Pass, segments: list[Segment], state: RunState) -> str | None:
    padded = forward.layout == "padded"
    over = forward.finished_rows
    lengths = [s.length for s in segments]
    if forward.layout not in ("packed", "padded") or (over and not padded):
        return f"pass {index} has an unknown layout"
    rows, width = (len(segments) + len(over), max(lengths)) if padded else (1, sum(lengths))
    positions = (rows, width, sum(lengths), rows * width - sum(lengths))
    if (forward.rows, forward.width, forward.tokens, forward.padding) != positions:
        return f"the positions of pass {index} do not add up"
    if any(r.request not in state.finished or state.lanes.get(r.lane) != r.request for r in over):
        return f"pass {index} computes a finished row that has no lane"
    return f"pass {index} computes a request twice" if _twice(s.request for s in segments) else None


def ends(event: StepEvent, state: RunState, header: Header) -> str | None:
    """What is impossible about requests that end or leave after the passes."""
    holders = set(state.lanes.values())
    for finished in event.finished:
        request = finished.request
        if finished.when == "after" and (request in state.finished or request not in holders):
            return f"request {quoted(request)} cannot finish by “{finished.finish_reason}”"
    return _leaving(event, state, "after")


def _leaving(event: StepEvent, state: RunState, when: BeforeOrAfter) -> str | None:
    leaving = [left for left in event.released if left.when == when]
    if _twice(left.request for left in leaving) or any(
        state.lanes.get(left.lane) != left.request for left in leaving
    ):
        return "a request leaves a lane that it does not hold"
    return None


def _twice(names: Iterable[str]) -> bool:
    found = list(names)
    return len(set(found)) < len(found)
