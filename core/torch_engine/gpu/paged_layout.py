"""Describes a pass to the paged kernel in tensors of fixed shape: each sequence's queries, the
place of its cache, and the tiles.

The layout is planned on the host with NumPy. Shapes depend only on the bucket, never on the
requests, so a CUDA graph captured once runs any pass written into its buffers; unused entries are
marked -1 or have length 0. This module does not need Triton.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from core.scheduler.output import SchedulerOutput

TILE_ROWS = 64  # queries x group of a prefill tile: the height of one Hopper matrix instruction
KEY_BLOCK = 64  # keys; splits begin at its multiples
# key blocks of a split: a shorter one costs more to start and to combine than it hides
LEAST_BLOCKS = 4
# enough loads in flight to fill the memory's pipeline; more would only add partial results
PROGRAMS_PER_PROCESSOR = 4
H200_PROCESSORS = 132


@dataclass(frozen=True)
class PagedLayout:
    """S sequences over a paged pool.

    block_tables: int32 `[S, blocks]`. query_rows, query_lens, kv_lens: int32 `[S]`: the first row
    of a sequence's real queries in the flat batch, their number, and the length of its cache after
    this pass; an absent sequence has 0 queries.

    Two lists of tiles, each a unit of work for every KV head:

    prefill_sequences, prefill_first: int32 `[P]`: `queries_per_tile` queries of a sequence, from
    query `prefill_first` on (-1: nothing). decode_sequences, decode_first, decode_last: int32
    `[N]`: the one query of a sequence and the keys `[first, last)` of its cache (-1: nothing). Long
    caches are split over several tiles: those of sequence s are `[split_start[s], split_start[s] +
    split_count[s])`, int32 `[S]`; a sequence without decode tiles has count 0.
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


class Tiles(NamedTuple):
    """The lists of `PagedLayout`, int32 arrays under the same names."""

    prefill_sequences: npt.NDArray[np.int32]
    prefill_first: npt.NDArray[np.int32]
    decode_sequences: npt.NDArray[np.int32]
    decode_first: npt.NDArray[np.int32]
    decode_last: npt.NDArray[np.int32]
    split_start: npt.NDArray[np.int32]
    split_count: npt.NDArray[np.int32]


def queries_per_tile(group: int) -> int:
    """Queries that fill a prefill tile's rows if `group` heads share a KV head."""
    return max(1, TILE_ROWS // group)


def prefill_capacity(num_tokens: int, num_sequences: int, queries: int) -> int:
    """The most prefill tiles of `queries` queries that a pass of this size can need."""
    # each has two tokens or more, and at worst a last tile of one query
    prefills = min(num_sequences, num_tokens // 2)
    return (num_tokens + prefills * (queries - 1)) // queries


def decode_capacity(
    num_sequences: int, num_kv_heads: int, num_processors: int = H200_PROCESSORS
) -> int:
    """The most decode tiles that `plan_tiles` makes for `num_sequences` sequences."""
    return num_sequences + _extra_tiles(num_kv_heads, num_processors)


def _extra_tiles(num_kv_heads: int, num_processors: int) -> int:
    """Extra tiles wanted when few sequences run; each is a program for every KV head."""
    return -(-PROGRAMS_PER_PROCESSOR * num_processors // num_kv_heads)


def plan_tiles(
    query_lens: npt.ArrayLike,
    kv_lens: npt.ArrayLike,
    num_kv_heads: int,
    queries: int,
    prefill_capacity: int | None = None,
    decode_capacity: int | None = None,
    num_processors: int = H200_PROCESSORS,
) -> Tiles:
    """Divide a pass into tiles of about equal work, the longest first, so that none starts late and
    keeps running alone.

    query_lens, kv_lens: `[S]`, see `PagedLayout`. A sequence with one query is a decode; one with
    more is cut into prefill tiles of `queries` queries. Decodes are split if the device would
    otherwise wait for its longest program: a split has about as many keys as each of 4 programs per
    multiprocessor would get, but at least four key blocks (the last may be partly filled).
    Capacities fix the lists' lengths; None makes them as long as needed.

    Splitting follows Flash-Decoding (Dao et al. 2023); the list of tiles follows FlashInfer's plan
    (Ye et al. 2025).

    Raises ValueError for a capacity that cannot hold the pass.
    """
    q, kv = np.asarray(query_lens, np.int32), np.asarray(kv_lens, np.int32)
    return Tiles(
        *_prefill_tiles(q, kv, queries, prefill_capacity),
        *_decode_tiles(q, kv, _extra_tiles(num_kv_heads, num_processors), decode_capacity),
    )


def _prefill_tiles(
    q: np.ndarray, kv: np.ndarray, queries: int, capacity: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and first query of each prefill tile."""
    prefills = np.flatnonzero(q > 1)
    if not prefills.size:
        nothing = np.full(capacity or 0, -1, np.int32)
        return nothing, nothing
    counts = -(-q[prefills] // queries)
    ends = counts.cumsum()
    sequences = prefills.repeat(counts)
    first = (np.arange(ends[-1]) - (ends - counts).repeat(counts)) * queries
    keys = (kv - q)[sequences] + np.minimum(first + queries, q[sequences])
    order = (-keys).argsort(kind="stable")
    return _filled(sequences[order], capacity), _filled(first[order], capacity)


def _decode_tiles(
    q: np.ndarray, kv: np.ndarray, extra: int, capacity: int | None
) -> tuple[np.ndarray, ...]:
    """Sequence, first and last key of each decode tile; first tile and count per sequence."""
    start, count = np.zeros((2, q.size), np.int32)
    decodes = np.flatnonzero(q == 1)
    if capacity is not None:
        if decodes.size > capacity:
            raise ValueError(f"{decodes.size} decodes do not fit into {capacity} tiles.")
        extra = min(extra, capacity - decodes.size)
    lengths = kv[decodes]
    order = (-lengths).argsort(kind="stable")
    decodes, lengths = decodes[order], lengths[order]
    most = int(lengths[0]) if decodes.size else 0
    # All keys together hold at most `extra` whole shares, and each decode's remainder adds at most
    # one tile.
    share = -(-int(lengths.sum(dtype=np.int64)) // extra) if extra else most
    if most <= share or most <= (2 * LEAST_BLOCKS - 1) * KEY_BLOCK:
        sequences = decodes
        first = np.zeros_like(decodes)
        last = lengths
        splits = np.ones_like(decodes)
        begins = np.arange(decodes.size)
    else:
        blocks = -(-lengths // KEY_BLOCK)
        splits = np.maximum(
            np.minimum(-(-blocks // -(-share // KEY_BLOCK)), blocks // LEAST_BLOCKS), 1
        )
        ends = splits.cumsum()
        begins = ends - splits
        sequences, of, blocks = (values.repeat(splits) for values in (decodes, splits, blocks))
        index = np.arange(ends[-1]) - begins.repeat(splits)
        first = index * blocks // of * KEY_BLOCK
        last = np.minimum((index + 1) * blocks // of * KEY_BLOCK, lengths.repeat(splits))
    start[decodes], count[decodes] = begins, splits
    lists = (_filled(values, capacity) for values in (sequences, first, last))
    return (*lists, start, count)


def _filled(values: np.ndarray, length: int | None) -> np.ndarray:
    """As int32, followed by -1 up to `length`."""
    if length is None:
        return values.astype(np.int32)
    if values.size > length:
        raise ValueError(f"{values.size} tiles do not fit into {length}.")
    filled = np.full(length, -1, np.int32)
    filled[: values.size] = values
    return filled


def paged_layout(
    output: SchedulerOutput,
    block_size: int,
    num_heads: int,
    num_kv_heads: int,
    device: torch.device,
) -> PagedLayout:
    """The layout of a pass without a CUDA graph, its lists no longer than needed."""
    scheduled, width = output.scheduled, output.width
    lens = np.array([len(s.tokens) for s in scheduled], np.int32)
    kv_lens = np.array([s.start for s in scheduled], np.int32) + lens
    if output.layout == "packed":
        rows = lens.cumsum(dtype=np.int32) - lens
    else:
        rows = np.arange(1, lens.size + 1, dtype=np.int32) * width - lens
    tables = np.zeros(
        (lens.size, max(1, max(len(s.block_table.blocks) for s in scheduled))), np.int32
    )
    for table, s in zip(tables, scheduled, strict=True):
        table[: len(s.block_table.blocks)] = s.block_table.blocks
    queries = queries_per_tile(num_heads // num_kv_heads)
    tiles = plan_tiles(lens, kv_lens, num_kv_heads, queries)
    arrays = (tables, rows, lens, kv_lens, *tiles)
    return PagedLayout(
        block_size, queries, *(torch.from_numpy(array).to(device) for array in arrays)
    )
