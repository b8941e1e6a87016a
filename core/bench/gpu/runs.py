"""What every part runs in, and this engine's runs: under a stopwatch that knows nothing of its own clock, and what their events say of the device.

On a CPU, where tests run, time is the host's and peak memory is not observable.
"""

from __future__ import annotations

import gc
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

import torch
from torch.utils.benchmark import Timer

from core.bench.gpu.scale import ModelShape, Scale
from core.config import EngineConfig, Execution
from core.engine.recorder import TraceRecorder
from core.errors import InflightError
from core.models import load as models
from core.models.adapter import ModelAdapter
from core.runner.engine import Engine
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.workload import Workload

DTYPE = torch.bfloat16


class Device:
    """What time it is, what is in memory, how fast memory copies. clock: seconds on the host, for tests."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.torch, self.clock = device, clock
        self.on_cuda = device.type == "cuda"

    def now(self) -> float:
        """The host's time once everything launched so far is done."""
        if self.on_cuda:
            torch.cuda.synchronize(self.torch)
        return self.clock()

    def answers(self) -> bool:
        """Whether anything can still run: after an illegal access every call of the process fails."""
        try:
            torch.zeros(1, device=self.torch).add_(1).item()
        except Exception:
            return False
        return True

    def free(self) -> None:
        """Give back the device memory that nobody refers to any more, and count the peak anew."""
        if self.on_cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.torch)

    def peak_bytes(self) -> int | None:
        """The most that tensors have held since `free`; None on a CPU."""
        return torch.cuda.max_memory_allocated(self.torch) if self.on_cuda else None

    def copy_bandwidth(self, size: int) -> float:
        """Bytes a second of a copy of `size` bytes within the device's memory, those read and those written both counted; a median."""
        source = torch.empty(size, dtype=torch.uint8, device=self.torch).random_()
        copy = Timer("target.copy_(source)", globals={"source": source, "target": torch.empty_like(source)})
        return 2 * size / copy.blocked_autorange().median  # it waits for the device by itself

    def about(self) -> dict[str, Any]:
        """What it is and which software runs on it: what two results must share to stand in one file."""
        about: dict[str, Any] = {"device": self.torch.type, "name": platform.machine(), "memory_bytes": None, "capability": None}
        if self.on_cuda:
            found = torch.cuda.get_device_properties(self.torch)
            about |= {"name": found.name, "memory_bytes": found.total_memory, "capability": f"{found.major}.{found.minor}"}
        try:
            triton = version("triton")
        except PackageNotFoundError:
            triton = None
        versions = {"python": platform.python_version(), **models.versions(), "triton": triton}
        return {**about, "versions": versions, "cuda": torch.version.cuda}


@dataclass
class PartContext:
    """What a part runs in. left: seconds until the whole benchmark must end. say: told of what is worth a line on the way, which is also kept."""

    scale: Scale
    device: Device
    left: Callable[[], float] = lambda: math.inf
    say: Callable[[str], None] = lambda text: None
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.say(f"  {text}")

    def limit(self, seconds: float) -> float:
        """At most so long, and no longer than is left."""
        return max(1.0, min(seconds, self.left()))

    def model(self, shape: ModelShape, initializer_range: float = 0.02) -> Any:
        return shape.build(self.device.torch, DTYPE, self.scale.context, initializer_range=initializer_range)


def speed(seconds: float, tokens: int, cut: bool) -> dict[str, Any]:
    """What every run is counted by. cut: its time was up before all was written."""
    return {"seconds": round(seconds, 4), "output_tokens": tokens, "output_tok_s": round(tokens / seconds, 1), "cut": cut}


# -- runs of this engine -----------------------------------------------------------------------------------------------


def engine_for(adapter: ModelAdapter, scale: Scale, workload: Workload, execution: Execution | None = None) -> Engine:
    """An engine with room for all lanes of this workload."""
    config = EngineConfig(
        max_num_seqs=scale.lanes, max_num_batched_tokens=scale.budget, block_size=scale.block_size, num_blocks=scale.num_blocks(workload)
    )  # fmt: skip
    return Engine(adapter, None, config, execution=execution)


@dataclass(frozen=True)
class TimedRun:
    """A run from its first request to its last token. cut: its time was up before all was written."""

    seconds: float
    tokens: int
    cut: bool
    trace: Trace

    @property
    def tok_s(self) -> float:
        return self.tokens / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Its speed, how long the device was idle, and how the trace says that passes were computed.

        idle: see `idle_share`; None on a GPU whose passes the host timed, one after the other.
        """
        header = self.trace.header
        by_host = header.device.startswith("cuda") and header.execution is None
        idle = None if by_host else idle_share(self.trace.events)
        computed = {name: header.to_json().get(name) for name in ("execution", "memory", "notes")}
        return {**speed(self.seconds, self.tokens, self.cut), "idle": idle, **computed}


def timed(engine: Engine, workload: Workload, device: Device, limit_s: float = math.inf) -> TimedRun:
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
    return TimedRun(seconds, sum(len(event.sampled) for event in engine.trace.events), cut, engine.trace)


def median_run(runs: Sequence[TimedRun]) -> TimedRun:
    """The run of median speed, the slower of the two in the middle."""
    return sorted(runs, key=lambda run: run.tok_s)[(len(runs) - 1) // 2]


# -- what recording costs ----------------------------------------------------------------------------------------------


@contextmanager
def events_made_by(engine: Engine, make: Callable[[Callable[[], StepEvent]], StepEvent]) -> Iterator[TraceRecorder]:
    """For a while every event of an engine is what `make` returns, which is given the function that would make it."""

    class Given(TraceRecorder):
        def record(self, event: Callable[[], StepEvent]) -> StepEvent:
            return super().record(lambda: make(event))

    before, engine.recorder = engine.recorder, Given()
    try:
        yield engine.recorder
    finally:
        engine.recorder = before


def no_events_made(engine: Engine) -> AbstractContextManager[object]:
    """Steps happen, but the first event of the run before stands in for the event of each."""
    first = engine.trace.events[0]
    return events_made_by(engine, lambda make: first)


def recording_share(engine: Engine, workload: Workload, clock: Callable[[], float]) -> tuple[float, Trace]:
    """Of the time of a run's steps, the share that went into making their events; and the run.

    Raises InflightError if events are made elsewhere than where this looks.
    """
    seconds: list[float] = []

    def timed_making(make: Callable[[], StepEvent]) -> StepEvent:
        started = clock()
        event = make()
        seconds.append(clock() - started)
        return event

    with events_made_by(engine, timed_making) as recorder:
        engine.run(workload)
    trace = recorder.trace
    if len(seconds) != len(trace.events):
        raise InflightError(f"{len(trace.events)} events were made in {len(seconds)} calls, so their cost is not known.")
    return sum(seconds) / sum(event.t_end - event.t_start for event in trace.events), trace


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


def decode_steps(events: Sequence[StepEvent], lanes: int, weight_bytes: int, kv_bytes: int, bandwidth: float) -> dict[str, float]:
    """Decode steps of all lanes. weight_bytes: read by a step. kv_bytes: of one token. bandwidth: bytes a second.

    steps, lanes. context: tokens in a request's cache, the new one included; a mean. seconds: of a pass, a median. floor_s: the median of
    what reading weights and cache takes at this bandwidth; share: the median of floor over time, step by step.
    Raises ValueError if there was no such step.
    """
    steps = decode_only(events, lanes)
    if not steps:
        raise ValueError(f"there was no step in which {lanes} requests decoded and none was prefilled")
    tokens = [sum(s.kv_len for s in e.segments) for e in steps]
    times = [max(e.passes[0].t_end - e.passes[0].t_start, 1e-6) for e in steps]  # the resolution of a trace
    floors = [(weight_bytes + kv_bytes * count) / bandwidth for count in tokens]
    return {
        "steps": len(steps),
        "lanes": lanes,
        "context": statistics.mean(tokens) / lanes,
        "seconds": statistics.median(times),
        "floor_s": statistics.median(floors),
        "share": statistics.median(floor / time for floor, time in zip(floors, times, strict=True)),
    }
