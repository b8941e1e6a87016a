"""A run as plain rows: who waits, who holds which lane, how long each cache is, whose each block is. Geometry before ink.

A `Fold` follows the events one by one; what it knows at a step depends on that step and the ones before, never on later ones.
Knows nothing of colours, sentences or pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from core.config import EngineConfig
from core.errors import InflightError
from core.trace.events import Segment, StepEvent, Why
from core.trace.trace import Trace

Doing = Literal["prefill", "decode", "overrun", "stalled", "finished"]


class LaneRow(NamedTuple):
    """A held lane. doing: what its request computed in the step's last pass for it. "finished" ones still hold it: until their wave ends,
    computed as padding, or until a step is over that was launched before they had stopped; "overrun" is what that step computed for them.
    """

    lane: int
    request: str
    doing: Doing
    length: int
    kv_len: int


class WaitingRow(NamedTuple):
    """One request in the line. why: the scheduler's own reason, for the head of the line; the others wait behind it."""

    request: str
    since: int
    preempted: bool
    why: Why | None


class Freed(NamedTuple):
    """How a lane last became free."""

    request: str
    step: int
    preempted: bool


@dataclass(frozen=True)
class Frame:
    """The state while the passes of a step ran. `blocks` names the requests that use each used block (several where shared)."""

    step: int
    lanes: tuple[LaneRow, ...]
    waiting: tuple[WaitingRow, ...]
    blocks: dict[int, tuple[str, ...]]


@dataclass
class Fold:
    """What the events so far add up to. Per event: `begin` (all up to its passes), read, `end` (its tokens and what they ended)."""

    num_lanes: int
    is_barrier: bool  # lanes fall free by waves
    num_tokens: dict[str, int]  # prompt and generated, by request
    line: list[str] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)  # the step in which the present wait began
    arrived: dict[str, int] = field(default_factory=dict)
    lanes: dict[int, str] = field(default_factory=dict)
    freed: dict[int, Freed] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)  # positions in the cache of a running request
    lost: dict[str, int] = field(default_factory=dict)  # positions computed before the latest preemption
    chunks: dict[str, int] = field(default_factory=dict)  # prefill chunks since the latest admission
    tables: dict[str, list[int]] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, header: dict, prompt_lengths: dict[str, int]) -> Fold:
        """The state before the first step."""
        config = EngineConfig.from_json(header["config"])
        return cls(config.num_lanes, config.batching.admission == "barrier", dict(prompt_lengths))

    @property
    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return bool(self.line) or not self.finished.keys() >= set(self.lanes.values())

    def begin(self, event: StepEvent) -> None:
        """Arrivals, cancellations between steps, preemptions, admissions and new blocks: the state while the passes run."""
        for request, _ in event.arrived:
            self.line.append(request)
            self.since[request] = self.arrived[request] = event.step
        ended = [request for request, _ in event.finished if ended_before(event, request)]
        for request in ended:
            self._finish(request, event)
        if ended:  # and with the last of a wave the whole wave
            self._leave(event, released(event) - at_work(event) if self.is_barrier else set(ended) & released(event))
        for request, tokens_lost, lane in event.preempted:
            self._free(lane, request, event.step, preempted=True)
            self.lost[request] = tokens_lost
            self.line.insert(0, request)
            self.since[request] = event.step
        for request, lane, _ in event.admitted:
            self.line.remove(request)
            self.lanes[lane] = request
            self.chunks[request] = 0
            self.computed[request] = 0
        for hit in event.kv.prefix_hits:
            self.computed[hit.request] = hit.num_cached_tokens
        for change in event.kv.changes:
            if change.added:
                self.tables.setdefault(change.request, []).extend(change.added)

    def end(self, event: StepEvent) -> None:
        """Computed positions, new tokens, finished requests and the lanes they give back."""
        for segment in event.segments:
            self.computed[segment.request] = segment.kv_len
            if segment.phase == "prefill":
                self.chunks[segment.request] += 1
        for sampled in event.sampled:
            self.num_tokens[sampled.request] += 1
        for request, _ in event.finished:
            if not ended_before(event, request):
                self._finish(request, event)
        self._leave(event, released(event))

    def frame(self, event: StepEvent) -> Frame:
        """A copy of the state for a picture; call between `begin` and `end`."""
        latest: dict[str, Segment] = {s.request: s for s in event.segments}
        overrun = {o.request for o in event.overrun}
        rows = []
        for lane, request in sorted(self.lanes.items()):
            segment = latest.get(request)
            if segment:
                doing: Doing = "overrun" if request in overrun else "prefill" if segment.phase == "prefill" else "decode"
                rows.append(LaneRow(lane, request, doing, segment.length, segment.kv_len))
            else:
                doing = "finished" if request in self.finished else "stalled"
                rows.append(LaneRow(lane, request, doing, 0, self.computed.get(request, 0)))
        waiting = tuple(
            WaitingRow(r, self.since[r], r in self.lost, event.waiting.why if r == event.waiting.request else None)
            for r in self.line
        )
        blocks: dict[int, tuple[str, ...]] = {}
        for request, table in self.tables.items():
            for block in table:
                blocks[block] = (*blocks.get(block, ()), request)
        return Frame(event.step, tuple(rows), waiting, blocks)

    def _finish(self, request: str, event: StepEvent) -> None:
        """A request is over; its lane it keeps until its blocks are given back."""
        self.finished[request] = event.step
        if request in self.line:
            self.line.remove(request)

    def _leave(self, event: StepEvent, leaving: set[str]) -> None:
        """Finished requests whose blocks are given back leave their lanes."""
        for lane, holder in list(self.lanes.items()):
            if holder in self.finished and holder in leaving:
                self._free(lane, holder, event.step, preempted=False)

    def _free(self, lane: int, request: str, step: int, preempted: bool) -> None:
        self.freed[lane] = Freed(request, step, preempted)
        self.lanes.pop(lane, None)
        self.tables.pop(request, None)
        self.computed.pop(request, None)


def released(event: StepEvent) -> set[str]:
    """Requests whose blocks the event says were given back, before its passes or after them."""
    return {change.request for change in event.kv.changes if change.released}


def at_work(event: StepEvent) -> set[str]:
    """Requests that have a lane while the passes run: whoever computes, for nothing or not, and whoever stalls."""
    rows = {row.request for forward in event.passes for row in forward.finished_rows}
    return rows | {s.request for s in event.segments} | {s.request for s in event.stalled}


def ended_before(event: StepEvent, request: str) -> bool:
    """Whether a request in `event.finished` was cancelled between steps: it computed nothing in this one."""
    return all(s.request != request for s in event.segments)


def prompt_lengths(trace: Trace) -> dict[str, int]:
    return {request: len(ids) for request, ids in trace.prompts.items()}


def frames(trace: Trace) -> Iterator[Frame]:
    """One frame a step, in order."""
    fold = Fold.of(trace.header, prompt_lengths(trace))
    for event in trace.events:
        fold.begin(event)
        yield fold.frame(event)
        fold.end(event)


def frame(trace: Trace, step: int) -> Frame:
    """The frame of one step; raises InflightError if nothing ran in it."""
    for found in frames(trace):
        if found.step == step:
            return found
    raise InflightError(f"This trace has no step {step}.")
