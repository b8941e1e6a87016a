"""What the paged kernel must know of a pass, as tensors of fixed shape: which queries are whose, where each cache lies, who works on what.

Planned on the host with NumPy. Shapes depend on the bucket alone, never on the requests, so that a CUDA graph captured once runs
with any pass written over it; what a pass does not use is marked -1 or has length 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PagedLayout:
    """S sequences over a paged pool.

    block_tables: int32 `[S, blocks]`. query_rows, query_lens, kv_lens: int32 `[S]`: first row of its real queries in the flat
    batch, how many they are, and its cache after this pass; 0 queries for a sequence that is not there.

    Two lists of tiles, each a unit of work for every KV head:

    prefill_sequences, prefill_first: int32 `[P]`: `queries_per_tile` queries of a sequence, from query `prefill_first` on (-1: nothing).
    decode_sequences, decode_first, decode_last: int32 `[N]`: the one query of a sequence and the keys `[first, last)` of its cache
    (-1: nothing). Long caches are split over several tiles: those of sequence s are `[split_start[s], split_start[s] + split_count[s])`,
    int32 `[S]`; a sequence without decode tiles has count 0.
    """

    block_size: int
    queries_per_tile: int
    block_tables: torch.Tensor
    query_rows: torch.Tensor
    query_lens: torch.Tensor
    kv_lens: torch.Tensor
    prefill_sequences: torch.Tensor
    prefill_first: torch.Tensor
    decode_sequences: torch.Tensor
    decode_first: torch.Tensor
    decode_last: torch.Tensor
    split_start: torch.Tensor
    split_count: torch.Tensor
