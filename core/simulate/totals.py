"""A run in numbers, computed event by event, for runs of more requests than fit in memory."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

from core.account.metrics import positions_of
from core.account.request_times import SLOs
from core.collector import gc_off
from core.engine.engine import EngineCore
from core.errors import require
from core.trace.events import StepEvent
from core.workload.request import Request


class LogHistogram:
    """Counts of positive numbers in bins one percent wide, for percentiles in little memory."""

    _STEP = math.log(1.01)

    def __init__(self) -> None:
        self.count, self.total, self.highest = 0, 0.0, 0.0
        self._bins: Counter[int] = Counter()

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.count += times
        self.total += value * times
        self.highest = max(self.highest, value)
        self._bins[math.floor(math.log(value) / self._STEP) if value > 0 else -(10**9)] += times

    def percentile(self, share: float) -> float | None:
        """A percentile to within one percent, interpolated as in `metrics`; None without values."""
        if not self.count:
            return None
        place = share / 100 * (self.count - 1)
        low, high = self._ranked(math.floor(place)), self._ranked(math.ceil(place))
        return low + (high - low) * (place % 1)

    def _ranked(self, rank: int) -> float:
        bins = sorted(self._bins)
        ends = accumulate(self._bins[index] for index in bins)
        index = next(index for index, end in zip(bins, ends, strict=True) if rank < end)
        return min(self.highest, math.exp((index + 0.5) * self._STEP))

    def to_json(self) -> dict[str, float | int | None]:
        """Count, mean, maximum, and percentiles within one percent."""
        numbers = {
            "mean": self.total / self.count if self.count else None,
            "max": self.highest if self.count else None,
        }
        numbers |= {f"p{p}": self.percentile(p) for p in (50, 90, 99)}
        return {
            "count": self.count,
            **{name: None if v is None else round(v, 6) for name, v in numbers.items()},
        }


class RunTotals:
    """A run in numbers, computed event by event, with state only for unfinished requests. slos: the
    limits for the goodput; None to leave it out.
    """

    def __init__(self, slos: SLOs | None = None) -> None:
        self._slos = slos
        self.arrived = self.met = self.finished = self.preemptions = 0
        self.steps = self.passes = self.output_tokens = self.positions = self.padding = 0
        self.kv_use = self.first = self.last = 0.0
        self.ttft, self.itl, self.e2e = LogHistogram(), LogHistogram(), LogHistogram()
        self._arrival: dict[str, float] = {}
        self._latest: dict[str, float] = {}
        self._first: dict[str, float] = {}  # the end of the pass that gave its first token
        self._count: Counter[str] = Counter()  # tokens

    def add(self, event: StepEvent) -> None:
        """Count a step; events must come in order."""
        if not self.steps:
            self.first = min([event.t_start, *(arrived.t for arrived in event.arrived)])
        self.last = event.t_end
        self.steps += 1
        self.passes += len(event.passes)
        computed, padding = positions_of(event)
        self.positions += computed
        self.padding += padding
        self.preemptions += len(event.preempted)
        self.kv_use += event.kv.used / event.kv.total
        self.output_tokens += len(event.sampled)
        self.arrived += len(event.arrived)
        for arrived in event.arrived:
            self._arrival[arrived.request] = arrived.t
        ends = [p.t_end for p in event.passes]
        latest, gaps = self._latest, Counter[float]()
        for sampled in event.sampled:
            request, end = sampled.request, ends[sampled.pass_index]
            before = latest.get(request)
            if before is None:
                self.ttft.add(end - self._arrival[request])
                self._first[request] = end
            else:
                gaps[end - before] += 1
            latest[request] = end
            if self._slos is not None:
                self._count[request] += 1
        for gap, times in gaps.items():
            self.itl.add(gap, times)
        for over in event.finished:
            request, reason = over.request, over.finish_reason
            arrival = self._arrival.pop(request)
            if request in latest:
                first, ended = self._first.pop(request), latest.pop(request)
                gaps_between = self._count.pop(request, 1) - 1
                if reason in ("length", "stop"):
                    self.finished += 1
                    self.e2e.add(ended - arrival)
                    tpot = (ended - first) / gaps_between if gaps_between else None
                    self.met += self._slos is not None and self._slos.met(
                        first - arrival, tpot, ended - arrival
                    )

    def to_json(self) -> dict[str, Any]:
        """Plain data: seconds, rates, and what was computed."""
        wall = self.last - self.first
        goodput = {} if self._slos is None else {"goodput": self._goodput(wall)}
        return {
            "wall_s": round(wall, 6),
            "steps": self.steps,
            "passes": self.passes,
            "finished": self.finished,
            "output_tokens": self.output_tokens,
            "output_tok_s": self.output_tokens / wall if wall else None,
            "requests_per_s": self.finished / wall if wall else None,
            "padding_waste": self.padding / self.positions if self.positions else None,
            "kv_use": self.kv_use / self.steps if self.steps else None,
            "preemptions": self.preemptions,
            "ttft_s": self.ttft.to_json(),
            "itl_s": self.itl.to_json(),
            "e2e_s": self.e2e.to_json(),
            **goodput,
        }

    def _goodput(self, wall: float) -> dict[str, Any]:
        """The goodput as in `core.account.metrics`."""
        return {
            "slos": asdict(self._slos) if self._slos else {},
            "met": self.met,
            "share": self.met / self.arrived if self.arrived else None,
            "requests_per_s": self.met / wall if wall else None,
        }


def run_stream(
    engine: EngineCore,
    requests: Iterable[Request],
    on_step: Callable[[RunTotals], None] = lambda totals: None,
    totals: RunTotals | None = None,
) -> RunTotals:
    """Run a stream of requests, drawn as they arrive (in seconds, in order), to its end. Returns
    the totals of all events, added to `totals` if given.

    What remains in `engine.trace` is up to its recorder. Set `num_blocks`; otherwise the pool is as
    large as all lanes could need at the longest context.
    """
    require(engine, EngineCore, "An engine runs a stream of requests")
    require(requests, Iterable, "A stream yields requests")
    require(on_step, Callable, "What is told of each step is a function")
    totals = RunTotals() if totals is None else require(totals, RunTotals, "Totals are RunTotals")
    coming = (require(request, Request, "A stream yields requests") for request in requests)
    with gc_off():
        limits = engine.config
        # the size of the pool does not follow from the requests, so the trace must have it
        if limits.num_blocks is None:
            limits = replace(limits, num_blocks=engine.kv_blocks[1])
        engine.begin("s", "stream", limits)
        head = next(coming, None)
        while head is not None or engine.has_work:
            while head is not None and (head.arrival <= engine.now or not engine.has_work):
                engine.add_request(head)
                head = next(coming, None)
            event = engine.step()
            if event is not None:
                totals.add(event)
                on_step(totals)
        engine.trace.complete = True
    return totals
