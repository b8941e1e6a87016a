"""Requests that arrive over time: arrival processes, lengths drawn or read from a file, and
requests of made-up tokens.

Arrivals follow a gamma process as in vLLM's serving benchmark: burstiness 1 is Poisson, below 1 is
burstier, above 1 more even.
"""

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.errors import InflightError, InvalidWorkload, require, shown
from core.workload.request import Request, SamplingParams

MOST_TOKENS = 2**20  # of a prompt or an answer that is made up
MAX_DATASET_BYTES = 256 * 2**20


class RequestSize(NamedTuple):
    """Lengths of one request, in tokens; arrival in seconds where a file gives it."""

    prompt_tokens: int
    output_tokens: int
    arrival: float | None = None


# -- arrivals --------------------------------------------------------------------------------------


def arrivals(rate: float, seed: int = 0, burstiness: float = 1.0) -> Iterator[float]:
    """Times in seconds, without end: gaps drawn from a gamma distribution of mean 1 / rate and
    shape `burstiness`.

    An infinite rate puts all at 0. Raises InflightError for a rate or burstiness not above 0.
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


# -- lengths ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lengths:
    """How long prompts and answers are: each `N`, `LOW-HIGH` (evenly drawn) or `~MEAN`
    (geometric-like, from an exponential).

    Raises InflightError for anything else, and for more than `MOST_TOKENS`.
    """

    prompt: str = "16-96"
    output: str = "8-64"

    def __post_init__(self) -> None:
        for text in (self.prompt, self.output):
            _parsed(text)

    def sizes(self, seed: int = 0) -> Iterator[RequestSize]:
        """Pairs of lengths without end, drawn from the seed."""
        draw = random.Random(seed)
        prompt, output = _parsed(self.prompt), _parsed(self.output)
        while True:
            yield RequestSize(prompt(draw), output(draw))


def _parsed(text: str) -> Callable[[random.Random], int]:
    try:
        if require(text, str, "A length is text, as '16-96'").startswith("~"):
            mean = float(text[1:])
            if not 1 <= mean <= MOST_TOKENS:
                raise ValueError
            return lambda draw: (
                min(MOST_TOKENS, 1 + int(draw.expovariate(1 / (mean - 0.5)))) if mean > 1 else 1
            )
        low, dash, high = text.partition("-")
        first, last = int(low), int(high) if dash else int(low)
        if not 1 <= first <= last <= MOST_TOKENS:
            raise ValueError
        return lambda draw: draw.randint(first, last)
    except ValueError:
        raise InflightError(
            f"{shown(text)} is no length; write N, LOW-HIGH or ~MEAN, in tokens from 1 to"
            f" {MOST_TOKENS:,}."
        ) from None


def sizes_in(lines: Iterable[str], name: str) -> list[RequestSize]:
    """JSON lines of lengths: each `[prompt, output]`, `[prompt, output, arrival]`, or an object
    with `prompt_tokens`, `output_tokens` and optionally `arrival` (seconds). Arrivals, where given,
    count from the first. Raises InvalidWorkload naming the line at fault.
    """
    sizes = [
        _size(line, f"{name}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if len({size.arrival is None for size in sizes}) > 1:
        raise InvalidWorkload(f"{name} gives some requests an arrival and others none.")
    return from_first(name, sorted(sizes, key=lambda size: size.arrival or 0.0))


def from_first(name: str, sizes: list[RequestSize]) -> list[RequestSize]:
    """The sizes with their arrivals, if they have any, counted from the first and rounded to a
    microsecond. Raises InvalidWorkload if there are none.
    """
    if not sizes:
        raise InvalidWorkload(f"{name} holds no requests.")
    if (first := sizes[0].arrival) is None:
        return sizes
    return [size._replace(arrival=round((size.arrival or 0.0) - first, 6)) for size in sizes]


def _size(line: str, where: str) -> RequestSize:
    try:
        data = json.loads(line)
        row: list[Any] = (
            [data.get(name) for name in RequestSize._fields]
            if isinstance(data, dict)
            else [*data, None, None][:3]
        )
    except (ValueError, TypeError, RecursionError):
        raise InvalidWorkload(f"{where}: this is no request.") from None
    try:
        return checked_size(*row)
    except (ValueError, TypeError):
        raise InvalidWorkload(
            f"{where}: a request needs whole numbers of prompt and output tokens above 0, and an"
            " arrival of at least 0."
        ) from None


def checked_size(prompt: Any, output: Any, arrival: Any) -> RequestSize:
    """Raises ValueError for lengths below 1 or not whole, and an arrival below 0."""
    whole = all(type(n) is int and 1 <= n < 2**31 for n in (prompt, output))
    timed = arrival is None or (type(arrival) in (int, float) and 0 <= arrival < 2**63)
    if not whole or not timed:
        raise ValueError
    return RequestSize(prompt, output, arrival)


def request(
    index: int,
    size: RequestSize,
    arrival: float,
    vocab_size: int,
    context: int | None,
    seed: int = 0,
) -> Request:
    """A greedy request of made-up tokens, shortened to fit the context (the answer first, but to no
    less than one token). Raises InvalidWorkload for a prompt of more than MOST_TOKENS.
    """
    prompt, output = size.prompt_tokens, size.output_tokens
    if context is not None:
        prompt = max(1, min(prompt, context - 1))
        output = max(1, min(output, context - prompt))
    if prompt > MOST_TOKENS:
        raise InvalidWorkload(
            f"Request r{index} has a prompt of {prompt:,} tokens; at most {MOST_TOKENS:,} are"
            " made up."
        )
    draw = random.Random(f"{seed} {index}")
    ids = tuple(draw.randrange(vocab_size) for _ in range(prompt))
    return Request(
        f"r{index}",
        prompt_token_ids=ids,
        sampling=SamplingParams(output, ignore_eos=True),
        arrival=arrival,
    )
