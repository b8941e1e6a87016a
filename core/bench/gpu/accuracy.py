"""How near the packed step stays to the model itself: greedy tokens in float32, logits in bfloat16.

The weights are those of the bfloat16 model in both, so that what differs is arithmetic alone. In bfloat16 the packed step is held
against what `model(...)` in bfloat16 makes of each request alone: both err from the same float32 logits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from core.bench.gpu.device import Device
from core.bench.gpu.runs import engine_for
from core.bench.gpu.scale import Scale
from core.errors import InflightError
from core.measure.baselines import jobs
from core.measure.baselines.generate import generate_serial
from core.measure.compare import first_differences
from core.measure.rounds import Run
from core.models.probe import probe
from core.runner.base import observing
from core.scheduler.output import SchedulerOutput
from core.trace.trace import Trace
from core.workload.workload import Workload


def float32_of(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights, computed with in float32."""
    return copy.deepcopy(model).float()


def greedy(model: PreTrainedModel, workload: Workload, scale: Scale) -> dict[str, Any]:
    """Whether packed requests get the tokens that `generate` gives each alone: how many do not, and where they part."""
    trace = _run(model, workload, scale)
    alone = generate_serial(model, jobs(workload, None))
    differences = first_differences(Run.of(trace), Run(alone.outputs, {}), "generate")
    return {
        "requests": len(workload),
        "tokens": sum(map(len, alone.outputs.values())),
        "different_requests": len(differences),
        "differences": differences,
    }


def logits_error(
    model: PreTrainedModel, exact: PreTrainedModel, workload: Workload, scale: Scale, device: Device
) -> dict[str, Any]:
    """Errors from the logits of `exact`, the model in float32: of the packed step, of the model on each request alone; root mean squares.

    Raises InflightError if the engine shows no logits.
    """
    kept: dict[str, list[torch.Tensor]] = {}

    def keep(output: SchedulerOutput, logits: torch.Tensor) -> None:
        for request, row in zip([s.request for s in output.scheduled if s.samples], logits, strict=True):
            kept.setdefault(request, []).append(row.clone())  # the buffer belongs to the pass

    with observing(keep):
        outputs = _run(model, workload, scale).outputs
    packed, alone, size, same = _Sum(), _Sum(), _Sum(), 0
    for request, theirs, true in _alone(model, exact, workload, outputs, device):
        rows = kept.get(request, [])[: len(outputs[request])]  # a row beyond the end is overrun
        if len(rows) != len(outputs[request]):
            raise InflightError(
                f"The engine showed the logits of {len(rows)} of the {len(outputs[request])} tokens of {request}."
            )
        mine = torch.stack(rows).float()
        packed.add(mine - true)
        alone.add(theirs - true)
        size.add(true)
        same += int((mine.argmax(-1) == true.argmax(-1)).sum())
    return {
        "tokens": sum(map(len, outputs.values())),
        "packed_rms": packed.rms,
        "alone_rms": alone.rms,
        "logits_rms": size.rms,
        "packed_max": packed.most,
        "alone_max": alone.most,
        "same_best_token": same,
        "ratio": packed.rms / alone.rms,
    }


def _alone(
    model: PreTrainedModel, exact: PreTrainedModel, workload: Workload, outputs: dict[str, list[int]], device: Device
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Of each request by itself, all at once and without a cache: the logits `[n, V]` of its n new tokens, and the exact ones."""
    for request in workload:
        written = outputs[request.id]
        ids = torch.tensor([[*(request.prompt_token_ids or ()), *written[:-1]]], device=device.torch)
        with torch.inference_mode():
            theirs, true = (
                m(input_ids=ids, use_cache=False, logits_to_keep=len(written)).logits[0].float() for m in (model, exact)
            )
        yield request.id, theirs, true


def _run(model: PreTrainedModel, workload: Workload, scale: Scale) -> Trace:
    """All at once, prompts in chunks beside decodes."""
    smaller = replace(scale, lanes=len(workload), budget=scale.accuracy_budget)
    return engine_for(probe(model), smaller, workload).run(workload)


@dataclass
class _Sum:
    """Squares of many numbers, added up in double precision, and the largest of them."""

    squares: float = 0.0
    count: int = 0
    most: float = 0.0

    def add(self, values: torch.Tensor) -> None:
        self.squares += float(values.double().square().sum())
        self.count += values.numel()
        self.most = max(self.most, float(values.abs().max()))

    @property
    def rms(self) -> float:
        return (self.squares / self.count) ** 0.5
