"""How near the packed step stays to the model itself: greedy tokens in float32, logits in bfloat16.

The weights are those of the bfloat16 model in both, so that what differs is arithmetic alone. In bfloat16 the packed step is held
against what `model(...)` in bfloat16 makes of each request alone: both err from the same float32 logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from core.bench.gpu.runs import engine_for
from core.bench.gpu.scale import Scale
from core.engine.runner import SamplingRow, observing
from core.errors import InflightError
from core.measure.baselines import jobs
from core.measure.baselines.generate import generate_serial
from core.measure.compare import first_differences
from core.measure.rounds import Run
from core.models.probe import probe
from core.trace.trace import Trace
from core.workload.workload import Workload


def greedy_tokens(model: PreTrainedModel, workload: Workload, scale: Scale) -> dict[str, Any]:
    """Whether packed requests get the tokens that `generate` gives each alone: how many do not, and where they part."""
    trace = _packed(model, workload, scale)
    alone = generate_serial(model, jobs(workload, None))
    differences = first_differences(Run.of(trace), Run(alone.outputs, {}), "generate")
    return {
        "requests": len(workload),
        "tokens": sum(map(len, alone.outputs.values())),
        "different_requests": len(differences),
        "differences": differences,
    }


def logits_error(model: PreTrainedModel, exact: PreTrainedModel, workload: Workload, scale: Scale) -> dict[str, Any]:
    """Errors from the logits of `exact`, the model in float32: of the packed step, of the model on each request alone; root mean squares.

    Raises InflightError if the engine shows no logits.
    """
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            kept.setdefault(row.request, []).append(own.clone())  # the buffer belongs to the pass

    with observing(keep):
        outputs = _packed(model, workload, scale).outputs
    packed: list[torch.Tensor] = []
    alone: list[torch.Tensor] = []
    true: list[torch.Tensor] = []
    for request in workload:
        written = outputs[request.id]
        rows = kept.get(request.id, [])[: len(written)]  # a row beyond the end is overrun
        if len(rows) != len(written):
            raise InflightError(f"The engine showed the logits of {len(rows)} of the {len(written)} tokens of {request.id}.")
        packed.append(torch.stack(rows).float())
        ids = torch.tensor([[*(request.prompt_token_ids or ()), *written[:-1]]], device=model.device)
        with torch.inference_mode():  # all at once and without a cache
            for found, one in ((alone, model), (true, exact)):
                found.append(one(input_ids=ids, use_cache=False, logits_to_keep=len(written)).logits[0].float())
    ours, theirs, exactly = torch.cat(packed), torch.cat(alone), torch.cat(true)  # [tokens, vocabulary]
    return {
        "tokens": len(ours),
        "packed_rms": _rms(ours - exactly),
        "alone_rms": _rms(theirs - exactly),
        "logits_rms": _rms(exactly),
        "packed_max": float((ours - exactly).abs().max()),
        "alone_max": float((theirs - exactly).abs().max()),
        "same_best_token": int((ours.argmax(-1) == exactly.argmax(-1)).sum()),
        "ratio": _rms(ours - exactly) / _rms(theirs - exactly),
    }


def _packed(model: PreTrainedModel, workload: Workload, scale: Scale) -> Trace:
    """All at once, prompts in chunks beside decodes."""
    smaller = replace(scale, lanes=len(workload), budget=scale.accuracy_budget)
    return engine_for(probe(model), smaller, workload).run(workload)


def _rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())
