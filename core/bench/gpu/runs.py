"""This engine's runs: under a stopwatch that knows nothing of its own clock, and what their events say of the device."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from core.bench.gpu.device import Device
from core.bench.gpu.scale import Scale
from core.config import EngineConfig, Execution
from core.engine.engine import Engine
from core.engine.recorder import Recorder
from core.errors import InflightError
from core.models.adapter import ModelAdapter
from core.trace.events import Pass, StepEvent
from core.trace.trace import Trace
from core.workload.workload import Workload


def engine_for(adapter: ModelAdapter, scale: Scale, workload: Workload, execution: Execution | None = None) -> Engine:
    """An engine with room for all lanes of this workload."""
    config = EngineConfig(
        max_num_seqs=scale.lanes,
        max_num_batched_tokens=scale.budget,
        block_size=scale.block_size,
        num_blocks=scale.num_blocks(workload),
    )
    return Engine(adapter, None, config, execution=execution)


@dataclass(frozen=True)
class Timed:
    """A run from its first request to its last token. cut: its time was up before all was written."""

    seconds: float
    tokens: int
    cut: bool
    trace: Trace

    @property
    def tok_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def idle(self) -> float | None:
        """See `idle_share`; None on a GPU whose passes the host timed, one after the other."""
        header = self.trace.header
        by_host = header.device.startswith("cuda") and header.execution is None
        return None if by_host else idle_share(self.trace.events)

    @property
    def computed(self) -> dict[str, Any]:
        """How the trace says that passes were computed: options in effect, memory, and what could not be had."""
        header = self.trace.header.to_json()
        return {name: header.get(name) for name in ("execution", "memory", "notes")}

    def to_json(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 4),
            "output_tokens": self.tokens,
            "output_tok_s": round(self.tok_s, 1),
            "cut": self.cut,
        }


@contextmanager
def unrecorded(engine: Engine) -> Iterator[None]:
    """Steps happen, but no event is made of them: one of an earlier run stands for each."""
    before = engine.recorder
    engine.recorder = _StandIn(engine.trace.events[0])
    try:
        yield
    finally:
        engine.recorder = before


class _StandIn(Recorder):
    """Records one and the same event for every step."""

    def __init__(self, event: StepEvent) -> None:
        super().__init__()
        self._event = event

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        return super().record(lambda: self._event)


def recording_share(engine: Engine, workload: Workload, clock: Callable[[], float]) -> tuple[float, Trace]:
    """Of the time of a run's steps, the share that went into making their events; and the run.

    Raises InflightError if events are made elsewhere than where this looks.
    """
    before, stopwatch = engine.recorder, _Stopwatch(clock)
    engine.recorder = stopwatch
    try:
        engine.run(workload)
    finally:
        engine.recorder = before
    trace = stopwatch.trace
    if stopwatch.calls != len(trace.events):
        raise InflightError(f"{len(trace.events)} events were made in {stopwatch.calls} calls, so their cost is not known.")
    return stopwatch.seconds / sum(event.t_end - event.t_start for event in trace.events), trace


class _Stopwatch(Recorder):
    """A recorder that adds up the time it takes to record, and the calls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.seconds, self.calls, self._clock = 0.0, 0, clock

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        self.calls += 1
        started = self._clock()
        try:
            return super().record(event)
        finally:
            self.seconds += self._clock() - started


def timed(engine: Engine, workload: Workload, device: Device, limit_s: float = math.inf) -> Timed:
    """Run a workload under the stopwatch."""
    gc.collect()
    started = device.now()
    steps = engine.stream(workload)
    cut = False
    for _ in steps:
        if device.clock() - started > limit_s:
            cut = engine.has_work
            break
    steps.close()  # type: ignore[attr-defined]
    seconds = device.now() - started
    return Timed(seconds, sum(len(event.sampled) for event in engine.trace.events), cut, engine.trace)


def median_run(runs: Sequence[Timed]) -> Timed:
    """The run of median speed, the slower of the two in the middle."""
    return sorted(runs, key=lambda run: run.tok_s)[(len(runs) - 1) // 2]


# -- what the events say -----------------------------------------------------------------------------------------------


def decode_only(events: Sequence[StepEvent], lanes: int = 1) -> list[StepEvent]:
    """The steps of one pass in which nobody's prompt was computed and at least `lanes` requests decoded."""
    return [e for e in events if len(e.passes) == 1 and len(e.segments) >= lanes and all(s.phase == "decode" for s in e.segments)]


def idle_share(events: Sequence[StepEvent]) -> float | None:
    """Of the time over decode-only steps, the share between the end of a pass and the start of the next; None without two in a row."""
    gaps = busy = 0.0
    for step, following in pairwise(decode_only(events)):
        if following.step == step.step + 1:
            before, after = step.passes[0], following.passes[0]
            gaps += max(0.0, after.t_start - before.t_end)
            busy += after.t_end - after.t_start
    return gaps / (gaps + busy) if busy else None


@dataclass(frozen=True)
class DecodeSteps:
    """Decode steps of all lanes. context: tokens in a request's cache, the new one included; a mean. seconds: of a pass, a median.

    floor_s: the median of what reading weights and cache takes at the measured bandwidth; share: the median of floor over time,
    step by step.
    """

    steps: int
    lanes: int
    context: float
    seconds: float
    floor_s: float
    share: float


def decode_steps(events: Sequence[StepEvent], lanes: int, weight_bytes: int, kv_bytes: int, bandwidth: float) -> DecodeSteps:
    """weight_bytes: read by a step. kv_bytes: of one token. bandwidth: bytes a second. Raises ValueError if there was no such step."""
    steps = decode_only(events, lanes)
    if not steps:
        raise ValueError(f"there was no step in which {lanes} requests decoded and none was prefilled")
    tokens = [sum(s.kv_len for s in e.segments) for e in steps]
    times = [_seconds(e.passes[0]) for e in steps]
    floors = [(weight_bytes + kv_bytes * count) / bandwidth for count in tokens]
    return DecodeSteps(
        len(steps),
        lanes,
        statistics.mean(tokens) / lanes,
        statistics.median(times),
        statistics.median(floors),
        statistics.median(floor / time for floor, time in zip(floors, times, strict=True)),
    )


def _seconds(forward: Pass) -> float:
    return max(forward.t_end - forward.t_start, 1e-6)  # the resolution of a trace
