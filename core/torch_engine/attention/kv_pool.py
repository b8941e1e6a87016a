"""The tensors behind the block pool: K and V of every layer, addressed by slot (block x block_size
+ offset). No bookkeeping.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class KVShape(NamedTuple):
    """Heads and head sizes of one layer's cache; K and V may differ in size."""

    num_kv_heads: int
    key_size: int
    value_size: int


class KVPool:
    """Per layer `K [slots, Hkv, Dk]` and `V [slots, Hkv, Dv]`; one extra block, unknown to the
    bookkeeping, takes what pads write.
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
                torch.zeros(slots, shape.num_kv_heads, shape.key_size, dtype=dtype, device=device),
                torch.zeros(
                    slots, shape.num_kv_heads, shape.value_size, dtype=dtype, device=device
                ),
            )
            for layer, shape in shapes.items()
        }

    @property
    def trash_slot(self) -> int:
        """A slot that nothing reads."""
        return self.num_blocks * self.block_size
