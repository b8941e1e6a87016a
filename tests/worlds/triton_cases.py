"""Triton kernels under test: compiled where there is a GPU, interpreted on the CPU elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from worlds import dense_attention

pytest.importorskip("triton", reason="Triton is not installed: the kernels are not tested")

from core.scheduler.output import SchedulerOutput
from core.torch_engine.attention.batch import PackedBatch, pack
from core.torch_engine.attention.spec import AttentionSpec
from core.torch_engine.gpu import paged as triton_paged
from core.torch_engine.gpu import sampling_kernel  # noqa: F401
from core.torch_engine.gpu.paged_layout import PagedLayout, paged_layout
from worlds.passes import BLOCK

COMPILED = torch.cuda.is_available()
DEVICE = torch.device("cuda" if COMPILED else "cpu")
CPU = torch.device("cpu")


def _teach_bfloat16() -> None:
    """Triton's interpreter multiplies the bits of bfloat16 as integers and truncates to it; let it
    convert and round.
    """
    from triton.language import bfloat16, float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain_cast, plain_dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast(self, source, to):
        if source.dtype.scalar == float32 and to.scalar == bfloat16:
            rounded = torch.from_numpy(source.data.copy()).bfloat16().view(torch.uint16).numpy()
            return TensorHandle(rounded, bfloat16)
        return plain_cast(self, source, to)

    def dot(self, a, b, *rest):
        a, b = (cast(self, x, float32) if x.dtype.scalar == bfloat16 else x for x in (a, b))
        return plain_dot(self, a, b, *rest)

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot = cast, dot


if not COMPILED:
    _teach_bfloat16()


@dataclass(frozen=True)
class Case:
    """A pass over a random pool. query `[R, H, W, Dk]`, keys and values as in a pool, all on the
    CPU.
    """

    output: SchedulerOutput
    batch: PackedBatch
    layout: PagedLayout
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    spec: AttentionSpec

    @property
    def real(self) -> torch.Tensor:
        """Positions that belong to a request: bool `[R, W]`."""
        real = torch.zeros(self.batch.input_ids.shape, dtype=torch.bool)
        for s in self.batch.segments:
            real[s.row, s.first : s.end] = True
        return real

    def mine(self) -> torch.Tensor:
        """What the kernels make of it."""
        spec = (
            self.spec
            if self.spec.sinks is None
            else self.spec._replace(sinks=self.spec.sinks.to(DEVICE))
        )
        batch = SimpleNamespace(
            paged=moved(self.layout, DEVICE), input_ids=self.batch.input_ids.to(DEVICE)
        )
        return triton_paged.attend(
            *(t.to(DEVICE) for t in (self.query, self.keys, self.values)), batch, spec
        ).cpu()

    def oracle(self) -> torch.Tensor:
        """What it should be, in float32."""
        return dense_attention.attend(
            self.query.float(), self.keys.float(), self.values.float(), self.batch, self.spec
        )


def case(
    output: SchedulerOutput,
    num_blocks: int,
    heads: int = 4,
    group: int = 1,
    sizes: tuple[int, int] = (8, 8),
    window: int | None = None,
    softcap: float | None = None,
    sinks: bool = False,
    dtype: torch.dtype = torch.float32,
    key_block: int = 64,
) -> Case:
    """A pass with random contents. The query is a transposed view, as models hand it over."""
    generator = torch.Generator().manual_seed(0)
    kv_heads = heads // group

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    slots = (num_blocks + 1) * BLOCK
    query = noise(output.rows, output.width, heads, sizes[0]).transpose(1, 2)
    spec = AttentionSpec(0.7, window, softcap, noise(heads) if sinks else None)
    with patch("core.torch_engine.gpu.paged_layout.KEY_BLOCK", key_block):
        layout = paged_layout(output, BLOCK, heads, kv_heads, CPU)
    batch = pack(output, BLOCK, num_blocks * BLOCK, CPU)
    return Case(
        output,
        batch,
        layout,
        query,
        noise(slots, kv_heads, sizes[0]),
        noise(slots, kv_heads, sizes[1]),
        spec,
    )


def moved(layout: PagedLayout, device: torch.device) -> PagedLayout:
    """The layout on another device."""
    return replace(
        layout,
        **{name: t.to(device) for name, t in vars(layout).items() if isinstance(t, torch.Tensor)},
    )
