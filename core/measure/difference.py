"""Why one run took less time than another, as a sum whose parts are measured in the two traces and add up to the difference. Knows no policy.

The cost of a pass and of a position is fitted to the passes of both runs together; every count is exact. What the fit leaves over is a part
of its own in the sum: one for steps that mix prefill and decode, one for everything else.

    seconds(after) − seconds(before) = passes × Δpasses + position × Δpositions + KV × ΔKV + left over

The number of steps follows from what each lane did in them, lanes × steps in all, so that their part is told by what lanes were held for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import InflightError
from core.measure.metrics import metrics, wall_s
from core.simulate.cost import Linear, Load, fit_loads, kv_bytes_per_token, measured
from core.trace.trace import Trace

FINISHED, IDLE, WORK, PASSES, PADDING, TOKENS, KV, MIXED, REST = (
    "finished", "idle", "work", "passes", "padding", "tokens", "kv", "mixed", "rest",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What makes the second run longer (below 0: shorter), in seconds. before, after: what was counted in each, None for times.

    finished, idle, work: steps for which lanes were held by requests that had finished, by nobody, by somebody at work. passes: those
    beyond one a step. padding, tokens: positions. kv: cached positions read. mixed, rest: seconds beyond the fit, of steps that mix
    prefill and decode, and of all others and between steps.
    """

    name: str
    seconds: float
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class Difference:
    """before_s, after_s: wall times of the two runs. error: of the fit on passes that it had not seen, relative, a median."""

    before_s: float
    after_s: float
    parts: tuple[Part, ...]
    error: float

    @property
    def seconds(self) -> float:
        return self.after_s - self.before_s

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def difference(before: Trace, after: Trace) -> Difference:
    """Of two measured runs; raises InflightError where too few passes were measured, or none, and for runs of two engines."""
    traces = (before, after)
    if before.header.engine != after.header.engine:
        raise InflightError("A pass costs one engine something else than another, so no sum tells why one took less time.")
    if not (before.events and after.events):
        raise InflightError("A run without steps took no time that could be told apart.")
    cost = _fitted(traces)
    counted = [_counts(trace) for trace in traces]
    over = [_left_over(trace, cost) for trace in traces]
    walls = [wall_s(trace) for trace in traces]
    prices = dict.fromkeys((FINISHED, IDLE, WORK, PASSES), cost.base_s) | {
        PADDING: cost.per_token_s,
        TOKENS: cost.per_token_s,
        KV: cost.per_kv_byte_s * cost.kv_bytes_per_token,
    }
    parts = [Part(n, price * (counted[1][n] - counted[0][n]), counted[0][n], counted[1][n]) for n, price in prices.items()]
    parts += [Part(name, over[1][name] - over[0][name]) for name in (MIXED, REST)]
    return Difference(walls[0], walls[1], tuple(parts), float(cost.error["median"]))


def _fitted(traces: tuple[Trace, Trace]) -> Linear:
    """One line for both runs, so that what they have in common costs the same in both."""
    per_token = kv_bytes_per_token(traces[0].header)
    pairs = [measured(trace.events, per_token) for trace in traces]
    return fit_loads([load for loads, _ in pairs for load in loads], [s for _, seconds in pairs for s in seconds], per_token)


def _counts(trace: Trace) -> Mapping[str, float]:
    numbers, lanes = metrics(trace), trace.config.num_lanes
    held, positions = numbers["lane_steps"], numbers["positions"]
    loads, _ = measured(trace.events, 1)
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
    """Seconds beyond the fit: of mixed steps, and of everything else, what lies between steps included."""
    found = {MIXED: 0.0, REST: wall_s(trace)}
    for event in trace.events:
        loads, seconds = measured([event], cost.kv_bytes_per_token)
        expected = sum(cost.seconds(Load(*load)) for load in loads)
        mixed = {s.phase for s in event.segments} == {"prefill", "decode"}
        found[MIXED] += sum(seconds) - expected if mixed else 0.0
        found[REST] -= sum(seconds) if mixed else expected
    return found
