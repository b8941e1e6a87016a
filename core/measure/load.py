"""Requests that arrive over time: arrival processes, lengths, and a sweep of rates that draws throughput against latency.

Arrivals follow a gamma process as in vLLM's serving benchmark: burstiness 1 is Poisson, below 1 is burstier, above 1 more even.
Knows engines only as something that runs a workload in seconds; a simulated engine will do.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from core.engine.engine import Engine
from core.errors import InflightError, InvalidWorkload
from core.measure.metrics import SLOs, metrics
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

FRACTIONS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.2)
POINT_SECONDS = 20.0
_ARRIVE_WITHIN = 0.75  # of a point's time; the rest is for answers to end
MAX_FILE_BYTES = 256 * 2**20


class Shape(NamedTuple):
    """Lengths of one request, in tokens; arrival in seconds where a file gives it."""

    prompt_tokens: int
    output_tokens: int
    arrival: float | None = None


# -- arrivals --------------------------------------------------------------------------------------------------------


def arrivals(rate: float, seed: int = 0, burstiness: float = 1.0) -> Iterator[float]:
    """Times in seconds, without end: gaps drawn from a gamma distribution of mean 1 / rate and shape `burstiness`.

    An infinite rate puts everything at 0. Raises InflightError for a rate or burstiness that is not above 0.
    """
    if not rate > 0:
        raise InflightError(f"A rate must be above 0 requests a second, not {rate!r}.")
    if not (burstiness > 0 and math.isfinite(burstiness)):
        raise InflightError(f"Burstiness must be above 0, not {burstiness!r}.")
    return _gamma_process(rate, random.Random(seed), burstiness)


def _gamma_process(rate: float, draw: random.Random, burstiness: float) -> Iterator[float]:
    at = 0.0
    while True:
        yield at
        at += 0.0 if math.isinf(rate) else draw.gammavariate(burstiness, 1 / (rate * burstiness))


# -- lengths ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lengths:
    """How long prompts and answers are: each `N`, `LOW-HIGH` (evenly drawn) or `~MEAN` (geometric-like, from an exponential).

    Raises InflightError for anything else.
    """

    prompt: str = "16-96"
    output: str = "8-64"

    def __post_init__(self) -> None:
        for text in (self.prompt, self.output):
            _parsed(text)

    def shapes(self, seed: int = 0) -> Iterator[Shape]:
        """Without end, seeded."""
        draw = random.Random(seed)
        prompt, output = _parsed(self.prompt), _parsed(self.output)
        while True:
            yield Shape(prompt(draw), output(draw))


def _parsed(text: str) -> Callable[[random.Random], int]:
    try:
        if text.startswith("~"):
            mean = float(text[1:])
            if not 1 <= mean < 2**31:
                raise ValueError
            return lambda draw: 1 + int(draw.expovariate(1 / (mean - 0.5))) if mean > 1 else 1
        low, dash, high = text.partition("-")
        first, last = int(low), int(high) if dash else int(low)
        if not 1 <= first <= last < 2**31:
            raise ValueError
        return lambda draw: draw.randint(first, last)
    except ValueError:
        raise InflightError(f"{text!r} is no length; write N, LOW-HIGH or ~MEAN, in tokens.") from None


def load_shapes(path: str | os.PathLike) -> list[Shape]:
    """A JSONL file of lengths: a line `[prompt, output]`, `[prompt, output, arrival]`, or an object with `prompt_tokens`, `output_tokens`
    and perhaps `arrival` (seconds). Arrivals, where given, count from the first. Raises InvalidWorkload naming the line at fault.
    """
    path = Path(path)
    shapes: list[Shape] = []
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidWorkload(f"{path.name} is larger than {MAX_FILE_BYTES >> 20} MiB.")
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    shapes.append(_shape(line, f"{path.name}, line {number}"))
    except OSError as error:
        raise InvalidWorkload(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidWorkload(f"{path.name} is not text.") from None
    if not shapes:
        raise InvalidWorkload(f"{path.name} holds no requests.")
    if len({shape.arrival is None for shape in shapes}) > 1:
        raise InvalidWorkload(f"{path.name} gives some requests an arrival and others none.")
    if shapes[0].arrival is None:
        return shapes
    shapes.sort(key=lambda shape: shape.arrival or 0.0)
    first = shapes[0].arrival or 0.0
    return [shape._replace(arrival=(shape.arrival or 0.0) - first) for shape in shapes]


def _shape(line: str, where: str) -> Shape:
    try:
        data = json.loads(line)
        row: list[Any] = [data.get(name) for name in Shape._fields] if isinstance(data, dict) else [*data, None, None][:3]
    except (ValueError, TypeError, RecursionError):
        raise InvalidWorkload(f"{where}: this is no request.") from None
    prompt, output, arrival = row[0], row[1], row[2]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n < 2**31 for n in (prompt, output))
    timed = arrival is None or (isinstance(arrival, (int, float)) and not isinstance(arrival, bool) and 0 <= arrival < 2**63)
    if not whole or not timed:
        raise InvalidWorkload(
            f"{where}: a request needs whole numbers of prompt and output tokens above 0, and an arrival of at least 0."
        )
    return Shape(prompt, output, arrival)


def request(index: int, shape: Shape, arrival: float, vocab_size: int, context: int | None, seed: int = 0) -> Request:
    """A greedy request of made-up tokens, cut to fit the context (answer first, at least one token)."""
    prompt, output = shape.prompt_tokens, shape.output_tokens
    if context is not None:
        prompt = max(1, min(prompt, context - 1))
        output = max(1, min(output, context - prompt))
    draw = random.Random(f"{seed} {index}")
    ids = tuple(draw.randrange(vocab_size) for _ in range(prompt))
    return Request(f"r{index}", prompt_token_ids=ids, sampling=SamplingParams(output, ignore_eos=True), arrival=arrival)


# -- a sweep ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """seconds: at most, for a point. rates: requests a second, or None for `fractions` of the measured capacity.

    shapes: lengths by request, used in turn; None draws from `lengths`. With arrivals of their own, they are replayed faster or slower to
    give each rate.
    """

    rates: tuple[float, ...] | None = None
    fractions: tuple[float, ...] = FRACTIONS
    seconds: float = POINT_SECONDS
    burstiness: float = 1.0
    seed: int = 0
    lengths: Lengths = field(default_factory=Lengths)
    shapes: tuple[Shape, ...] | None = None
    slos: SLOs = field(default_factory=SLOs)

    def __post_init__(self) -> None:
        for name in ("rates", "fractions"):
            for value in getattr(self, name) or ():
                if not (value > 0 and math.isfinite(value)):
                    raise InflightError(f"Each of {name} must be above 0, not {value!r}.")
        if not 0 < self.seconds <= POINT_SECONDS:
            raise InflightError(f"A point takes above 0 and at most {POINT_SECONDS:g} seconds, not {self.seconds!r}.")


@dataclass(frozen=True)
class Point:
    """A rate under a policy. offered: requests that were to arrive; numbers: the metrics of the run, of what happened until it ended or was
    cut (`cut`: its time was up with requests unfinished).
    """

    policy: str
    rate: float
    offered: int
    cut: bool
    numbers: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def workload(sweep: Sweep, rate: float, engine: Engine) -> Workload:
    """The requests of one point: those that arrive within three quarters of its time, at least one."""
    vocab_size, context = engine.adapter.vocab_size, engine.adapter.max_model_len
    until = sweep.seconds * _ARRIVE_WITHIN
    requests: list[Request] = []
    for index, (at, shape) in enumerate(zip(_times(sweep, rate), _shapes(sweep), strict=False)):
        if requests and at > until:
            break
        requests.append(request(index, shape, at, vocab_size, context, sweep.seed))
    return Workload(requests, name=f"load {rate:g}/s", arrival_unit="s")


def _times(sweep: Sweep, rate: float) -> Iterable[float]:
    shapes = sweep.shapes
    if shapes and len(shapes) > 1 and shapes[-1].arrival:
        own = (len(shapes) - 1) / shapes[-1].arrival
        return [(shape.arrival or 0.0) * own / rate for shape in shapes]
    return arrivals(rate, sweep.seed, sweep.burstiness)


def _shapes(sweep: Sweep) -> Iterator[Shape]:
    if sweep.shapes is None:
        yield from sweep.lengths.shapes(sweep.seed)
    else:
        while True:
            yield from sweep.shapes
            if sweep.shapes[0].arrival is not None:
                return


def capacity(sweep: Sweep, engine: Engine, requests: int = 64) -> float:
    """Requests a second that the engine finishes when all are there from the start; measured within a point's time."""
    vocab_size, context = engine.adapter.vocab_size, engine.adapter.max_model_len
    many = [request(i, shape, 0.0, vocab_size, context, sweep.seed) for i, shape in enumerate(islice(_shapes(sweep), requests))]
    trace, _ = _run(engine, Workload(many, "capacity", "s"), sweep.seconds)
    return _requests_per_s(trace)


def _requests_per_s(trace: Trace) -> float:
    """Of whole answers, the share of an unfinished one counted by its tokens."""
    wanted = {r["id"]: r["sampling"]["max_new_tokens"] for r in trace.header["workload"]["requests"]}
    done = sum(len(ids) / wanted[request] for request, ids in trace.outputs.items())
    wall = trace.events[-1].t_end - trace.events[0].t_start if trace.events else 0.0
    if not done or not wall:
        raise InflightError("The engine finished nothing within the time of a point, so its capacity is not known: give rates.")
    return done / wall


def sweep_load(
    engines: Mapping[str, Engine], sweep: Sweep, on_point: Callable[[str, float], None] = lambda policy, rate: None
) -> dict[str, Any]:
    """Throughput against latency for each policy at each rate; policies take turns at a rate. Plain data.

    The capacity is that of the first policy, so that all are offered the same.
    """
    names = list(engines)
    measured_capacity = None
    rates: Sequence[float] = sweep.rates or ()
    if not rates:
        on_point(names[0], math.inf)
        measured_capacity = capacity(sweep, engines[names[0]])
        rates = [round(fraction * measured_capacity, 4) for fraction in sweep.fractions]
    points = []
    for number, rate in enumerate(rates):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            on_point(name, rate)
            requests = workload(sweep, rate, engines[name])
            trace, cut = _run(engines[name], requests, sweep.seconds)
            points.append(Point(name, rate, len(requests), cut, metrics(trace, sweep.slos)))
    points.sort(key=lambda point: (names.index(point.policy), point.rate))
    source = next(iter(engines.values())).trace.header["source"]
    return {
        "source": source,
        "capacity_requests_per_s": measured_capacity,
        "seconds_a_point": sweep.seconds,
        "burstiness": sweep.burstiness,
        "seed": sweep.seed,
        "lengths": asdict(sweep.lengths) if sweep.shapes is None else f"{len(sweep.shapes)} from a file",
        "slos": {f.name: getattr(sweep.slos, f.name) for f in fields(sweep.slos)},
        "points": [point.to_json() for point in points],
    }


def _run(engine: Engine, requests: Workload, seconds: float) -> tuple[Trace, bool]:
    """Run until the end or until its time is up; whether it was cut."""
    steps = engine.stream(requests)
    cut = False
    for event in steps:
        if event.t_end >= seconds:
            cut = engine.has_work
            break
    trace = engine.trace
    steps.close()  # type: ignore[attr-defined]
    return trace, cut
