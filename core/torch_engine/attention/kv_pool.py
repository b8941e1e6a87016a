"""The tensors behind the block pool: K and V of every layer, addressed by slot (block x block_size
+ offset). It does no bookkeeping.
"""

from math import prod
from typing import NamedTuple

import numpy as np
import torch

_LINE = 64  # bytes of a cache line, to which torch aligns its tensors


class KVShape(NamedTuple):
    """Heads and head sizes of one layer's cache; K and V may differ in size."""

    num_kv_heads: int
    key_size: int
    value_size: int

    @property
    def numbers(self) -> int:
        """Numbers in the K and V of one token."""
        return self.num_kv_heads * (self.key_size + self.value_size)


class KVPool:
    """For each layer `K [slots, Hkv, Dk]` and `V [slots, Hkv, Dv]`. One extra block, unknown to the
    scheduler, takes what pads write.
    """

    def __init__(
        self,
        shapes: dict[int, KVShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        slots = (num_blocks + 1) * block_size
        self.layers = {
            layer: (
                _zeros((slots, shape.num_kv_heads, shape.key_size), dtype, device),
                _zeros((slots, shape.num_kv_heads, shape.value_size), dtype, device),
            )
            for layer, shape in shapes.items()
        }

    @property
    def trash_slot(self) -> int:
        """A slot that is written but never read."""
        return self.num_blocks * self.block_size


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that take no memory on a CPU before they are written: the system provides zeroed pages
    on first touch, while `torch.zeros` touches them all.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = prod(shape) * dtype.itemsize
    memory = np.zeros(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return torch.from_numpy(memory[begin : begin + size]).view(dtype).view(shape)
