"""Chooses the attention for a model: the paged kernel where it is available; on a CPU with numba,
one call of a compiled kernel for all decodes and one for all chunks; otherwise one SDPA call for
each sequence.
"""

import importlib.util
import os
from types import ModuleType
from typing import NamedTuple

import torch

from core.config import EngineConfig, Execution
from core.errors import InvalidConfig
from core.torch_engine.attention import cpu
from core.torch_engine.attention.spec import Backend
from core.torch_engine.cpu.blocks import CPUKernels
from core.torch_engine.models.adapter import ModelAdapter

# numbers in the cache per token; for fewer, importing numba mostly costs more than it saves
_WORTH_COMPILING = 2**12
_NO_GRAPHS = "Without CUDA graphs: no pass with collectives in it has been tried in one."


class AttentionChoice(NamedTuple):
    """How passes are computed. notes: a sentence for each expected feature that is not available,
    and one about compiled kernels on a CPU.
    """

    paged: bool
    backend: Backend
    asynchronous: bool = False
    notes: tuple[str, ...] = ()
    kernels: CPUKernels | None = None


ON_ANY_DEVICE = AttentionChoice(False, cpu.BACKEND)


def choose_attention(
    adapter: ModelAdapter, config: EngineConfig, execution: Execution, backend: Backend | None
) -> AttentionChoice:
    """Choose the attention for a model on its device. A given backend is always used.

    Raises InvalidConfig if the kernel is requested by name and not available.
    """
    obstacle = _obstacle(adapter, backend)
    if execution.attention == "triton" and obstacle:
        raise InvalidConfig(f"The paged kernel is not available: {obstacle}.")
    split = config.policy.layout == "split"
    if execution.asynchronous and split:
        raise InvalidConfig(
            f"Asynchronous execution is not for the policy {config.policy.name}: it reads each pass"
            " of a step before it plans the next."
        )
    paged = execution.attention == "triton" or (
        execution.attention == "auto" and adapter.device.type == "cuda" and not obstacle
    )
    if paged:
        # Triton is not installed everywhere
        from core.torch_engine.gpu import paged as triton_paged

        graphless = execution.cuda_graphs and adapter.tensor_parallel > 1
        ahead = execution.asynchronous
        if ahead is None:
            ahead = adapter.device.type == "cuda" and not split
        return AttentionChoice(
            True, triton_paged.BACKEND, ahead, (_NO_GRAPHS,) if graphless else ()
        )
    if execution.asynchronous:
        reason = obstacle or f"attention is {execution.attention!r} on {adapter.device.type}"
        raise InvalidConfig(
            f"Asynchronous execution needs the paged kernel, which is not in use: {reason}."
        )
    notes: list[str] = []
    if adapter.device.type == "cuda":
        if execution.attention == "auto" and backend is None:
            notes.append(f"Without the paged kernel, so slower: {obstacle}.")
        major, minor = torch.cuda.get_device_capability(adapter.device)
        if adapter.dtype == torch.float16 and major < 8:
            notes.append(
                "Computed in float16: bfloat16 needs compute capability 8.0, and this GPU has"
                f" {major}.{minor}."
            )
    if (
        backend is None
        and execution.attention == "auto"
        and (kernels := _compiled(adapter)) is not None
    ):
        rows = kernels.rows
        ours = CPUKernels(
            rows.gelu,
            rows.gated,
            kernels.heads.place,
            rows.rms_norm if execution.fused_norms else None,
            rows.logit_stats if execution.fused_sampling else None,
        )
        return AttentionChoice(False, kernels.BACKEND, notes=(*notes, kernels.NOTE), kernels=ours)
    return AttentionChoice(False, backend or cpu.BACKEND, notes=tuple(notes))


def _compiled(adapter: ModelAdapter) -> ModuleType | None:
    """The compiled CPU kernels, tried in the model's number format; None if SDPA is to be used."""
    if (
        adapter.device.type != "cpu"
        or adapter.plug == "cache"
        or sum(shape.numbers for shape in adapter.shapes.values()) < _WORTH_COMPILING
        or importlib.util.find_spec("numba") is None
    ):
        return None
    try:
        # late: numba is not installed everywhere, and importing it takes time
        from core.torch_engine.cpu import kernels
    except (ImportError, RuntimeError):
        # numba does not support this Python, say, or has no writable cache folder
        return None
    return None if kernels.obstacle(adapter.dtype) else kernels


def _obstacle(adapter: ModelAdapter, backend: Backend | None) -> str | None:
    """Why the paged kernel cannot run here, as the end of a sentence, or None."""
    if backend is not None:
        return "another backend was given"
    if adapter.plug == "cache":
        return f"{adapter.name} computes attention itself, through its cache"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if adapter.device.type == "cuda" and (
        capability := torch.cuda.get_device_capability(adapter.device)
    ) < (8, 0):
        return (
            "it is built for compute capability 8.0 and later, and this GPU has"
            f" {capability[0]}.{capability[1]}"
        )
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if adapter.device.type != "cuda" and not interpreted:
        return (
            f"it runs on CUDA, not on {adapter.device.type} (TRITON_INTERPRET=1 interprets it on a"
            " CPU, slowly)"
        )
    return None
