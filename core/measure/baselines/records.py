"""The input and the output of a baseline, as plain records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from core.account.metrics import distribution
from core.engine.requests import prompt_ids
from core.errors import InflightError
from core.measure.rounds import RunResult
from core.workload.workload import Workload


class BaselineRequest(NamedTuple):
    """A request for a baseline. ends: the tokens that end the answer, if any."""

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    ends: frozenset[int] = frozenset()

    def answer(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that belong to the answer: those up to the first that ends it."""
        last = next((n for n, token in enumerate(tokens, 1) if token in self.ends), len(tokens))
        return list(tokens[: min(last, self.max_new_tokens)])

    def is_over(self, answer: Sequence[int]) -> bool:
        """Whether these tokens are the complete answer."""
        return len(answer) == self.max_new_tokens or (bool(answer) and answer[-1] in self.ends)


Work = Sequence[BaselineRequest]


@dataclass(frozen=True)
class BaselineRun:
    """outputs: generated ids by request. token_times: seconds from the start to each of a request's
    tokens, None if not observable.

    steps: forward passes of the model, None if not observable. about: the settings. cut: whether
    its time was up before everything was generated.
    """

    outputs: Mapping[str, list[int]]
    wall_s: float
    prompts: Mapping[str, int]
    token_times: Mapping[str, list[float]] | None = None
    steps: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    cut: bool = False

    @property
    def result(self) -> RunResult:
        """The result in the form that `core.measure.rounds` takes."""
        return RunResult(self.outputs, self.metrics())

    def metrics(self) -> dict[str, Any]:
        """The observable part of `core.account.metrics`; others are None. All arrive at 0."""
        output, prompt = sum(map(len, self.outputs.values())), sum(self.prompts.values())
        numbers: dict[str, Any] = {
            "wall_s": round(self.wall_s, 6),
            "steps": self.steps,
            "requests": len(self.outputs),
            "finished": len(self.outputs),
            "prompt_tokens": prompt,
            "output_tokens": output,
            "output_tok_s": output / self.wall_s,
            "total_tok_s": (output + prompt) / self.wall_s,
            "requests_per_s": len(self.outputs) / self.wall_s,
        }
        unseen = (
            "ttft_s itl_s tpot_s e2e_s queue_s padding_waste lane_occupancy budget_use kv_use"
            " time_s"
        )
        numbers |= dict.fromkeys(unseen.split())
        if self.token_times is not None:
            times = list(self.token_times.values())
            numbers["ttft_s"] = distribution(t[0] for t in times)
            numbers["itl_s"] = distribution(b - a for t in times for a, b in pairwise(t))
            numbers["tpot_s"] = distribution(
                (t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1
            )
            numbers["e2e_s"] = distribution(t[-1] for t in times)
        return numbers


def baseline_requests(
    workload: Workload, tokenizer: Any | None, ends: Iterable[int] = ()
) -> list[BaselineRequest]:
    """A workload for the baselines, which support no arrivals, sampling or stop strings. Raises
    InflightError for requests that need them. ends: the model's end-of-sequence tokens.
    """
    found, eos = [], frozenset(ends)
    for request in workload:
        sampling = request.sampling
        if sampling.temperature or sampling.adjusts or sampling.stop or request.arrival:
            raise InflightError(
                f"Request {request.id}: outside baselines run greedily, without stop strings, and"
                " everything arrives at the start."
            )
        ids = prompt_ids(request, tokenizer)
        stops = frozenset() if sampling.ignore_eos else eos
        found.append(BaselineRequest(request.id, ids, sampling.max_new_tokens, stops))
    return found


def prompt_lengths(work: Work) -> dict[str, int]:
    """Prompt tokens by request."""
    return {request.id: len(request.prompt) for request in work}
