"""Compares each request alone with the same request in a batch: texts, logits, and where they
diverge. This tests the attention mask.

Greedy requests are also answered by `model.generate`, which shares no code with the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import GenerationConfig

from core.config import EngineConfig
from core.engine.runner import SamplingRow, observing
from core.measure.compare import first_parting
from core.proof.mistakes import leaky_engine
from core.torch_engine.attention import cpu
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.request import SamplingParams
from core.workload.workload import Workload

_LOGITS_BYTES = 2**28  # the most kept for comparison; later tokens are compared without logits
_Logits = dict[str, list[torch.Tensor]]  # by request, of its new tokens


def equivalence(
    model: ModelAdapter,
    tokenizer: Any | None,
    workload: Workload,
    config: EngineConfig,
    *,
    leak: bool = False,
    on_step: Callable[[StepEvent], None] = lambda event: None,
) -> dict[str, Any]:
    """Run every request alone, by the engine and by `model.generate`, then all together with
    `config`, and compare. Returns JSON: the sums, and each request (`_compared`).

    leak: in the batch, every request may also read its neighbour's keys. on_step: called with each
    step; may raise. Raises InflightError for a leak in a model that makes its own attention masks.
    """
    engine = (
        leaky_engine(model, tokenizer, config)
        if leak
        else Engine(model, tokenizer, config, backend=cpu.BACKEND)
    )
    # tokens per request
    room = max(1, _LOGITS_BYTES // (4 * model.vocab_size * max(1, len(workload))))
    lonely = replace(config, policy="sequential", prefix_caching=False, num_blocks=None)
    alone: dict[str, tuple[Trace, _Logits]] = {}
    for request in workload:
        solo = Engine(model, tokenizer, lonely, backend=cpu.BACKEND)
        single = Workload([replace(request, arrival=0)], name=workload.name)
        alone[request.id] = _run(solo, single, room, on_step)
    batched, logits = _run(engine, workload, room, on_step)
    requests = []
    for request in workload:
        generated = _generate(model, request.sampling, batched.prompts[request.id])
        requests.append(_compared(request.id, *alone[request.id], batched, logits, generated))
    differences = [r["max_logit_difference"] for r in requests]
    return {
        "config": config.to_json(),
        "leak": leak,
        "dtype": batched.header.dtype,
        "device": batched.header.device,
        "tokens": sum(len(r["solo"]) for r in requests),
        "differing_tokens": sum(r["differing_tokens"] for r in requests),
        "generated_tokens": sum(len(r["generated"] or ()) for r in requests),
        "differing_from_generate": sum(r["differing_from_generate"] or 0 for r in requests),
        "max_logit_difference": max((d for d in differences if d is not None), default=None),
        "requests": requests,
    }


def _generate(model: ModelAdapter, sampling: SamplingParams, prompt: list[int]) -> list[int] | None:
    """The output of `model.generate` for a prompt; None if it cannot reproduce the engine's."""
    if model.model is None or sampling.temperature > 0 or sampling.adjusts or sampling.stop:
        return None
    ids = torch.tensor([prompt], device=model.device)
    eos = None if sampling.ignore_eos else sorted(model.eos_token_ids) or None
    settings = GenerationConfig(
        do_sample=False, max_new_tokens=sampling.max_new_tokens, eos_token_id=eos, pad_token_id=0
    )
    with model.lock, torch.inference_mode():
        # otherwise its own config would fill the gaps
        before, model.model.generation_config = model.model.generation_config, settings
        try:
            out = model.model.generate(ids, attention_mask=torch.ones_like(ids))
        finally:
            model.model.generation_config = before
    found: list[int] = out[0, ids.shape[1] :].tolist()
    return found


def _run(
    engine: Engine,
    workload: Workload,
    room: int,
    on_step: Callable[[StepEvent], None],
) -> tuple[Trace, _Logits]:
    """Run to the end, keeping each request's logits for its first `room` new tokens."""
    kept: _Logits = {}

    def keep(rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            shown = kept.setdefault(row.request, [])
            if len(shown) < room:
                shown.append(own.detach().float().cpu().clone())

    with observing(keep):
        for event in engine.stream(workload):
            on_step(event)
    return engine.trace, kept


def _compared(
    request: str,
    alone: Trace,
    alone_logits: _Logits,
    batched: Trace,
    batched_logits: _Logits,
    generated: list[int] | None,
) -> dict[str, Any]:
    """A request's tokens and texts, alone and in the batch.

    parting: where they first differ, or None: the position among the new tokens, both tokens there
    (None if one text has ended), and the margin of the best token over the runner-up in the run
    alone. max_logit_difference: over the first `compared` new tokens, which have the same tokens
    before them and recorded logits. generated: by `model.generate`; None for sampled requests,
    whose noise differs there, and for requests with stop strings, penalties or biased tokens.
    """
    solo, other = alone.outputs[request], batched.outputs[request]
    at = first_parting(solo, other)
    # the logits that chose the first other token had the same prefix
    same = len(solo) if at is None else at + 1
    solo_logits, other_logits = alone_logits.get(request, []), batched_logits.get(request, [])
    compared = min(same, len(solo_logits), len(other_logits))
    pairs = list(zip(solo_logits[:compared], other_logits[:compared], strict=True))
    parting = None
    if at is not None:
        one, two = (tokens[at] if at < len(tokens) else None for tokens in (solo, other))
        parting = {"position": at, "solo": one, "batched": two, "margin": None}
        if at < len(solo_logits):
            best, second = solo_logits[at].topk(2).values.tolist()
            parting["margin"] = round(best - second, 6)
    has_text = alone.tokenizer is not None
    return {
        "request": request,
        "solo": solo,
        "batched": other,
        "solo_text": alone.text(request) if has_text else "",
        "batched_text": batched.text(request) if has_text else "",
        "compared": compared,
        "max_logit_difference": max((float((a - b).abs().max()) for a, b in pairs), default=None),
        "parting": parting,
        "generated": generated,
        "differing_tokens": differing(solo, other),
        "differing_from_generate": None if generated is None else differing(generated, other),
    }


def differing(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of positions at which the tokens differ, or one text has ended."""
    return max(len(one), len(other)) - sum(a == b for a, b in zip(one, other, strict=False))
