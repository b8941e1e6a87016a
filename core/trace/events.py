"""What happened in a step, as facts: named tuples of ids and numbers, never a live object.

Times are seconds since the run began. Ids stand for requests, lanes and blocks count from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from core.config import EngineConfig
from core.policy import Limit, LimitReached
from core.trace.schema import from_object, table

BeforeOrAfter = Literal["before", "after"]
_NO_MICROSECONDS = 2.0**33  # seconds
_RARE = ("queue", "warnings", "resumed")  # of a step's fields

NOTHING_BINDS = LimitReached("none")
UNRECORDED = LimitReached("unrecorded")
SKIPPED = LimitReached("skipped")
NOT_RECORDED = "not recorded"
"""The finish reason of a request that ended in a step that is not on record."""


def to_microseconds(seconds: float) -> float:
    """A time as recorded: equal to `round(seconds, 6)`, in a fifth of the time. Times too large for
    a float to hold microseconds stay as they are.
    """
    return round(seconds * 1e6) / 1e6 if seconds < _NO_MICROSECONDS else seconds


class Arrived(NamedTuple):
    """A request that came, and when; the scheduler saw it in this step."""

    request: str
    t: float


class Admitted(NamedTuple):
    """A request that joined a lane. why: what limits its first chunk (none, budget or blocks)."""

    request: str
    lane: int
    why: LimitReached


class Waiting(NamedTuple):
    """How many requests wait, which is the head of the queue, and why; others wait behind it."""

    count: int  # type: ignore[assignment]  # shadows tuple.count, which nothing needs here
    request: str | None = None
    why: LimitReached | None = None


class Preempted(NamedTuple):
    """A request pushed back in the queue; `tokens_lost` KV entries will be recomputed."""

    request: str
    tokens_lost: int
    lane: int


class Stalled(NamedTuple):
    """A running request that computed nothing in this step, and the limit that prevented it."""

    request: str
    why: LimitReached


class FinishedRow(NamedTuple):
    """A row of a request that has finished: computed as padding until its wave ends."""

    request: str
    lane: int


class Pass(NamedTuple):
    """One forward pass of `rows` x `width` positions: `tokens` real ones, `padding` the rest. Rows
    are in lane order.

    bucket: positions of the CUDA graph that was replayed, including unused ones after the row's
    end; None where there was no graph.
    """

    layout: str
    rows: int
    width: int
    tokens: int
    padding: int
    t_start: float
    t_end: float
    finished_rows: tuple[FinishedRow, ...] = ()
    bucket: int | None = None


class Segment(NamedTuple):
    """Positions from `start` on, computed in pass `pass_index`; then its cache holds `kv_len`."""

    pass_index: int
    request: str
    lane: int
    phase: str
    start: int
    length: int
    kv_len: int


class Sampled(NamedTuple):
    """A new token; with speculation a request may get several in one pass. logprob: the natural
    logarithm of its probability at temperature 1. margin: the best logit minus the second best.
    Both are None if another engine did not record them.
    """

    pass_index: int
    request: str
    token_id: int
    logprob: float | None
    margin: float | None


class Finished(NamedTuple):
    """A request that has ended. A cancelled one ended before the passes of the step, every other
    one in them. t: when it ended, if another engine recorded a time before the step.
    """

    request: str
    finish_reason: str
    t: float | None = None

    @property
    def when(self) -> BeforeOrAfter:
        """Whether it ended before the passes of the step or after them."""
        return "before" if self.finish_reason == "cancelled" else "after"


class LaneReleased(NamedTuple):
    """An ended request gave up its lane and blocks, before the passes of the step or after.

    Preempted requests leave before the passes, and have a `Preempted` instead.
    """

    request: str
    lane: int
    when: BeforeOrAfter


class BlockChange(NamedTuple):
    """Blocks added to a request's block table, or (`released`) all its tables given back.

    group: of layers that share a table; an engine whose layers are not alike has several. left:
    blocks of the table that were given back before any joined, since the layers' window had passed
    them; their places stay empty. None among the added: a place that is empty from the start.
    """

    request: str
    added: tuple[int | None, ...]
    released: bool
    group: int = 0
    left: tuple[int, ...] = ()


class PrefixHit(NamedTuple):
    """The first `num_cached_tokens` positions were found in the prefix cache."""

    request: str
    num_cached_tokens: int


class KV(NamedTuple):
    """The KV pool while passes ran: `used` of `total` blocks, changes, and prefix hits."""

    used: int
    total: int
    changes: tuple[BlockChange, ...] = ()
    prefix_hits: tuple[PrefixHit, ...] = ()

    @property
    def cached_tokens(self) -> dict[str, int]:
        """Positions found in the prefix cache, by request."""
        return {hit.request: hit.num_cached_tokens for hit in self.prefix_hits}


class Budget(NamedTuple):
    """The token budget (None: none), how it was split, and the limit that bound the step."""

    limit: int | None
    decode: int
    prefill: int
    unused: int
    binding: Limit


class Timings(NamedTuple):
    """The seconds of the step by part; the rest of `t_end - t_start` is everything else.

    On CUDA forward and sample are measured on the device. With asynchronous execution the host's
    parts, schedule and prepare, overlap with the device's work on the step before, and `t_start`
    and `t_end` are measured on the device: between the end of one step and the start of the next
    the device waited for the host. None where another engine did not record a part; its forward
    then includes everything in between.
    """

    schedule: float
    prepare: float | None
    forward: float
    sample: float | None


class Overrun(NamedTuple):
    """Positions computed for a request that had already stopped (asynchronous execution)."""

    request: str
    rows: int


class Draft(NamedTuple):
    """Speculation proposed the segment's last `drafted` tokens; the first `accepted` were kept."""

    request: str
    drafted: int
    accepted: int


class Carried(NamedTuple):
    """A request that is present when a run goes on after steps that are not shown. lane: None while
    it waits. computed: positions in its cache.

    tokens: those sampled in the steps that are not shown. tables: its block table in each KV cache
    group; None in place of a block that has left. was_preempted: it waits, and has run before.
    """

    request: str
    lane: int | None
    computed: int
    tokens: tuple[int, ...] = ()
    tables: tuple[tuple[int | None, ...], ...] = ()
    was_preempted: bool = False


class Resumed(NamedTuple):
    """The state from which the run goes on after steps `first` to `last`, which are not shown. Only
    recordings of other engines have it.

    missing: how many of these steps are not on record; the others lie before the snapshot that
    gives the state. arrived: requests that came in these steps and are present now. ended: requests
    that were present before and have finished; if the step in which one ended is missing, its
    reason is `NOT_RECORDED`. running: in the order of admission; a request that has finished holds
    its lane until it leaves. waiting: in the order of the queue.
    """

    first: int
    last: int
    missing: int
    arrived: tuple[Arrived, ...]
    ended: tuple[Finished, ...]
    running: tuple[Carried, ...]
    waiting: tuple[Carried, ...]

    @property
    def carried(self) -> tuple[Carried, ...]:
        """All requests that are present."""
        return (*self.running, *self.waiting)


class StepEvent(NamedTuple):
    """One step. Steps count from 0; a step in which nothing could run has no event.

    t_start, t_end: seconds since the run began. timings: how these seconds were spent. arrived,
    admitted, waiting, preempted, stalled: the requests that came, those that joined a lane, how
    many wait and why the first of them does, those that gave way, those that hold a lane and
    computed nothing. passes: the forward passes of the step, one unless the policy splits it.
    segments: which positions each request computed, and in which pass. sampled: the new tokens.
    finished: the requests that ended, and why. kv: the pool while the passes ran, and how block
    tables changed. budget: how the token budget was split, and the limit that bound. overrun,
    released, drafts: positions computed for nothing, lanes given back, tokens that speculation
    proposed.

    The others are only in steps of another engine. queue: all requests that wait while its passes
    run, in their order, if that is not the order in which they came. warnings: a sentence for each
    of our rules that the step breaks, found anew whenever a file is read. resumed: the state after
    steps before this one that are not shown.
    """

    step: int
    t_start: float
    t_end: float
    timings: Timings
    arrived: tuple[Arrived, ...]
    admitted: tuple[Admitted, ...]
    waiting: Waiting
    preempted: tuple[Preempted, ...]
    stalled: tuple[Stalled, ...]
    passes: tuple[Pass, ...]
    segments: tuple[Segment, ...]
    sampled: tuple[Sampled, ...]
    finished: tuple[Finished, ...]
    kv: KV
    budget: Budget
    overrun: tuple[Overrun, ...] = ()
    released: tuple[LaneReleased, ...] = ()
    drafts: tuple[Draft, ...] = ()
    queue: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    resumed: Resumed | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """Requests that this step computed, each once, in the order of passes and lanes."""
        return tuple(dict.fromkeys(segment.request for segment in self.segments))

    @property
    def newcomers(self) -> tuple[Arrived, ...]:
        """Requests that no event before this one names."""
        return self.arrived if self.resumed is None else (*self.resumed.arrived, *self.arrived)

    @property
    def ends(self) -> tuple[Finished, ...]:
        """The finished requests, including those of earlier steps that are not shown."""
        return self.finished if self.resumed is None else (*self.resumed.ended, *self.finished)

    @property
    def tokens(self) -> tuple[tuple[str, int], ...]:
        """New tokens by request, in order, beginning with those of steps that are not shown."""
        carried = () if self.resumed is None else self.resumed.carried
        before = [(c.request, token) for c in carried for token in c.tokens]
        return (*before, *((s.request, s.token_id) for s in self.sampled))

    def to_json(self) -> dict[str, Any]:
        """Plain data by field; the records in it become arrays in field order. Fields that are
        rarely needed are left out when they are empty: those of `_RARE`, the group and the lost
        blocks of a block change, and the time of an end.
        """
        data = self._asdict()
        for name in _RARE:
            if not data[name]:
                del data[name]
        if not any([change.group or change.left for change in self.kv.changes]):
            plain: Any = tuple([tuple(change)[:3] for change in self.kv.changes])
            data["kv"] = self.kv._replace(changes=plain)
        if not any([finished.t is not None for finished in self.finished]):
            data["finished"] = tuple([tuple(finished)[:2] for finished in self.finished])
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StepEvent:
        """Inverse of `to_json`; raises TypeError, ValueError or KeyError for other data."""
        event: StepEvent = from_object(cls, data)
        return event


RECORDS = table(StepEvent)
"""The fields of an event and of each record in it, by which the browser reads events; see `table`.
"""


class Ran(Protocol):
    """The protocol of a run; `core.trace.trace.Trace` implements it."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """The requests, by id."""

    @property
    def events(self) -> Sequence[StepEvent]:
        """The events, step by step."""

    @property
    def config(self) -> EngineConfig:
        """The limits under which it ran."""

    @property
    def outputs(self) -> Mapping[str, Sequence[int]]:
        """Generated token ids by request."""
