"""Why one of two runs of the same requests took less time than the other: a sum whose parts are
measured in the two traces and add up to the difference. The cost of a pass and of a position is
fitted to the passes of both runs together; every count is exact. What the fit does not explain is
in the sum as two parts: one for steps that mix prefill and decode, one for everything else.

    seconds(after) − seconds(before) = passes × Δpasses + position × Δpositions + KV × ΔKV + left
        over

The number of steps is the number of lane-steps divided by the lanes, so the part of the steps is
split by what lanes were used for.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.account.metrics import metrics, wall_s
from core.errors import InflightError
from core.simulate.fitted import Linear, fit_passes, kv_bytes_per_token, measured
from core.trace.trace import Trace

FINISHED = "finished"
IDLE = "idle"
WORK = "work"
PASSES = "passes"
PADDING = "padding"
TOKENS = "tokens"
KV = "kv"
MIXED = "mixed"
REST = "rest"


@dataclass(frozen=True)
class Contribution:
    """One part of the sum: how much longer (below 0: shorter) it makes the second run, in seconds.
    before, after: the counts in each run, None for times.

    finished, idle, work: steps, by whether lanes were held by finished requests, by none, or by
    requests at work. passes: passes beyond one per step. padding, tokens: positions. kv: cached
    positions read. mixed, rest: seconds that the fit does not explain, in steps that mix prefill
    and decode, and in all others and between steps.
    """

    name: str
    seconds: float
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class Difference:
    """before_s, after_s: wall times of the runs. error: the fit's median error on new passes."""

    before_s: float
    after_s: float
    parts: tuple[Contribution, ...]
    error: float

    @property
    def seconds(self) -> float:
        """How much longer the second run took; negative if it was faster."""
        return self.after_s - self.before_s

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def difference(before: Trace, after: Trace) -> Difference:
    """Why two runs took different times. Raises InflightError for two engines, or few passes."""
    traces = (before, after)
    if before.header.engine != after.header.engine:
        raise InflightError(
            "Passes have different costs in different engines, so no sum explains why one took less"
            " time."
        )
    if not (before.events and after.events):
        raise InflightError("A run without steps took no time that could be divided into parts.")
    cost = _fitted(traces)
    counted = [_counts(trace) for trace in traces]
    over = [_left_over(trace, cost) for trace in traces]
    walls = [wall_s(trace) for trace in traces]
    prices = dict.fromkeys((FINISHED, IDLE, WORK, PASSES), cost.base_s) | {
        PADDING: cost.per_token_s,
        TOKENS: cost.per_token_s,
        KV: cost.per_kv_byte_s * cost.kv_bytes_per_token,
    }
    parts = [
        Contribution(n, price * (counted[1][n] - counted[0][n]), counted[0][n], counted[1][n])
        for n, price in prices.items()
    ]
    parts += [Contribution(name, over[1][name] - over[0][name]) for name in (MIXED, REST)]
    return Difference(walls[0], walls[1], tuple(parts), float(cost.error["median"]))


def _fitted(traces: tuple[Trace, Trace]) -> Linear:
    """One fit for both runs, so that the same work costs the same in both."""
    per_token = kv_bytes_per_token(traces[0].header)
    before, after = (measured(trace.events, per_token) for trace in traces)
    later = before[-1].step + 1 if before else 0
    return fit_passes(
        [*before, *(p._replace(step=later + p.step) for p in after)], per_token, typical=True
    )


def _counts(trace: Trace) -> Mapping[str, float]:
    numbers, lanes = metrics(trace), trace.config.num_lanes
    held, positions = numbers["lane_steps"], numbers["positions"]
    loads = [p.load for p in measured(trace.events, 1)]
    return {
        FINISHED: held["padding"] / lanes,
        IDLE: (held["barrier"] + held["empty"]) / lanes,
        WORK: (held["useful"] + held["stalled"]) / lanes,
        PASSES: numbers["passes"] - numbers["steps"],
        PADDING: sum(load.tokens for load in loads) - positions["tokens"],
        TOKENS: positions["tokens"],
        KV: sum(load.kv_bytes for load in loads),
    }


def _left_over(trace: Trace, cost: Linear) -> dict[str, float]:
    """Seconds that the fit does not explain: of mixed steps, and of everything else."""
    found = {MIXED: 0.0, REST: wall_s(trace)}
    for event in trace.events:
        passes = measured([event], cost.kv_bytes_per_token)
        took, expected = sum(p.seconds for p in passes), sum(cost.seconds(p.load) for p in passes)
        mixed = {s.phase for s in event.segments} == {"prefill", "decode"}
        found[MIXED] += took - expected if mixed else 0.0
        found[REST] -= took if mixed else expected
    return found
