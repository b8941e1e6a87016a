"""`model.generate` on waves of requests (static batching), or on one request at a time."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria

from core.errors import InflightError
from core.measure.baselines.records import BaselineRun, Work, prompt_lengths


class _Clock(StoppingCriteria):
    """Records the time of each token. Stops a row with all its tokens, and all at `deadline`."""

    def __init__(
        self, wave: Work, device: torch.device, clock: Callable[[], float], deadline: float
    ) -> None:
        self.times: list[float] = []
        self._limits = torch.tensor([request.max_new_tokens for request in wave], device=device)
        self._clock, self._deadline = clock, deadline

    def __call__(self, input_ids, scores, **kwargs) -> torch.Tensor:
        self.times.append(self._clock())
        is_late = self.times[-1] >= self._deadline
        return self._limits <= (math.inf if is_late else len(self.times))


def generate_waves(
    model: Any,
    work: Work,
    lanes: int,
    clock: Callable[[], float] = time.perf_counter,
    limit_s: float = math.inf,
) -> BaselineRun:
    """Run `model.generate` on left-padded waves of `lanes` requests, each wave as long as its
    longest answer: static batching.

    After `limit_s` seconds the run is cut short, so that outputs are incomplete or missing. Raises
    InflightError if some requests end at an end-of-sequence token and others ignore it.
    """
    outputs, times, steps, cut = {}, {}, 0, False
    ends = {request.ends for request in work}
    if len(ends) > 1:
        raise InflightError(
            "model.generate ends all requests alike: either all ignore end-of-sequence tokens, or"
            " none."
        )
    started = clock()
    with _greedy(model, *ends), torch.inference_mode():
        for first in range(0, len(work), lanes):
            wave = work[first : first + lanes]
            observer = _Clock(wave, model.device, clock, started + limit_s)
            rows = _generate(model, wave, observer)
            steps += len(observer.times)
            for request, row in zip(wave, rows, strict=True):
                answer = outputs[request.id] = request.answer(row)
                times[request.id] = [t - started for t in observer.times[: len(answer)]]
            cut = not all(request.is_over(outputs[request.id]) for request in wave)
            if cut:
                break
    wall, about = clock() - started, {"lanes": lanes, "padding": "left"}
    return BaselineRun(
        outputs=outputs,
        wall_s=wall,
        prompts=prompt_lengths(work),
        token_times=times,
        steps=steps,
        about=about,
        cut=cut,
    )


def generate_serial(model: Any, work: Work) -> BaselineRun:
    """Run `model.generate` on one request after another."""
    return generate_waves(model, work, 1)


def _generate(model: Any, wave: Work, observer: _Clock) -> list[list[int]]:
    lengths = [len(request.prompt) for request in wave]
    width = max(lengths)
    padded = [[0] * (width - len(request.prompt)) + list(request.prompt) for request in wave]
    ids = torch.tensor(padded, device=model.device)
    mask = torch.tensor([[0] * (width - n) + [1] * n for n in lengths], device=model.device)
    longest = max(request.max_new_tokens for request in wave)
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=longest, stopping_criteria=[observer]
    )
    return out[:, width:].tolist()


@contextmanager
def _greedy(model: Any, ends: Iterable[int] = ()) -> Iterator[None]:
    """Greedy decoding up to one of these tokens, overriding the model's own generation settings."""
    before = model.generation_config
    model.generation_config = GenerationConfig(
        do_sample=False, pad_token_id=0, eos_token_id=sorted(ends) or None
    )
    try:
        yield
    finally:
        model.generation_config = before
