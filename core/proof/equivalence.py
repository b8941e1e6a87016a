"""A request alone and the same request in a batch: its texts, its logits, and where they diverge.
The oracle of the mask.

Greedy requests are also answered by `model.generate`, which shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig

from core.config import EngineConfig
from core.engine.runner import SamplingRow, observing
from core.measure.compare import first_parting
from core.proof.mistakes import leaky_engine
from core.torch_engine.attention import cpu
from core.torch_engine.attention.spec import Backend
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.request import SamplingParams
from core.workload.workload import Workload

_LOGITS_BYTES = 2**28  # the most kept for comparison; later tokens are compared without logits


@dataclass(frozen=True)
class Parting:
    """Where a text first differs from the one generated alone. position: among the new tokens.
    margin: how far the best token was ahead of the runner-up there, in the run alone. None for a
    token if one text has ended.
    """

    position: int
    solo: int | None
    batched: int | None
    margin: float | None


@dataclass(frozen=True)
class RequestEquivalence:
    """max_logit_difference: over the first `compared` new tokens, those with the same tokens before
    them and recorded logits.

    generated: the output of `model.generate`; None for a sampled request, whose noise it draws
    differently, and for one with stop strings, penalties or biased tokens.
    """

    request: str
    solo: tuple[int, ...]
    batched: tuple[int, ...]
    solo_text: str
    batched_text: str
    compared: int
    max_logit_difference: float | None
    parting: Parting | None
    generated: tuple[int, ...] | None = None

    @property
    def differing_tokens(self) -> int:
        """Positions at which the tokens generated alone and in the batch differ."""
        return _differing(self.solo, self.batched)

    @property
    def differing_from_generate(self) -> int | None:
        """Positions at which the tokens generated in the batch and by `model.generate` differ."""
        return None if self.generated is None else _differing(self.generated, self.batched)

    def to_json(self) -> dict[str, Any]:
        """Plain data, and how many tokens differ."""
        differing = {
            name: getattr(self, name) for name in ("differing_tokens", "differing_from_generate")
        }
        return {**asdict(self), **differing}


def _differing(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return max(len(one), len(other)) - sum(a == b for a, b in zip(one, other, strict=False))


@dataclass(frozen=True)
class Equivalence:
    """Every request of a workload, alone and in a batch. leak: whether they read others."""

    config: EngineConfig
    leak: bool
    dtype: str
    device: str
    requests: tuple[RequestEquivalence, ...]

    @property
    def tokens(self) -> int:
        """Tokens compared, over all requests."""
        return sum(len(r.solo) for r in self.requests)

    @property
    def differing_tokens(self) -> int:
        """How many of them differ from the request's own run alone."""
        return sum(r.differing_tokens for r in self.requests)

    @property
    def generated_tokens(self) -> int:
        """Tokens that `model.generate` also produced."""
        return sum(len(r.generated) for r in self.requests if r.generated is not None)

    @property
    def differing_from_generate(self) -> int:
        """How many differ from what `model.generate` wrote, where that was asked."""
        return sum(r.differing_from_generate or 0 for r in self.requests)

    @property
    def max_logit_difference(self) -> float | None:
        """The largest difference of a logit in any request; None where none was measured."""
        return max(
            (r.max_logit_difference for r in self.requests if r.max_logit_difference is not None),
            default=None,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: the sums, and each request."""
        sums = (
            "tokens",
            "differing_tokens",
            "generated_tokens",
            "differing_from_generate",
            "max_logit_difference",
        )
        facts = {name: getattr(self, name) for name in ("leak", "dtype", "device", *sums)}
        return {
            "config": self.config.to_json(),
            **facts,
            "requests": [r.to_json() for r in self.requests],
        }


def equivalence(
    model: ModelAdapter,
    tokenizer: Any | None,
    workload: Workload,
    config: EngineConfig,
    *,
    leak: bool = False,
    backend: Backend = cpu.BACKEND,
    on_step: Callable[[StepEvent], None] = lambda event: None,
) -> Equivalence:
    """Run every request alone, by the engine and by `model.generate`, then all of them under
    `config`, and compare.

    leak: in the batch, every request may also read its neighbour's keys. on_step: called with each
    step; it may raise to stop. Raises InflightError for a leak in a model that makes its own
    attention masks.
    """
    engine = (
        leaky_engine(model, tokenizer, config)
        if leak
        else Engine(model, tokenizer, config, backend=backend)
    )
    # tokens per request
    room = max(1, _LOGITS_BYTES // (4 * model.vocab_size * max(1, len(workload))))
    traces: dict[str, Trace] = {}
    solo_logits: dict[str, list[torch.Tensor]] = {}
    lonely = replace(config, policy="sequential", prefix_caching=False, num_blocks=None)
    for request in workload:
        single = Workload([replace(request, arrival=0)], name=workload.name)
        traces[request.id] = _run(
            Engine(model, tokenizer, lonely, backend=backend), single, solo_logits, room, on_step
        )
    batched_logits: dict[str, list[torch.Tensor]] = {}
    batched = _run(engine, workload, batched_logits, room, on_step)
    found = [
        replace(
            _compare(
                r.id,
                traces[r.id],
                batched,
                solo_logits.get(r.id, []),
                batched_logits.get(r.id, []),
                tokenizer is not None,
            ),
            generated=_generate(model, r.sampling, batched.prompts[r.id]),
        )
        for r in workload
    ]
    return Equivalence(config, leak, batched.header.dtype, batched.header.device, tuple(found))


def _generate(
    model: ModelAdapter, sampling: SamplingParams, prompt: list[int]
) -> tuple[int, ...] | None:
    """The output of `model.generate` for a prompt; None if it cannot reproduce the engine's."""
    if model.model is None or sampling.temperature > 0 or sampling.adjusts or sampling.stop:
        return None
    ids = torch.tensor([prompt], device=model.device)
    eos = None if sampling.ignore_eos else sorted(model.eos_token_ids) or None
    settings = GenerationConfig(
        do_sample=False, max_new_tokens=sampling.max_new_tokens, eos_token_id=eos, pad_token_id=0
    )
    with model.lock, torch.inference_mode():
        # otherwise its own would fill the gaps
        before, model.model.generation_config = model.model.generation_config, settings
        try:
            out = model.model.generate(ids, attention_mask=torch.ones_like(ids))
        finally:
            model.model.generation_config = before
    return tuple(out[0, ids.shape[1] :].tolist())


def _run(
    engine: Engine,
    workload: Workload,
    kept: dict[str, list[torch.Tensor]],
    room: int,
    on_step: Callable[[StepEvent], None],
) -> Trace:
    """Run to the end, keeping each request's logits for its first `room` new tokens."""

    def keep(rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            shown = kept.setdefault(row.request, [])
            if len(shown) < room:
                shown.append(own.detach().float().cpu().clone())

    with observing(keep):
        for event in engine.stream(workload):
            on_step(event)
    return engine.trace


def _compare(
    request: str,
    alone: Trace,
    batched: Trace,
    solo_logits: list[torch.Tensor],
    batched_logits: list[torch.Tensor],
    has_text: bool,
) -> RequestEquivalence:
    solo, other = alone.outputs[request], batched.outputs[request]
    at = first_parting(solo, other)
    # the logits that chose the first other token had the same prefix
    same = len(solo) if at is None else at + 1
    compared = min(same, len(solo_logits), len(batched_logits))
    pairs = list(zip(solo_logits[:compared], batched_logits[:compared], strict=True))
    parting = None
    if at is not None:
        margin = None
        if at < len(solo_logits):
            best, second = solo_logits[at].topk(2).values.tolist()
            margin = round(best - second, 6)
        parting = Parting(
            at, solo[at] if at < len(solo) else None, other[at] if at < len(other) else None, margin
        )
    return RequestEquivalence(
        request,
        tuple(solo),
        tuple(other),
        alone.text(request) if has_text else "",
        batched.text(request) if has_text else "",
        compared,
        max((float((a - b).abs().max()) for a, b in pairs), default=None),
        parting,
    )
