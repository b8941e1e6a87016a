"""What a forward pass costs: fitted to the measured steps of a local run, or from data sheets for a named accelerator and model size.

cost = fit(trace)
cost = Roofline.named("h100", "8b")
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import mul
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

from core.errors import InflightError
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.trace import Trace

_HELD_OUT = 4  # every fourth measured pass is held out of the fit


class Load(NamedTuple):
    """What determines a pass's cost: positions computed (including pads) and bytes of KV read."""

    tokens: int
    kv_bytes: int


class Cost(Protocol):
    """Seconds of a pass. kv_bytes_per_token: over all layers. beyond: whether this load is outside what was measured."""

    @property
    def kv_bytes_per_token(self) -> int: ...
    def seconds(self, load: Load) -> float: ...
    def beyond(self, load: Load) -> bool: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Linear:
    """base_s (weights, launches, Python) + per_token_s × tokens + per_kv_byte_s × bytes, fitted to measured passes.

    most: the largest load measured. error: relative error on the held-out passes: median and 90th percentile.
    """

    base_s: float
    per_token_s: float
    per_kv_byte_s: float
    kv_bytes_per_token: int
    most: Load
    error: Mapping[str, float | int] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self, load: Load) -> float:
        return self.base_s + self.per_token_s * load.tokens + self.per_kv_byte_s * load.kv_bytes

    def beyond(self, load: Load) -> bool:
        return load.tokens > self.most.tokens or load.kv_bytes > self.most.kv_bytes

    def to_json(self) -> dict[str, Any]:
        return {"kind": "fitted", **asdict(self), "most": self.most._asdict()}


class Accelerator(NamedTuple):
    """Peak numbers of a data sheet (dense, 16-bit), and the share of them that kernels reach in practice."""

    flops: float
    bytes_per_s: float
    overhead_s: float
    reached: float = 0.6


class ModelSize(NamedTuple):
    parameters: float
    layers: int
    kv_heads: int
    head_size: int


ACCELERATORS: dict[str, Accelerator] = {
    "a100": Accelerator(312e12, 2.0e12, 200e-6),
    "h100": Accelerator(989e12, 3.35e12, 200e-6),
    "h200": Accelerator(989e12, 4.8e12, 200e-6),
    "l4": Accelerator(121e12, 0.3e12, 200e-6),
    "m2-ultra": Accelerator(27e12, 0.8e12, 500e-6),
}
MODEL_SIZES: dict[str, ModelSize] = {
    "124m": ModelSize(124e6, 12, 12, 64),
    "1b": ModelSize(1.24e9, 16, 8, 64),
    "8b": ModelSize(8.0e9, 32, 8, 128),
    "70b": ModelSize(70.6e9, 80, 8, 128),
}


@dataclass(frozen=True)
class Roofline:
    """From data sheets: the larger of reading the weights and computing the tokens, plus reading the KV, plus an overhead; 16-bit weights and KV."""

    accelerator: str
    model: str
    weight_bytes: float
    flops_per_token: float
    kv_bytes_per_token: int
    flops: float
    bytes_per_s: float
    overhead_s: float

    @classmethod
    def named(cls, accelerator: str, model: str) -> Roofline:
        """Raises InflightError for a name not in the tables."""
        if accelerator not in ACCELERATORS:
            raise InflightError(f"There is no accelerator {accelerator!r} on record; there are {', '.join(ACCELERATORS)}.")
        if model not in MODEL_SIZES:
            raise InflightError(f"There is no model size {model!r} on record; there are {', '.join(MODEL_SIZES)}.")
        chip, size = ACCELERATORS[accelerator], MODEL_SIZES[model]
        kv = 2 * 2 * size.layers * size.kv_heads * size.head_size
        return cls(
            accelerator, model, 2 * size.parameters, 2 * size.parameters, kv,
            chip.flops * chip.reached, chip.bytes_per_s * chip.reached, chip.overhead_s,
        )  # fmt: skip

    def seconds(self, load: Load) -> float:
        computing = max(self.weight_bytes / self.bytes_per_s, load.tokens * self.flops_per_token / self.flops)
        return self.overhead_s + computing + load.kv_bytes / self.bytes_per_s

    def beyond(self, load: Load) -> bool:
        return True  # nothing was measured

    def to_json(self) -> dict[str, Any]:
        return {"kind": "by hand", **asdict(self)}


# -- fitting ---------------------------------------------------------------------------------------------------------


def fit(trace: Trace) -> Linear:
    """Least squares over the passes of a measured run, no coefficient below zero; every fourth pass is held out and predicted.

    A pass's time is its own plus its share of the rest of the step. Raises InflightError for a simulated trace, one of too few passes,
    and one whose clock could not tell their times, as in some browsers.
    """
    if trace.header.is_simulated:
        raise InflightError("A simulated trace measured nothing, so nothing can be fitted to it.")
    per_token = kv_bytes_per_token(trace.header)
    loads, seconds = measured(trace.events, per_token)
    return fit_loads(loads, seconds, per_token, measured_on(trace.header))


def fit_loads(loads: Sequence[Load], seconds: Sequence[float], per_token: int, about: Mapping[str, Any] | None = None) -> Linear:
    """See `fit`."""
    if len(loads) < 2 * _HELD_OUT:
        raise InflightError(f"{len(loads)} measured passes are too few for a fit; {2 * _HELD_OUT} are the least.")
    if min(seconds) <= 0:
        raise InflightError("The clock was too coarse for a fit: it measured passes that took no time.")
    passes = list(zip(loads, seconds, strict=True))
    held_out = passes[_HELD_OUT - 1 :: _HELD_OUT]
    base, per_position, per_byte = _least_squares(
        [(1.0, *load, took) for i, (load, took) in enumerate(passes) if i % _HELD_OUT != _HELD_OUT - 1]
    )
    most = Load(max(load.tokens for load in loads), max(load.kv_bytes for load in loads))
    fitted = Linear(base, per_position, per_byte, per_token, most, {}, dict(about or {}))
    predicted = [fitted.seconds(load) for load, _ in held_out]
    errors = [abs(guess - took) / took for guess, (_, took) in zip(predicted, held_out, strict=True)]
    error = {
        "held_out_passes": len(held_out),
        "median": round(median(errors), 4),
        "p90": round(quantiles(errors, n=10, method="inclusive")[-1], 4),
        "total": round(sum(predicted) / sum(took for _, took in held_out) - 1, 4),
    }
    return replace(fitted, error=error)


def measured(events: Iterable[StepEvent], per_token: int) -> tuple[list[Load], list[float]]:
    """Load and seconds of every pass."""
    loads, seconds = [], []
    for event in events:
        if not event.passes:
            continue
        rest = event.t_end - event.t_start - sum(p.t_end - p.t_start for p in event.passes)
        kv = [0] * len(event.passes)
        for segment in event.segments:
            kv[segment.pass_index] += segment.kv_len
        for forward, read in zip(event.passes, kv, strict=True):
            loads.append(Load(forward.rows * forward.width, read * per_token))
            seconds.append(forward.t_end - forward.t_start + rest / len(event.passes))
    return loads, seconds


def measured_on(header: Header) -> dict[str, Any]:
    """The hardware and model on which passes were measured."""
    return {"model": header.model.name, "device": header.device}


def kv_bytes_per_token(header: Header) -> int:
    """KV bytes per token; 1 if the header gives no size, so that KV is counted in positions."""
    return header.model.kv_bytes_per_token or 1


def _least_squares(passes: Sequence[tuple[float, ...]]) -> list[float]:
    """The coefficients with the least squared relative errors; a negative one is set to zero and the others are fitted again.

    passes: the cost factors of each, then its seconds.
    """
    weights = [0.0] * (len(passes[0]) - 1)
    used = list(range(len(weights)))
    while True:
        scales = [max(abs(row[column]) for row in passes) or 1.0 for column in used]
        rows = [[row[column] / scale / row[-1] for column, scale in zip(used, scales, strict=True)] for row in passes]
        columns = list(zip(*rows, strict=True))
        found = _solved(
            [[math.fsum(map(mul, a, b)) for b in columns] for a in columns], [math.fsum(column) for column in columns]
        )
        if min(found) >= 0:
            for column, value, scale in zip(used, found, scales, strict=True):
                weights[column] = value / scale
            return weights
        used.pop(found.index(min(found)))


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination. Cost factors may be the same in all passes: a small addition to the diagonal then divides the cost evenly."""
    size = len(right)
    ridge = 1e-12 * sum(matrix[i][i] for i in range(size))
    rows = [[*row[:i], row[i] + ridge, *row[i + 1 :], value] for i, (row, value) in enumerate(zip(matrix, right, strict=True))]
    for i in range(size):
        for other in range(size):
            if other != i:
                factor = rows[other][i] / rows[i][i]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


# -- running ---------------------------------------------------------------------------------------------------------


def cost_named(spec: str) -> Cost:
    """A cost model by name, such as `h100:8b`, or fitted to a trace file; raises InflightError for anything else."""
    accelerator, colon, size = spec.partition(":")
    if colon and accelerator in ACCELERATORS:
        return Roofline.named(accelerator, size)
    if spec.endswith(".jsonl"):
        return fit(Trace.load(spec))
    raise InflightError(
        f"{spec!r} is no cost model; give a measured trace (.jsonl) or ACCELERATOR:SIZE, of {', '.join(ACCELERATORS)} and {', '.join(MODEL_SIZES)}."
    )
