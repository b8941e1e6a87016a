"""Which runner computes an engine's passes: the paged kernel where it can be had, a call of SDPA for each sequence elsewhere."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

import torch

from core.attention import cpu
from core.attention.spec import Backend
from core.config import EngineConfig, Execution
from core.engine.runner import Runner
from core.errors import InvalidConfig
from core.models.adapter import ModelAdapter
from core.runner.eager import ModelRunner

_NO_GRAPHS = "Without CUDA graphs: no pass with collectives in it has been tried in one."


class AttentionChoice(NamedTuple):
    """How passes are computed here, and a sentence for each thing that one would expect and cannot have."""

    paged: bool
    backend: Backend
    asynchronous: bool = False
    notes: tuple[str, ...] = ()


def choose_attention(
    adapter: ModelAdapter, config: EngineConfig, execution: Execution, backend: Backend | None
) -> AttentionChoice:
    """Whether the paged kernel runs this model on its device. A backend that the caller gives is always used as it is.

    Raises InvalidConfig where the kernel is asked for by name and cannot be had.
    """
    obstacle = _obstacle(adapter, backend)
    if execution.attention == "triton" and obstacle:
        raise InvalidConfig(f"The paged kernel cannot be had: {obstacle}.")
    split = config.policy.layout == "split"
    if execution.asynchronous and split:
        raise InvalidConfig(
            f"Asynchronous execution is not for the policy {config.policy.name}: it reads each pass of a step before it plans the next."
        )
    paged = execution.attention == "triton" or (execution.attention == "auto" and adapter.device.type == "cuda" and not obstacle)
    if paged:
        from core.attention import paged as triton_paged  # not everywhere is triton

        graphless = execution.cuda_graphs and adapter.tensor_parallel > 1
        ahead = execution.asynchronous
        if ahead is None:
            ahead = adapter.device.type == "cuda" and not split
        return AttentionChoice(True, triton_paged.BACKEND, ahead, (_NO_GRAPHS,) if graphless else ())
    if execution.asynchronous:
        reason = obstacle or f"attention is {execution.attention!r} on {adapter.device.type}"
        raise InvalidConfig(f"Asynchronous execution needs the paged kernel, which is not in use: {reason}.")
    notes: tuple[str, ...] = ()
    if adapter.device.type == "cuda":
        if execution.attention == "auto" and backend is None:
            notes += (f"Without the paged kernel, so slower: {obstacle}.",)
        major, minor = torch.cuda.get_device_capability(adapter.device)
        if adapter.dtype == torch.float16 and major < 8:
            notes += (f"Computed in float16: bfloat16 needs compute capability 8.0, and this GPU has {major}.{minor}.",)
    return AttentionChoice(False, backend or cpu.BACKEND, notes=notes)


def _obstacle(adapter: ModelAdapter, backend: Backend | None) -> str | None:
    """Why the paged kernel cannot run here, in words that end a sentence."""
    if backend is not None:
        return "another backend was given"
    if adapter.plug == "cache":
        return f"{adapter.name} attends in a way of its own, through its cache"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if adapter.device.type == "cuda" and (capability := torch.cuda.get_device_capability(adapter.device)) < (8, 0):
        return f"it is built for compute capability 8.0 and later, and this GPU has {capability[0]}.{capability[1]}"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if adapter.device.type != "cuda" and not interpreted:
        return f"it runs on CUDA, not on {adapter.device.type} (TRITON_INTERPRET=1 interprets it on a CPU, slowly)"
    return None


def new_runner(
    adapter: ModelAdapter,
    config: EngineConfig,
    execution: Execution,
    choice: AttentionChoice,
    num_blocks: int,
    clock: Callable[[], float],
) -> Runner:
    """The runner for a pool of `num_blocks` blocks."""
    if not choice.paged:
        return ModelRunner(adapter, num_blocks, config.block_size, choice.backend, clock, choice.notes)
    from core.runner.gpu.runner import CudaCapture, PagedRunner  # imports triton

    on_cuda = adapter.device.type == "cuda"
    runner = PagedRunner(
        adapter,
        num_blocks,
        config.block_size,
        config.num_lanes,
        adapter.max_model_len or num_blocks * config.block_size,
        execution,
        clock,
        CudaCapture() if execution.cuda_graphs and on_cuda and adapter.tensor_parallel == 1 else None,
        choice.asynchronous,
        choice.backend,
        choice.notes,
    )
    if config.policy.layout == "packed":
        runner.prepare(config.max_num_batched_tokens if config.policy.token_budget else config.num_lanes)
    return runner


_DEVICE_FAILURES = (torch.OutOfMemoryError, torch.AcceleratorError, MemoryError)
# Libraries below torch raise a bare RuntimeError with words of their own.
_DEVICE_WORDS = (
    "CUDA error",
    "CUDA driver error",
    "HIP error",
    "CUBLAS_STATUS",
    "CUDNN_STATUS",
    "cuDNN error",
    "NCCL error",
    "MPS backend out of memory",
    "can't allocate memory",
)


def is_device_failure(error: Exception) -> bool:
    """Whether the device failed, or a kernel for it, rather than the code that asked: a bug of ours must look like one."""
    if isinstance(error, _DEVICE_FAILURES) or type(error).__module__.split(".")[0] == "triton":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_WORDS)


def failure_reason(error: Exception, device: torch.device) -> str:
    """What happened, in words that end a sentence."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        if device.type != "cuda":
            return "the machine ran out of memory"
        free, total = torch.cuda.mem_get_info(device)
        return f"the GPU ran out of memory ({free / 2**30:.2f} of {total / 2**30:.2f} GiB were free); a smaller KV pool or budget needs less"
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    if device.type == "cuda" and "CUDA error" in reason:
        return f"{reason}; if the next run fails too, the process has lost the GPU and must be started again"
    return reason
