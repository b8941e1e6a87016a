"""Why batching pays, measured: the time of a step against the tokens in its batch, and against the
KV that it reads.

It drives the runner of an engine's executor with made-up requests, without a scheduler.
"""

import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from core.config import EngineConfig
from core.engine.runner import Executor, Runner
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.workload.request import SamplingParams

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (16, 64, 128, 256, 512, 1024)
_SHORT, _REQUESTS, _BLOCK = 32, 8, 16
# seconds measured at least at once: a browser's clock may resolve only whole milliseconds
_LEAST = 0.01


@dataclass(frozen=True)
class StepCost:
    """A decode step of `tokens` requests, which reads `kv_read` cached positions together."""

    tokens: int
    kv_read: int
    step_s: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median seconds of a step."""
        return statistics.median(self.step_s)

    def to_json(self) -> dict[str, Any]:
        """Plain data, seconds to a tenth of a microsecond."""
        return {
            "tokens": self.tokens,
            "kv_read": self.kv_read,
            "median_s": round(self.median, 7),
            "min_s": round(min(self.step_s), 7),
            "max_s": round(max(self.step_s), 7),
            "runs_s": [round(s, 7) for s in self.step_s],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `to_json`; raises KeyError where a field is missing."""
        return cls(data["tokens"], data["kv_read"], tuple(data["runs_s"]))


@dataclass(frozen=True)
class CostCurve:
    """by_tokens: decode steps of more and more requests with short caches. by_kv: of the same
    requests with longer and longer caches.
    """

    model: dict[str, Any]
    device: str
    dtype: str
    by_tokens: tuple[StepCost, ...]
    by_kv: tuple[StepCost, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data, both curves point by point."""
        return {
            **asdict(self),
            "by_tokens": [p.to_json() for p in self.by_tokens],
            "by_kv": [p.to_json() for p in self.by_kv],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `to_json`."""
        by_tokens, by_kv = (
            tuple(StepCost.from_json(p) for p in data[name]) for name in ("by_tokens", "by_kv")
        )
        return cls(data["model"], data["device"], data["dtype"], by_tokens, by_kv)


def measuring_cost(
    executor: Executor,
    *,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    repeats: int = 7,
    seconds: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Generator[tuple[int, int], None, CostCurve]:
    """Measure both curves, in rounds over the whole grid, so that a busy moment does not spoil a
    single point. Yields how many measurements are done, and of how many; returns the curves.

    Contexts longer than the model's are left out. After `seconds` no further round begins; every
    point is measured at least once.
    """
    model = executor.model
    longest = model.context or max(contexts)
    grid = {("tokens", n): (n, min(_SHORT, longest)) for n in batches}
    grid |= {("kv", length): (_REQUESTS, length) for length in contexts if length <= longest}
    blocks = max(n * -(-length // _BLOCK) for n, length in grid.values())
    most = max(n for n, _ in grid.values())
    config = EngineConfig(max_num_seqs=most, max_num_batched_tokens=most, block_size=_BLOCK)
    runner = executor.new_runner(config, blocks, clock)
    runner.begin()
    params = {f"r{i}": SamplingParams() for i in range(most)}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in grid}
    started = clock()
    for round_number, done, key in _rounds(list(grid), repeats):
        if round_number > 1 and clock() - started > seconds:
            break
        yield done, (repeats + 1) * len(grid)
        seconds_of_step = _timed(runner, decode_step(*grid[key]), params)
        if round_number:
            times[key].append(seconds_of_step)
    points = {key: StepCost(n, n * length, tuple(times[key])) for key, (n, length) in grid.items()}
    return CostCurve(
        {"name": model.name, "parameters": model.parameters},
        executor.header["device"],
        executor.header["dtype"],
        tuple(p for (kind, _), p in points.items() if kind == "tokens"),
        tuple(p for (kind, _), p in points.items() if kind == "kv"),
    )


def decode_step(requests: int, context: int) -> SchedulerOutput:
    """A packed pass in which each request computes token `context`; all before are cached."""
    each, scheduled = -(-context // _BLOCK), []
    for i in range(requests):
        table = BlockTable(tuple(range(i * each, (i + 1) * each)))
        scheduled.append(
            ScheduledRequest(
                request=f"r{i}",
                lane=i,
                phase="decode",
                tokens=(1,),
                start=context - 1,
                block_table=table,
                samples=True,
            )
        )
    return SchedulerOutput("packed", tuple(scheduled))


def _timed(runner: Runner, step: SchedulerOutput, params: Mapping[str, SamplingParams]) -> float:
    """Seconds that a step takes; for a step too short for the clock, the mean of several."""
    passed, count = 0.0, 0
    while passed < _LEAST and count < 100:
        result = runner.launch(step, params).result()
        passed, count = passed + result.t_end - result.t_start, count + 1
    return passed / count


def _rounds(keys: list[Any], repeats: int) -> Iterator[tuple[int, int, Any]]:
    """The measurements in order. Round 0 warms up; every other round walks the grid backwards."""
    done = 0
    for number in range(repeats + 1):
        for key in keys if number % 2 else reversed(keys):
            yield number, done, key
            done += 1
