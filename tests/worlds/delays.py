"""What must hold of the parts of requests' times, in whatever run: they add up, leave no hole, and
agree with the metrics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

import pytest

from core.account.delays import (
    AGAIN,
    BETWEEN,
    DECODE,
    NAMES,
    OTHERS,
    PREEMPTED,
    PREFILL,
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
    if not any(e.resumed for e in trace.events):
        _agrees(trace, found, pieces)
    return found


class _Again:
    """A request's time once more, step by step from the records, by the definitions of
    `TIME_SHARES`: each piece as (part, start, end, cause of waiting).
    """

    def __init__(self, arrived: int) -> None:
        self.at, self.waits, self.over, self.sent_back = arrived, True, False, False
        self.cause: str | None = "none"  # of its waiting, in the step before
        self.pieces: list[tuple[int, int, int, str | None]] = []
        self.steps: Counter[int] = Counter()
        self.queued_steps: Counter[str | None] = Counter()
        self.uncompared = self.reached = self.tokens = 0
        self.overtaken = False
        self.joined_later: list[str] = []

    def to(self, part: int, until: int, cause: str | None = None) -> None:
        if until > self.at:
            self.pieces.append((part, self.at, until, cause))
            self.at = until

    def waited(self, until: int, cause: str | None) -> None:
        self.to(PREEMPTED, until) if self.sent_back else self.to(QUEUED, until, cause)


class _Tokens(NamedTuple):
    """Tokens that a request got at once, after others: which, the steps of both, what it computed
    again meanwhile, and the pieces of the time between.
    """

    request: str
    token: int
    since: int
    step: int
    again: int
    pieces: tuple[tuple[int, int, int], ...]


def _told_again(trace: Trace) -> tuple[dict[str, _Again], list[_Tokens]]:
    events, us = trace.events, microseconds
    number = {a.request: n for n, a in enumerate(a for e in events for a in e.arrived)}
    taken: dict[int, list[int]] = defaultdict(list)  # by rows, of passes without a prompt
    for e in events:
        for j, p in enumerate(e.passes):
            phases = [s.phase for s in e.segments if s.pass_index == j]
            if "prefill" not in phases:
                taken[len(phases) + len(p.finished_rows)].append(us(p.t_end) - us(p.t_start))
    taken.pop(0, None)
    told: dict[str, _Again] = {}
    got: dict[str, tuple[int, int, int]] = {}  # when its last token came, in which step, `again`
    again: Counter[str] = Counter()
    gaps: list[_Tokens] = []
    for e in events:
        start = us(e.t_start)
        told |= {a.request: _Again(us(a.t)) for a in e.arrived}
        beside: list[tuple[int, int | None]] = []  # prompts of a pass; its decodes without them
        for j, p in enumerate(e.passes):
            phases = [s.phase for s in e.segments if s.pass_index == j]
            rows = phases.count("decode") + len(p.finished_rows)
            near = sorted(
                (abs(n - rows), -n) for n in taken if n <= 2 * rows <= 4 * n and "decode" in phases
            )
            beside.append(
                (phases.count("prefill"), median_low(taken[-near[0][1]]) if near else None)
            )
        mine = {r: t for r, t in told.items() if not t.over}
        gone = {p.request for p in e.preempted}
        joins = {a.request for a in e.admitted}
        ends = {f.request: f for f in e.finished}
        refused = {d.request: d.drafted - d.accepted for d in e.drafts}
        for r, t in mine.items():
            left = ends.get(r)
            before = left is not None and left.finish_reason == "cancelled"
            until = us(left.t) if before and left.t is not None else start
            if t.waits:
                t.waited(until, t.cause)
            elif before or r in gone:
                t.to(BETWEEN, until)
            t.over = before
            if r in gone and not before:
                t.waits = t.sent_back = True
            if t.over:
                continue
            if t.waits and r not in joins:
                late = [number[a] for a in joins if a in number]
                why = e.waiting.why.limit if e.waiting.why else "unrecorded"
                if number.get(e.waiting.request, -1) > number[r]:
                    why = "overtaken"
                elif max(late, default=-1) > number[r]:
                    why = "passed"
                t.cause = why
                t.overtaken |= not t.sent_back and why in ("overtaken", "passed")
                t.steps[PREEMPTED if t.sent_back else QUEUED] += 1
                if not t.sent_back:
                    t.queued_steps[why] += 1
                    t.joined_later += [
                        a.request for a in e.admitted if number.get(a.request, -1) > number[r]
                    ]
                continue
            own = [s for s in e.segments if s.request == r]
            if r in joins:
                t.waits = False
                if own:
                    t.waited(us(e.passes[own[0].pass_index].t_start), "none")
            last = own[-1].pass_index if own and r in ends else len(e.passes) - 1
            parts = set()
            for j, p in enumerate(e.passes[: last + 1]):
                prompts, like = beside[j]
                t.to(BETWEEN, us(p.t_start))
                segment = next((s for s in own if s.pass_index == j), None)
                if segment is None:
                    t.to(OTHERS if prompts and own else STALLED, us(p.t_end))
                    continue
                part = PREFILL if segment.phase == "prefill" else DECODE
                if segment.start < t.reached:
                    part = AGAIN
                    again[r] += min(t.reached, segment.kv_len) - segment.start
                t.reached = max(t.reached, segment.kv_len - refused.get(r, 0))
                parts.add(part)
                if part == DECODE and prompts and like is not None:
                    t.to(DECODE, min(us(p.t_end), t.at + like))
                    t.to(OTHERS, us(p.t_end))
                elif part == DECODE and prompts:
                    t.uncompared += us(p.t_end) - t.at
                t.to(part, us(p.t_end))
                new = sum(s.request == r and s.pass_index == j for s in e.sampled)
                if new:
                    if t.tokens:
                        at, since, had = got[r]
                        between = [piece for piece in t.pieces if piece[1] >= at]
                        gaps.append(
                            _Tokens(
                                r,
                                t.tokens + 1,
                                since,
                                e.step,
                                again[r] - had,
                                tuple(piece[:3] for piece in between),
                            )
                        )
                    t.tokens += new
                    got[r] = t.at, e.step, again[r]
            if r in ends:
                t.over = True
                if not own:
                    t.to(BETWEEN, us(e.t_end))
            label = next((p for p in (AGAIN, PREFILL, DECODE) if p in parts), STALLED)
            if label == DECODE and any(
                s.phase == "prefill" and s.pass_index <= last for s in e.segments
            ):
                label = OTHERS
            t.steps[label] += 1
    for t in told.values():
        if not t.over:
            end = us(events[-1].t_end)
            t.waited(end, t.cause) if t.waits else t.to(BETWEEN, end)
    return told, gaps


def _agrees(trace: Trace, found: Delays, pieces) -> None:
    """Every part of every request, and the worst of them, computed again from the records."""
    told, gaps = _told_again(trace)
    for d in found.requests:
        t = told[d.request]
        for part in range(len(NAMES)):
            assert d.us[part] == sum(b - a for p, a, b, _ in t.pieces if p == part), NAMES[part]
            assert d.steps[part] == t.steps[part], NAMES[part]
        causes: Counter[str | None] = Counter()
        for part, a, b, cause in t.pieces:
            causes.update({cause: b - a} if part == QUEUED else {})
        assert d.queued_us == causes and d.queued_steps == t.queued_steps
        assert d.uncompared_us == t.uncompared
        assert list(d.overtaken_by) == list(dict.fromkeys(t.joined_later if t.overtaken else ()))
        joined = [
            piece
            for k, piece in enumerate(t.pieces)
            if k == 0 or piece[::3] != t.pieces[k - 1][::3]
        ]
        assert [(p.part, p.start, p.limit) for p in pieces[d.request]] == [
            (part, a, cause) for part, a, _, cause in joined
        ]
    step = median_low(
        [microseconds(e.t_end) - microseconds(e.t_start) for e in trace.events] or [0]
    )
    waited = [d for d in found.requests if d.us[QUEUED] > step or {*d.queued_us} - {"none"}]
    waited.sort(key=lambda d: d.us[QUEUED], reverse=True)
    assert [d.request for d in found.waits] == [d.request for d in waited[:WORST]]
    same: dict[tuple, list[_Tokens]] = defaultdict(list)
    for gap in gaps:
        us = tuple(sum(b - a for p, a, b in gap.pieces if p == part) for part in range(len(NAMES)))
        if gap.pieces:
            same[gap.pieces[0][1], us].append(gap)
    longest = sorted((sum(us) for _, us in same), reverse=True)[:WORST]
    assert [gap.whole_us for gap in found.gaps if gap.whole_us] == longest
    for gap in found.gaps:
        if not gap.whole_us:
            continue
        shared = {one.request: one for one in same[gap.start_us, gap.us]}
        assert {*shared} == {gap.request, *gap.beside} and len(shared) == len(gap.beside) + 1
        one = shared[gap.request]
        assert (gap.token, gap.since, gap.step) == one[1:4]
        assert gap.again == sum(of.again for of in shared.values())


def _tile(d, pieces) -> None:
    """The pieces lie one behind the other, and are what the parts count."""
    assert [p.start for p in pieces[:1]] == [d.start_us][: len(pieces)]
    assert all(a.end == b.start and a.start < a.end for a, b in pairwise(pieces))
    for part in range(len(NAMES)):
        assert sum(p.end - p.start for p in pieces if p.part == part) == d.us[part]
    for limit, us in d.queued_us.items():
        assert sum(p.end - p.start for p in pieces if p.limit == limit) == us
