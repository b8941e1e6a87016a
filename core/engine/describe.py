"""The header of a trace: what ran, on what, with which limits, and how its passes were computed."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from dataclasses import replace

import torch

from core.config import EngineConfig
from core.models import load as models
from core.models.adapter import ModelAdapter
from core.runner.base import Runner
from core.runner.gpu.memory import memory_used
from core.trace.header import Header, ModelFacts
from core.workload.workload import ArrivalUnit


def model_facts(adapter: ModelAdapter) -> ModelFacts:
    """What an engine, and a trace's header, know of a model."""
    return ModelFacts(
        name=adapter.name,
        type=adapter.config.model_type,
        parameters=adapter.num_parameters,
        layers=len(adapter.shapes),
        vocab_size=adapter.vocab_size,
        context=adapter.max_model_len,
        eos_token_ids=tuple(sorted(adapter.eos_token_ids)),
        windows=tuple(adapter.windows[layer] for layer in sorted(adapter.windows)),
        plug=adapter.plug,
        kv_bytes_per_token=adapter.kv_bytes_per_token,
    )


def header_of(adapter: ModelAdapter, config: EngineConfig, name: str, unit: ArrivalUnit, num_blocks: int, leaks: bool) -> Header:
    """What is known before the first step. name, unit: of the workload. leaks: requests can read each other's keys."""
    device = adapter.device
    return Header(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        source="live",
        model=model_facts(adapter),
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        threads=torch.get_num_threads(),
        dtype=str(adapter.dtype).removeprefix("torch."),
        config=config,
        num_blocks=num_blocks,
        workload=name,
        arrival_unit=unit,
        versions={"python": platform.python_version(), **models.versions()},
        tensor_parallel=adapter.tensor_parallel,
        leak=leaks,
    )


def as_executed(header: Header, adapter: ModelAdapter, runner: Runner, notes: Sequence[str], pool_bytes: int) -> Header:
    """With what is known once passes have been computed: options in effect, memory on CUDA, and a sentence for each thing that one would
    not expect. Of passes computed one by one on a CPU there are only the notes.
    """
    notes, memory, device = [*notes, *runner.notes], header.memory, adapter.device
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if adapter.dtype == torch.float16 and major < 8:
            notes.append(f"Computed in float16: bfloat16 needs compute capability 8.0, and this GPU has {major}.{minor}.")
        memory = memory_used(adapter, pool_bytes)
    return replace(header, execution=runner.execution, memory=memory, notes=tuple(notes) or header.notes)
