"""An engine on a transformers model: probes the model, chooses its attention, sizes its KV pool,
creates its runner, and records in the header how passes were computed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import torch

from core.config import EngineConfig, Execution, PolicyOrName
from core.engine.engine import EngineCore
from core.engine.recorder import TraceRecorder
from core.engine.runner import Runner
from core.errors import require
from core.torch_engine.attention.spec import Backend
from core.torch_engine.choose import AttentionChoice, choose_attention
from core.torch_engine.cpu.threads import require_threads
from core.torch_engine.eager import ModelRunner
from core.torch_engine.models import load as models
from core.torch_engine.models import tensor_parallel
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe
from core.torch_engine.models.watch import ProgressBar
from core.torch_engine.pool_size import MOST_ON_CPU, MemoryBudget, check_pool, measure_memory
from core.trace.header import ModelFacts

# libraries below torch raise a plain RuntimeError with these words
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
_A_MODEL = "An Engine takes a loaded model, and Engine.from_pretrained(name) loads one"


class Engine(EngineCore):
    """Continuous batching, or an older policy, on a transformers model.

    model: a loaded causal language model or a `ModelAdapter`. tokenizer: needed for text prompts
    and stop strings, else None. config: the limits, by default those of `EngineConfig()`. policy:
    replaces the config's, by name or as a `Policy`. execution: how passes are computed. backend:
    another attention, see `core.torch_engine.attention.spec`. runner: makes the runner for a pool
    of a given number of blocks; by default `core.torch_engine.choose` decides. recorder: keeps what
    happened, by default all of it. clock, sleep: in seconds, replaced in tests and simulations.

    `run` and `stream` take a workload from an empty engine to its end; `begin`, `add_request` and
    `step` go request by request. `trace` is what has happened; `config`, `model` (its facts) and
    `tokenizer` can be read.

    Raises UnsupportedModel for a model that cannot be run exactly, and InvalidConfig for an
    execution that is not available here.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None = None,
        config: EngineConfig | None = None,
        *,
        policy: PolicyOrName | None = None,
        execution: Execution | None = None,
        backend: Backend | None = None,
        runner: Callable[[int], Runner] | None = None,
        recorder: TraceRecorder | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        require(model, (torch.nn.Module, ModelAdapter), _A_MODEL)
        self.adapter: ModelAdapter = probe(model) if isinstance(model, torch.nn.Module) else model
        how = Execution() if execution is None else execution
        self.execution = require(how, Execution, "Passes are computed as an Execution says")
        executor = ModelExecutor(self.adapter, self.execution, backend, runner)
        super().__init__(
            executor, tokenizer, config, policy=policy, recorder=recorder, clock=clock, sleep=sleep
        )

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        config: EngineConfig | None = None,
        device: str = "auto",
        dtype: str | torch.dtype = "auto",
        execution: Execution | None = None,
        policy: PolicyOrName | None = None,
    ) -> Engine:
        """Load a built-in model, folder, GGUF file or hub id; show a progress bar on stderr if that
        takes more than a second. Raises UnsupportedModel, whose message is one sentence.

        device: "auto", or as torch names it. dtype: "auto", or a floating-point type or its name;
        "auto" is float32 on a CPU and bfloat16 on a GPU that supports it. Under torchrun the model
        is split among the processes, which must then all call their engines in the same way.
        """
        require(name, str, "A model is built in, a folder's path or a hub id, as text")
        with ProgressBar(name) as watch:
            adapter, tokenizer = models.load_adapter(name, device, dtype, watch)
        return cls(adapter, tokenizer, config, policy=policy, execution=execution)

    def under(self, config: EngineConfig) -> Engine:
        """Another engine on the same model, with its own KV pool; raises InvalidConfig."""
        return Engine(self.adapter, self.tokenizer, config, execution=self.execution)


class ModelExecutor:
    """The `Executor` of a transformers model. runner: see `Engine`."""

    def __init__(
        self,
        adapter: ModelAdapter,
        execution: Execution,
        backend: Backend | None = None,
        runner: Callable[[int], Runner] | None = None,
    ) -> None:
        self._adapter, self._execution = adapter, execution
        self._backend, self._given_runner = backend, runner
        self._memory: MemoryBudget | None = None  # of the GPU, measured once for the largest pass

    @property
    def model(self) -> ModelFacts:
        """See `Executor`."""
        adapter = self._adapter
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

    @property
    def header(self) -> dict[str, Any]:
        """See `Executor`: device, threads, dtype, versions, and whether it leaks on purpose. Raises
        ExecutionFailed in a forked process.
        """
        device = self._adapter.device
        if device.type == "cpu":
            require_threads()
        return {
            "device": str(device),
            "device_name": (
                torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
            ),
            "threads": torch.get_num_threads(),
            "dtype": str(self._adapter.dtype).removeprefix("torch."),
            "versions": {"python": platform.python_version(), **models.versions()},
            "tensor_parallel": self._adapter.tensor_parallel,
            "leak": self._backend is not None and self._backend.leaks,
        }

    def check_config(self, config: EngineConfig) -> None:
        """See `Executor`. Refuses pools larger than memory, and unavailable executions."""
        check_pool(config, self._adapter)
        self._choice(config)

    def most_blocks(self, config: EngineConfig, longest: int, drop_pool: Callable[[], None]) -> int:
        """See `Executor`. On a GPU measured with the largest pass within these limits."""
        adapter = self._adapter
        block_bytes = adapter.kv_bytes_per_token * config.block_size
        if adapter.device.type != "cuda":
            return MOST_ON_CPU // block_bytes
        tokens = config.token_budget or longest * config.num_lanes
        if self._memory is None or self._memory.tokens < tokens:
            drop_pool()
            utilization = self._execution.gpu_memory_utilization
            self._memory = measure_memory(
                adapter, tokens, config.num_lanes, utilization, self._choice(config).backend
            )
        most = self._memory.for_pool // block_bytes
        return tensor_parallel.least(most, adapter.device) if adapter.tensor_parallel > 1 else most

    @property
    def memory_sentence(self) -> str:
        """See `Executor`."""
        return self._memory.sentence if self._memory else ""

    def new_runner(
        self, config: EngineConfig, num_blocks: int, clock: Callable[[], float]
    ) -> Runner:
        """See `Executor`."""
        if self._given_runner is not None:
            return self._given_runner(num_blocks)
        adapter, choice = self._adapter, self._choice(config)
        if not choice.paged:
            return ModelRunner(adapter, num_blocks, config.block_size, choice, clock)
        from core.torch_engine.gpu.runner import CudaCapture, PagedRunner  # imports triton

        how, on_gpu = self._execution, adapter.device.type == "cuda"
        graphs = how.cuda_graphs and on_gpu and adapter.tensor_parallel == 1
        capture = CudaCapture() if graphs else None
        runner = PagedRunner(
            adapter, num_blocks, config, execution=how, choice=choice, clock=clock, capture=capture
        )
        if config.policy.layout == "packed":
            runner.prepare(config.token_budget or config.num_lanes)
        return runner

    def failure(self, error: Exception) -> str | None:
        """See `Executor`. Errors that are not known to come from the device are bugs: None."""
        on_gpu = self._adapter.device.type == "cuda"
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            if not on_gpu:
                return "the machine ran out of memory"
            free, total = torch.cuda.mem_get_info(self._adapter.device)
            return (
                f"the GPU ran out of memory ({free / 2**30:.2f} of {total / 2**30:.2f} GiB were"
                " free); a smaller KV pool or budget needs less"
            )
        is_known = (
            isinstance(error, torch.AcceleratorError)
            or type(error).__module__.split(".")[0] == "triton"
        )
        if not is_known and not (
            isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_WORDS)
        ):
            return None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if on_gpu and "CUDA error" in reason:
            return (
                f"{reason}; if the next run fails too, the process has lost the GPU and must be"
                " started again"
            )
        return reason

    def _choice(self, config: EngineConfig) -> AttentionChoice:
        return choose_attention(self._adapter, config, self._execution, self._backend)
