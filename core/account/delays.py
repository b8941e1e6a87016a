"""Where each request's time went. From its arrival to its end every microsecond and every step
belongs to one part, so the parts add up to the whole.

    arrival ── queued ──┬─ prefill ─ decode ─ others ─ stalled ─ between ─┬── end
                        └──────── preempted ─ again ──────────────────────┘

A request ends with its last token, or at the start of the step that finds it cancelled. A request
that has not ended is followed to the end of the last step, or of the last step before a gap in the
record. Measured time is split at the recorded times, in whole microseconds; only `others` is a
comparison, see `TIME_SHARES`. `delays` also finds the longest gaps between tokens and the longest
waits, and what in the record explains them. Reads only the events.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

from core.account.pass_sizes import PassSizes, PassTime, median_low, microseconds
from core.account.walk import Computed, Moment, walk
from core.policy import Limit
from core.trace.events import LimitReached, StepEvent
from core.trace.trace import Trace, require_trace

TimeShare = Literal[
    "queued", "prefill", "decode", "others", "preempted", "again", "stalled", "between"
]
TIME_SHARES: dict[TimeShare, str] = {
    "queued": (
        "Queued: from its arrival to the start of the first pass that computes it: overtaken while"
        " one that came later headed the queue, passed over in steps in which one that came later"
        " joined, otherwise by the limit that held the head of the queue."
    ),
    "prefill": "Own prompt: passes that compute its prompt for the first time.",
    "decode": (
        "Own decoding: passes that compute its newest token, without the time that is due to"
        " others' prompts."
    ),
    "others": (
        "Others' prompts: how much longer its decode passes took because they computed others'"
        " prompts, too, than the run's passes of as many decodes without a prompt (their median): a"
        " comparison. Of a step of several passes, those of others' prompts alone count whole."
    ),
    "preempted": (
        "Preempted: from the start of the step that took its lane to the next pass that"
        " computes it."
    ),
    "again": "Computed again: passes that compute positions which a preemption had thrown away.",
    "stalled": (
        "Stalled: passes of steps that computed nothing for it while it held a lane; of a step of"
        " several passes, those of others' decodes alone."
    ),
    "between": (
        "Between passes: while it held a lane and no pass ran: the host's scheduling, and all else"
        " that lies between two passes."
    ),
}
"""Each part and its definition, in the order in which parts are drawn."""
SHARE_NAMES: dict[TimeShare, str] = {
    share: meaning.partition(":")[0].lower() for share, meaning in TIME_SHARES.items()
}
"""The short name of each part, which is the beginning of its definition."""
QUEUED, PREFILL, DECODE, OTHERS, PREEMPTED, AGAIN, STALLED, BETWEEN = range(len(TIME_SHARES))
NAMES: tuple[TimeShare, ...] = tuple(TIME_SHARES)
Cause = Limit | Literal["overtaken", "passed"]
"""Why a request was queued."""
NOT_RECORDED: Limit = "unrecorded"
"""In place of a limit where the record does not say why nobody joined. "none" means that no limit
applied and the request only waited for its next step and pass to begin.
"""
WORST = 5
SLOW = 2.0  # a pass is slow if it takes this many times as long as others of its size


class Span(NamedTuple):
    """A piece of a request's time, in microseconds of the run. limit: why it was queued."""

    part: int
    start: int
    end: int
    limit: Cause | None = None


class Delay(NamedTuple):
    """Where one request's time went. us, steps: by part, in the order of `TIME_SHARES`; they add up
    to `whole_us` and `whole_steps`. queued_us, queued_steps: the time in the queue by its cause.
    overtaken_by: requests that came later and joined a lane meanwhile.

    reason: None for a request that has not ended. uncompared_us: its decode passes that also
    computed others' prompts, if the run has no passes to compare them with, so that none of their
    time is in `others`.
    """

    request: str
    start_us: int
    whole_us: int
    whole_steps: int
    us: tuple[int, ...]
    steps: tuple[int, ...]
    queued_us: Mapping[Cause, int]
    queued_steps: Mapping[Cause, int]
    uncompared_us: int
    first_step: int | None
    reason: str | None
    overtaken_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data with the parts by name, including those that are 0."""
        return {
            "request": self.request,
            "ended": self.reason is not None,
            "us": _named(self.us, self.whole_us),
            "steps": _named(self.steps, self.whole_steps),
            "queued_us": dict(self.queued_us),
            "queued_steps": dict(self.queued_steps),
            "uncompared_us": self.uncompared_us,
            "overtaken_by": list(self.overtaken_by),
        }


class Gap(NamedTuple):
    """The time between two tokens of a request. token: the number of the second one, counted from
    1. step, since: the steps that gave the second and the first one. beside: other requests with
    the same gap, whose time was spent in the same way.

    us: by part, for `request`; their sum is the gap. prompts: tokens of others' prompts in the
    passes of the gap, by request. together: whether a pass that computed the request also computed
    some of these. uncompared: whether the run has no pass to compare such a pass with. again:
    tokens computed again, of `request` and of those beside it. why: the limit that stalled it.
    times: its longest pass in the gap, relative to others of its size, if any.
    """

    request: str
    token: int
    start_us: int
    whole_us: int
    us: tuple[int, ...]
    since: int
    step: int
    beside: tuple[str, ...] = ()
    prompts: tuple[tuple[str, int], ...] = ()
    together: bool = False
    uncompared: bool = False
    again: int = 0
    why: LimitReached | None = None
    times: float | None = None

    @property
    def cause(self) -> TimeShare | None:
        """The largest part but its own decoding, if at least a quarter of the gap; else None."""
        outside = {us: NAMES[i] for i, us in enumerate(self.us) if i != DECODE}
        return outside[max(outside)] if 4 * max(outside) >= self.whole_us > 0 else None

    def to_json(self) -> dict[str, Any]:
        """Plain data with the parts by name, including those that are 0."""
        return {
            "request": self.request,
            "token": self.token,
            "beside": list(self.beside),
            "us": _named(self.us, self.whole_us),
            "since": self.since,
            "step": self.step,
            "cause": self.cause,
            "prompts": dict(self.prompts),
            "again": self.again,
            "times": None if self.times is None else round(self.times, 2),
        }


class Delays(NamedTuple):
    """Where the time of requests went.

    requests: in order of arrival. gaps: the longest between tokens. waits: the requests queued for
    longest, without those that only waited for the next step. Both are in order and have at most
    `WORST` entries.
    """

    requests: tuple[Delay, ...]
    gaps: tuple[Gap, ...]
    waits: tuple[Delay, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; `waits` has the ids of requests."""
        return {
            "requests": [delay.to_json() for delay in self.requests],
            "gaps": [gap.to_json() for gap in self.gaps],
            "waits": [delay.request for delay in self.waits],
        }


def delays(trace: Trace) -> Delays:
    """Where the time of every request that arrived went, with the longest gaps and waits."""
    require_trace(trace)
    found = _RequestClock(trace)
    requests = tuple(life.delay() for life in found.lives.values())
    steps = sorted(microseconds(e.t_end) - microseconds(e.t_start) for e in trace.events)
    step = median_low(steps or [0])
    queued = [d for d in requests if d.queued_us.keys() - {"none"} or d.us[QUEUED] > step]
    waits = sorted(queued, key=lambda d: -d.us[QUEUED])[:WORST]
    return Delays(requests, tuple(found.explained(gap) for gap in found.gaps), tuple(waits))


def spans(trace: Trace) -> dict[str, list[Span]]:
    """The pieces of each request's time, in order; neighbours of one part are joined."""
    return {
        request: list(_merged(life.spans or ()))
        for request, life in _RequestClock(trace, keep_spans=True).lives.items()
    }


def _named(counts: tuple[int, ...], whole: int) -> dict[str, int]:
    return {**dict(zip(NAMES, counts, strict=True)), "whole": whole}


@dataclass
class _Lifetime:
    """A request while its events are read. at: the time up to which everything has been assigned to
    a part. number: in the order of arrival. since: the index of the event at which its wait began,
    None while it holds a lane.
    """

    request: str
    start: int
    number: int = 0
    at: int = 0
    since: int | None = None
    was_preempted: bool = False
    again: int = 0  # positions computed again
    again_at_token: int = 0
    first_step: int | None = None
    reason: str | None = None
    over: bool = False
    tokens: int = 0
    token_at: int = 0
    token_event: int = 0
    uncompared: int = 0
    overtaken_by: tuple[str, ...] = ()
    spans: list[tuple[int, int, int, Cause | None]] | None = None  # as `Span`

    def __post_init__(self) -> None:
        self.at = self.start
        self.us = [0] * len(TIME_SHARES)
        self.steps = [0] * len(TIME_SHARES)
        self.queued_us: dict[Cause, int] = {}
        self.queued_steps: dict[Cause, int] = {}
        self.us_at_token = self.us

    def add(self, part: int, until: int, limit: Cause | None = None) -> None:
        """Assign all time up to `until` that has not been assigned yet to a part."""
        if until <= self.at:
            return
        self.us[part] += until - self.at
        if limit is not None:
            self.queued_us[limit] = self.queued_us.get(limit, 0) + until - self.at
        if self.spans is not None:
            self.spans.append((part, self.at, until, limit))
        self.at = until

    def delay(self) -> Delay:
        """Where its time went."""
        return Delay(
            request=self.request,
            start_us=self.start,
            whole_us=self.at - self.start,
            whole_steps=sum(self.steps),
            us=tuple(self.us),
            steps=tuple(self.steps),
            queued_us=self.queued_us,
            queued_steps=self.queued_steps,
            uncompared_us=self.uncompared,
            first_step=self.first_step,
            reason=self.reason,
            overtaken_by=self.overtaken_by,
        )


class _Reason(NamedTuple):
    """Why requests wait, from one event until the next of these. event: its index. head, joined:
    the numbers, in the order of arrival, of the head of the queue and of the latest request that
    joined, if a request that came before them is waiting; otherwise -1.
    """

    start: int
    event: int
    limit: Limit
    head: int = -1
    joined: int = -1

    def of(self, number: int) -> Cause:
        """Why the request with this number waits."""
        if self.head > number:
            return "overtaken"
        return "passed" if self.joined > number else self.limit


class _RequestClock:
    """Reads the events once. lives: in order of arrival. gaps: the longest, unexplained yet."""

    def __init__(self, trace: Trace, keep_spans: bool = False) -> None:
        self.lives: dict[str, _Lifetime] = {}
        self.gaps: list[Gap] = []
        self._moments: set[tuple[int, int]] = set()  # start and length of each
        self._least = 0  # a shorter one is none of the longest
        self._events = trace.events
        self._sizes = PassSizes(trace.events)
        self._reasons: list[_Reason] = []
        self._joined: list[tuple[int, str]] = []  # who joined a lane, and at which event
        self._keep_spans = keep_spans
        for index, moment in enumerate(walk(trace)):
            self._follow(index, moment)
        end = microseconds(trace.events[-1].t_end) if trace.events else 0
        for life in self.lives.values():
            if not life.over:
                self._end(life, len(trace.events), end, None)

    def _follow(self, index: int, moment: Moment) -> None:
        event, state, rows = moment
        start, lives = microseconds(event.t_start), self.lives
        # nothing is said about what happened in steps that are not shown
        if event.resumed is not None:
            for known in lives.values():
                if not known.over:
                    self._end(known, index, microseconds(self._events[index - 1].t_end), None)
        for arrived in event.arrived:
            came = microseconds(arrived.t)
            new = _Lifetime(arrived.request, came, len(lives), since=index)
            new.spans = [] if self._keep_spans else None
            lives[arrived.request] = new
        for preempted in event.preempted:
            if life := self._unfinished(preempted.request):
                life.add(BETWEEN, start)
                life.since, life.was_preempted = index, True
        for finished in event.finished:
            if finished.when == "before" and (life := self._unfinished(finished.request)):
                at = start if finished.t is None else microseconds(finished.t)
                self._end(life, index, at, finished.finish_reason)
        self._joined += [(index, admitted.request) for admitted in event.admitted]
        if state.waiting:
            reason = self._reason(index, event, state.waiting)
            if not self._reasons or self._reasons[-1][2:] != reason[2:]:
                self._reasons.append(reason)
        self._passes(index, event, rows, state.running)
        for finished in event.finished:
            if life := self._unfinished(finished.request):
                life.over, life.reason = True, finished.finish_reason

    def _unfinished(self, request: str) -> _Lifetime | None:
        """The request, or None if it has ended or came in steps that are not shown."""
        life = self.lives.get(request)
        return None if life is None or life.over else life

    def _reason(self, index: int, event: StepEvent, waiting: Iterable[str]) -> _Reason:
        why, number = event.waiting.why, self._number
        oldest = min(map(number, waiting))
        head = number(event.waiting.request) if event.waiting.request else -1
        joined = max([number(admitted.request) for admitted in event.admitted], default=-1)
        head, joined = (late if late > oldest else -1 for late in (head, joined))
        limit = why.limit if why else NOT_RECORDED
        return _Reason(microseconds(event.t_start), index, limit, head, joined)

    def _number(self, request: str) -> int:
        """Its number by arrival; -1 for a request that came in steps that are not shown."""
        return self.lives[request].number if request in self.lives else -1

    def _passes(
        self,
        index: int,
        event: StepEvent,
        rows: Mapping[str, list[Computed]],
        running: Iterable[str],
    ) -> None:
        """Assign the time of a step's passes for the requests that hold a lane."""
        ending = {f.request for f in event.finished if f.when == "after"}
        passes = [self._sizes.time_of(forward, j, event) for j, forward in enumerate(event.passes)]
        start = microseconds(event.t_start)
        for request in running:
            if (life := self._unfinished(request)) is None:
                continue
            computed = rows.get(request, [])
            if life.since is not None:
                self._leave_queue(life, life.since, index, start)
                if computed:
                    life.add(
                        PREEMPTED if life.was_preempted else QUEUED,
                        passes[computed[0].segment.pass_index].start,
                        self._none(life),
                    )
            if computed and life.first_step is None:
                life.first_step = event.step
            own = {one.segment.pass_index: one for one in computed}
            last = max(own) if own and request in ending else len(passes) - 1
            label = STALLED
            for j, forward in enumerate(passes[: last + 1]):
                life.add(BETWEEN, forward.start)
                if j not in own:
                    life.add(OTHERS if forward.prompts and computed else STALLED, forward.end)
                    continue
                label = self._own_pass(life, own[j], forward, label)
                if own[j].tokens:
                    self._token(life, index, own[j].tokens)
            if label == DECODE and any(forward.prompts for forward in passes[: last + 1]):
                label = OTHERS
            life.steps[label] += 1
            if request in ending and not computed:
                life.add(BETWEEN, microseconds(event.t_end))

    def _own_pass(self, life: _Lifetime, own: Computed, forward: PassTime, label: int) -> int:
        """Assign the time of a pass that computes the request; returns the part for its step."""
        if own.again:
            life.again += own.again
            life.add(AGAIN, forward.end)
            return AGAIN
        if own.segment.phase == "prefill":
            life.add(PREFILL, forward.end)
            return AGAIN if label == AGAIN else PREFILL
        if forward.prompts and forward.like is None:
            life.uncompared += max(0, forward.end - life.at)
        elif forward.like is not None:
            life.add(DECODE, min(forward.end, life.at + forward.like))
            life.add(OTHERS, forward.end)
        life.add(DECODE, forward.end)
        return DECODE if label == STALLED else label

    def _token(self, life: _Lifetime, index: int, n: int) -> None:
        """Note n tokens at once. Requests with the same time since the last share a gap."""
        gap = life.at - life.token_at
        if life.tokens and (gap > self._least or (life.token_at, gap) in self._moments):
            again = life.again - life.again_at_token
            us = tuple(
                [now - before for now, before in zip(life.us, life.us_at_token, strict=True)]
            )
            shared = next(
                (k for k, g in enumerate(self.gaps) if (g.start_us, g.us) == (life.token_at, us)),
                None,
            )
            if shared is not None:
                same = self.gaps[shared]
                self.gaps[shared] = same._replace(
                    beside=(*same.beside, life.request), again=same.again + again
                )
            else:
                steps = self._events[life.token_event].step, self._events[index].step
                found = Gap(
                    life.request, life.tokens + 1, life.token_at, gap, us, *steps, again=again
                )
                self.gaps = sorted([*self.gaps, found], key=lambda g: -g.whole_us)[:WORST]
                self._moments = {(g.start_us, g.whole_us) for g in self.gaps}
                self._least = self.gaps[-1].whole_us if len(self.gaps) == WORST else 0
        life.tokens += n
        life.token_at, life.token_event = life.at, index
        life.us_at_token, life.again_at_token = list(life.us), life.again

    def _leave_queue(self, life: _Lifetime, since: int, index: int, until: int) -> None:
        """A request that came at event `since` leaves the queue: assign the time until then."""
        reasons = self._reasons
        if life.was_preempted:
            life.add(PREEMPTED, until)
            life.steps[PREEMPTED] += index - since
        elif index > since:
            life.add(QUEUED, microseconds(self._events[since].t_start), "none")
            for n in range(bisect_right(reasons, since, key=lambda r: r.event) - 1, len(reasons)):
                following = (
                    reasons[n + 1] if n + 1 < len(reasons) else _Reason(until, index, "none")
                )
                steps = min(index, following.event) - max(since, reasons[n].event)
                if steps > 0:
                    cause = reasons[n].of(life.number)
                    life.add(QUEUED, min(until, following.start), cause)
                    life.steps[QUEUED] += steps
                    life.queued_steps[cause] = life.queued_steps.get(cause, 0) + steps
            if life.queued_us.keys() & {"overtaken", "passed"}:
                life.overtaken_by = self._overtaking(life, since, index)
        life.add(PREEMPTED if life.was_preempted else QUEUED, until, self._none(life))
        life.since = None

    def _overtaking(self, life: _Lifetime, since: int, index: int) -> tuple[str, ...]:
        """Later requests that joined a lane before the event at which the wait ends."""
        first, last = (bisect_left(self._joined, (at,)) for at in (since, index))
        late = [r for _, r in self._joined[first:last] if self._number(r) > life.number]
        return tuple(dict.fromkeys(late))

    def _none(self, life: _Lifetime) -> Limit | None:
        return None if life.was_preempted else "none"

    def _end(self, life: _Lifetime, index: int, at: int, reason: str | None) -> None:
        """The request ended before the passes of a step, or the record ended."""
        if life.since is not None:
            self._leave_queue(life, life.since, index, at)
        else:
            life.add(BETWEEN, at)
        life.over, life.reason = True, reason

    # -- causes ------------------------------------------------------------------------------------

    def explained(self, gap: Gap) -> Gap:
        """A gap with what the events in it say about its cause."""
        prompts: dict[str, int] = {}
        together = uncompared = False
        why, times, longest = None, None, -1
        for event in self._between(gap.since, gap.step):
            why = why or next((s.why for s in event.stalled if s.request == gap.request), None)
            for j, forward in enumerate(event.passes):
                taken = self._sizes.time_of(forward, j, event)
                if not gap.start_us <= taken.start < gap.start_us + gap.whole_us:
                    continue
                own = next(
                    (s for s in event.segments if s.request == gap.request and s.pass_index == j),
                    None,
                )
                reading = [
                    s
                    for s in event.segments
                    if s.pass_index == j and s.phase == "prefill" and s.request != gap.request
                ]
                for s in reading:
                    prompts[s.request] = prompts.get(s.request, 0) + s.length
                if own is None:
                    continue
                together |= bool(reading)
                uncompared |= bool(reading) and own.phase == "decode" and taken.like is None
                if taken.end - taken.start > longest:
                    longest, times = taken.end - taken.start, self._sizes.times(j, event)
        return gap._replace(
            prompts=tuple(prompts.items()),
            together=together,
            uncompared=uncompared,
            why=why,
            times=times,
        )

    def _between(self, first: int, last: int) -> list[StepEvent]:
        low, high = (
            bisect(self._events, step, key=lambda e: e.step)
            for bisect, step in ((bisect_left, first), (bisect_right, last))
        )
        return self._events[low:high]


def _merged(pieces: Iterable[tuple[int, int, int, Cause | None]]) -> Iterator[Span]:
    for _, alike in groupby(map(Span._make, pieces), key=lambda piece: (piece.part, piece.limit)):
        first, *others = alike
        yield first._replace(end=others[-1].end) if others else first
