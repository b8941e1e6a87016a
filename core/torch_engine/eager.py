"""Runs one scheduled pass: pack, forward, sample. Owns the KV tensors, returns tokens."""

import time
from collections.abc import Callable, Mapping

import torch

from core.engine.runner import PassResult, current_observer, sampling_rows
from core.scheduler.output import SchedulerOutput
from core.torch_engine.attention.batch import pack
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.choose import ON_ANY_DEVICE, AttentionChoice
from core.torch_engine.cpu.blocks import Blocks, cpu_blocks
from core.torch_engine.cpu.modules import cpu_modules
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.pool_size import memory_used
from core.torch_engine.sampling import sample
from core.torch_engine.stand_ins import forwards_replaced, fused_norms
from core.workload.request import SamplingParams


class ModelRunner:
    """A model and its KV pool of `num_blocks` blocks."""

    asynchronous = own_clock = False
    execution = None

    def __init__(
        self,
        adapter: ModelAdapter,
        num_blocks: int,
        block_size: int,
        choice: AttentionChoice = ON_ANY_DEVICE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.adapter, self.clock, self.notes = adapter, clock, choice.notes
        self.pool = KVPool(adapter.shapes, num_blocks, block_size, adapter.dtype, adapter.device)
        self._modules = cpu_modules(adapter.model)
        self._backend, self._kernels = choice.backend, choice.kernels
        norm = self._kernels and self._kernels.norm
        self._norms = [*fused_norms(adapter.model, norm)] if norm else []
        self._blocks = Blocks({})
        if self._kernels is not None:
            self._blocks = cpu_blocks(adapter, self._modules, self._kernels, self._backend)
            self.notes += tuple(self._blocks.failures)

    @property
    def memory(self) -> dict[str, int] | None:
        """See `Runner`."""
        return memory_used(self.adapter, self.pool)

    def begin(self) -> None:
        """See `Runner`."""
        if self.adapter.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.adapter.device)

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """See `Runner`. The pass is computed before this returns."""
        t0 = self.clock()
        batch = pack(output, self.pool.block_size, self.pool.trash_slot, self.adapter.device)
        rows = sampling_rows(output, params)
        t1 = self.clock()
        with self.adapter.lock:
            modules = self._modules.forwards(self._kernels and self._kernels.gelu)
            with forwards_replaced([*modules, *self._norms, *self._blocks.forwards]):
                logits = self.adapter.forward(batch, self.pool, self._backend)
        if self.adapter.device.type != "cpu":
            # otherwise the time of sampling would include work that the device is still doing
            torch.accelerator.synchronize()
        t2 = self.clock()
        observer = current_observer()
        if observer is not None:
            observer(rows, logits)
        samples = sample(logits, rows, self._kernels and self._kernels.stats) if rows else []
        t3 = self.clock()
        return PassResult(
            samples=samples, t_start=t0, t_end=t3, prepare=t1 - t0, forward=t2 - t1, sample=t3 - t2
        )
