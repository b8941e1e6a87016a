"""The state of a run in plain rows: queue, lanes, lengths of caches, owners of blocks.

A `RunState` follows the events one by one; its state at a step depends on that step and those
before, never on later ones. It is the only account of a run: the rules check an event against it,
sentences and tables read it, and tests compare its frames with the browser's. It knows nothing of
policies, colours, sentences and pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from core.trace.events import (
    KV,
    Admitted,
    Arrived,
    BeforeOrAfter,
    Draft,
    Finished,
    LaneReleased,
    LimitReached,
    Preempted,
    Resumed,
    Sampled,
    Segment,
    StepEvent,
)

Table = list[int | None]
"""Blocks in the order of the positions that they hold; None in place of a block that has left
because the layers' window had passed it.
"""

Doing = Literal["prefill", "decode", "overrun", "stalled", "finished"]


class LaneRow(NamedTuple):
    """A lane that is held. doing: what its request computed, pass by pass, `length` tokens in all;
    then its cache holds `kv_len`.

    A finished request may still hold its lane: until its wave ends ("finished": its row is computed
    as padding), or until the end of a step that was launched before it had stopped ("overrun": what
    that step computed for it).
    """

    lane: int
    request: str
    doing: tuple[Doing, ...]
    length: int
    kv_len: int


class WaitingRow(NamedTuple):
    """One waiting request. why: the scheduler's reason, for the first; others wait behind it."""

    request: str
    since: int
    preempted: bool
    why: LimitReached | None


class Freed(NamedTuple):
    """How a lane last became free."""

    request: str
    step: int
    preempted: bool


@dataclass(frozen=True)
class Frame:
    """The state while a step's passes ran. blocks: for each used block, its requests."""

    step: int
    lanes: tuple[LaneRow, ...]
    waiting: tuple[WaitingRow, ...]
    blocks: dict[int, tuple[str, ...]]


@dataclass
class RunState:
    """The state after the events so far. For each event call `begin`, which applies everything up
    to its passes, read the state, and call `end`, which applies the passes and what they ended.

    Both are made of the methods below, one for each kind of record; the rules call them singly.
    """

    num_tokens: dict[str, int]  # prompt and generated, by request
    requeues: bool = False  # a preempted request joins the end of the queue, not its head
    waiting: deque[str] = field(default_factory=deque)
    since: dict[str, int] = field(default_factory=dict)  # the step in which the present wait began
    arrived: dict[str, int] = field(default_factory=dict)  # the step, in order of arrival
    lanes: dict[int, str] = field(default_factory=dict)  # in the order of admission
    freed: dict[int, Freed] = field(default_factory=dict)
    # positions in the cache, by request that holds a lane
    computed: dict[str, int] = field(default_factory=dict)
    # positions computed before the latest preemption
    lost: dict[str, int] = field(default_factory=dict)
    # prefill chunks since the latest admission
    chunks: dict[str, int] = field(default_factory=dict)
    # by request, then by KV cache group
    tables: dict[str, dict[int, Table]] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, prompt_lengths: Mapping[str, int], requeues: bool = False) -> RunState:
        """The state before the first step."""
        return cls(dict(prompt_lengths), requeues)

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self.waiting) or bool(self.running)

    @property
    def running(self) -> list[str]:
        """Unfinished requests that hold a lane, in the order of their admission."""
        return [request for request in self.lanes.values() if request not in self.finished]

    def lane_of(self, request: str) -> int | None:
        """The lane that a request holds, if any."""
        return next((lane for lane, holder in self.lanes.items() if holder == request), None)

    def blocks_of(self, request: str) -> list[int]:
        """The blocks that a request holds, of all KV cache groups."""
        tables = self.tables.get(request, {}).values()
        return [block for table in tables for block in table if block is not None]

    @property
    def used_blocks(self) -> set[int]:
        """The blocks that some request holds."""
        return {block for request in self.tables for block in self.blocks_of(request)}

    def begin(self, event: StepEvent) -> None:
        """The state while the passes run: after steps that are not shown, arrivals, cancellations,
        preemptions, admissions, another order of the queue and new blocks.
        """
        self.take_resumption(event)
        self.take_arrivals(event)
        self.take_cancellations(event)
        self.take_preemptions(event)
        self.take_admissions(event)
        self.take_queue(event)
        self.take_blocks(event.kv)

    def end(self, event: StepEvent) -> None:
        """Computed positions, new tokens, finished requests and the lanes they give back."""
        self.take_passes(event)
        self.take_ends(event)

    def copy(self) -> RunState:
        """An independent copy of the state."""
        own: dict[str, Any] = {
            name: value.copy() if isinstance(value, (dict, deque)) else value
            for name, value in vars(self).items()
        }
        own["tables"] = {
            r: {group: table.copy() for group, table in tables.items()}
            for r, tables in self.tables.items()
        }
        return RunState(**own)

    def keep(self, requests: Set[str]) -> None:
        """Forget all other requests, which have ended and hold no lane: for a run without end."""
        for request in self.num_tokens.keys() - requests:
            self.forget(request)

    # -- part by part ------------------------------------------------------------------------------

    def take_resumption(self, event: StepEvent) -> None:
        """Set the state from which a recording goes on."""
        if event.resumed is not None:
            self.resume(event.step, event.resumed)

    def take_arrivals(self, event: StepEvent) -> None:
        """Requests that arrive join the queue."""
        for arrived in event.arrived:
            self.arrive(event.step, arrived)

    def take_cancellations(self, event: StepEvent) -> None:
        """Requests that end before the passes, and lanes that become free there."""
        self._end_some(event, "before")

    def take_preemptions(self, event: StepEvent) -> None:
        """Requests that give way."""
        for preempted in event.preempted:
            self.preempt(event.step, preempted)

    def take_admissions(self, event: StepEvent) -> None:
        """Requests that join a lane, with what was found in the prefix cache."""
        cached = event.kv.cached_tokens
        for admitted in event.admitted:
            self.admit(admitted, cached.get(admitted.request, 0))

    def take_queue(self, event: StepEvent) -> None:
        """Put the waiting requests into the engine's own order; later ones join behind them."""
        if event.queue:
            self.waiting = deque(event.queue)

    def take_passes(self, event: StepEvent) -> None:
        """What is computed, sampled and rejected."""
        for segment in event.segments:
            self.compute(segment)
        for sampled in event.sampled:
            self.sample(sampled)
        for draft in event.drafts:
            self.reject(draft)

    def take_ends(self, event: StepEvent) -> None:
        """Requests that end after the passes, and lanes that become free there."""
        self._end_some(event, "after")

    def _end_some(self, event: StepEvent, when: BeforeOrAfter) -> None:
        """Requests that finish, and that leave their lanes, before the passes or after."""
        for finished in event.finished:
            if finished.when == when:
                self.finish(event.step, finished)
        for left in event.released:
            if left.when == when:
                self.leave(event.step, left)

    # -- record by record --------------------------------------------------------------------------

    def resume(self, step: int, resumed: Resumed) -> None:
        """Set the state after steps that are not shown; unrecorded facts are unknown."""
        for arrived in resumed.arrived:
            self.since[arrived.request] = self.arrived[arrived.request] = step
        for finished in resumed.ended:
            self.finished[finished.request] = step
        for carried in resumed.carried:
            self.num_tokens[carried.request] += len(carried.tokens)
        for carried in resumed.waiting:
            if carried.was_preempted:
                self.lost.setdefault(carried.request, 0)
                self.since[carried.request] = step
        self.waiting = deque(carried.request for carried in resumed.waiting)
        self.lanes = {
            carried.lane: carried.request for carried in resumed.running if carried.lane is not None
        }
        self.freed = {}
        self.computed = {carried.request: carried.computed for carried in resumed.running}
        self.chunks |= {
            carried.request: self.chunks.get(carried.request, 0) for carried in resumed.running
        }
        self.tables = {
            carried.request: dict(enumerate(map(list, carried.tables)))
            for carried in resumed.running
        }

    def arrive(self, step: int, arrived: Arrived) -> None:
        """A request joins the end of the queue."""
        self.waiting.append(arrived.request)
        self.since[arrived.request] = self.arrived[arrived.request] = step

    def preempt(self, step: int, preempted: Preempted) -> None:
        """A request goes back to its place in the queue, and its blocks are free."""
        request = preempted.request
        self._free(preempted.lane, request, step, preempted=True)
        self.lost[request] = preempted.tokens_lost
        if self.requeues:
            self.waiting.append(request)
        else:
            self.waiting.appendleft(request)
        self.since[request] = step

    def admit(self, admitted: Admitted, cached: int) -> None:
        """A request takes a lane. cached: positions found in the prefix cache."""
        request = admitted.request
        self.waiting.remove(request)
        self.lanes[admitted.lane] = request
        self.chunks[request] = 0
        self.computed[request] = cached

    def take_blocks(self, kv: KV) -> None:
        """Remove blocks from tables and add others. The tables of requests that have just lost a
        lane are given back; the others stay while the passes run. A request that lost a lane and
        joined again in the same step begins a new table.
        """
        holders = set(self.lanes.values())
        for n, change in enumerate(kv.changes):
            again = change.released and any(
                c.request == change.request and c.added for c in kv.changes[n + 1 :]
            )
            if change.left:
                table = self.tables.get(change.request, {}).get(change.group, [])
                table[:] = [None if block in change.left else block for block in table]
            if change.added:
                self.tables.setdefault(change.request, {}).setdefault(change.group, []).extend(
                    change.added
                )
            if change.released and (again or change.request not in holders):
                self.tables.pop(change.request, None)

    def compute(self, segment: Segment) -> None:
        """A request's cache grows to the end of the segment."""
        self.computed[segment.request] = segment.kv_len
        if segment.phase == "prefill":
            self.chunks[segment.request] += 1

    def sample(self, sampled: Sampled) -> None:
        """A request gets one more token."""
        self.num_tokens[sampled.request] += 1

    def reject(self, draft: Draft) -> None:
        """Drop the positions of tokens that were proposed and not accepted."""
        self.computed[draft.request] -= draft.drafted - draft.accepted

    def finish(self, step: int, finished: Finished) -> None:
        """A request finishes; if it holds a lane, it keeps it until `leave`."""
        self.finished[finished.request] = step
        if finished.when == "before" and finished.request in self.waiting:
            self.waiting.remove(finished.request)

    def leave(self, step: int, left: LaneReleased) -> None:
        """A request that has ended gives up its lane and its blocks."""
        self._free(left.lane, left.request, step, preempted=False)
        if left.when == "after":
            self.tables.pop(left.request, None)

    def forget(self, request: str) -> None:
        """Drop a finished request that holds no lane, once nothing refers to it any more."""
        known = self.num_tokens, self.since, self.arrived, self.finished
        held = self.computed, self.lost, self.chunks, self.tables
        for facts in (*known, *held):
            facts.pop(request, None)

    def _free(self, lane: int, request: str, step: int, preempted: bool) -> None:
        self.freed[lane] = Freed(request, step, preempted)
        self.lanes.pop(lane, None)
        self.computed.pop(request, None)

    # -- a copy for a picture ----------------------------------------------------------------------

    def frame(self, event: StepEvent) -> Frame:
        """The state while the passes run; call between `begin` and `end`."""
        over = {o.request for o in event.overrun}
        doing: dict[str, list[Doing]] = {}
        lengths: dict[str, int] = {}
        kv_lens: dict[str, int] = {}
        for s in event.segments:
            does: Doing = (
                "overrun" if s.request in over else "prefill" if s.phase == "prefill" else "decode"
            )
            doing.setdefault(s.request, []).append(does)
            lengths[s.request] = lengths.get(s.request, 0) + s.length
            kv_lens[s.request] = s.kv_len
        for forward in event.passes:
            for row in forward.finished_rows:
                doing[row.request] = ["finished"]
        for stalled in event.stalled:
            doing[stalled.request] = ["stalled"]
        rows, waiting = list[LaneRow](), list[WaitingRow]()
        for lane, r in sorted(self.lanes.items()):
            kv_len = kv_lens.get(r, self.computed.get(r, 0))
            rows.append(LaneRow(lane, r, tuple(doing.get(r, ())), lengths.get(r, 0), kv_len))
        # whoever is next stands first
        for r in sorted(self.waiting, key=lambda request: request != event.waiting.request):
            why = event.waiting.why if r == event.waiting.request else None
            waiting.append(WaitingRow(r, self.since[r], r in self.lost, why))
        blocks: dict[int, tuple[str, ...]] = {}
        for request in self.tables:
            for block in self.blocks_of(request):
                blocks[block] = (*blocks.get(block, ()), request)
        return Frame(event.step, tuple(rows), tuple(waiting), blocks)
