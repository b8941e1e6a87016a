"""The planner: every query and every cached key has its tile, work is divided evenly, capacities
hold.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.torch_engine.attention.batch import pack
from core.torch_engine.gpu.paged_layout import (
    KEY_BLOCK,
    LEAST_BLOCKS,
    Tiles,
    decode_capacity,
    paged_layout,
    plan_tiles,
    prefill_capacity,
    queries_per_tile,
)
from worlds.examples import examples
from worlds.passes import BLOCK, passes


def check(tiles: Tiles, query_lens: list[int], kv_lens: list[int], queries: int) -> None:
    """Each query of a prefill and each key of a decode in one tile, and nothing else."""
    assert all(array.dtype == np.int32 for array in tiles)
    prefill = list(zip(tiles.prefill_sequences.tolist(), tiles.prefill_first.tolist(), strict=True))
    assert sorted(t for t in prefill if t[0] >= 0) == sorted(
        (s, first)
        for s, length in enumerate(query_lens)
        if length > 1
        for first in range(0, length, queries)
    )
    decode = list(
        zip(
            tiles.decode_sequences.tolist(),
            tiles.decode_first.tolist(),
            tiles.decode_last.tolist(),
            strict=True,
        )
    )
    covered = 0
    for s, (length, keys) in enumerate(zip(query_lens, kv_lens, strict=True)):
        start, count = int(tiles.split_start[s]), int(tiles.split_count[s])
        assert (count > 0) == (length == 1)
        covered += count
        expected = 0
        for sequence, first, last in decode[start : start + count]:
            assert sequence == s and first == expected < last
            assert count == 1 or (
                last - first > (LEAST_BLOCKS - 1) * KEY_BLOCK and first % KEY_BLOCK == 0
            )
            expected = last
        assert expected == (keys if count else 0)
    assert covered == sum(t[0] >= 0 for t in decode)


sequences = st.lists(
    st.one_of(
        st.tuples(st.just(1), st.integers(0, 3000)),
        st.tuples(st.just(1), st.integers(0, 60000)),
        st.tuples(st.integers(2, 700), st.integers(0, 3000)),
        st.tuples(st.just(0), st.integers(0, 50)),
    ),
    min_size=1,
    max_size=40,
)


@examples(200)
@given(
    sequences=sequences,
    kv_heads=st.sampled_from([1, 3, 8, 32, 71]),
    group=st.sampled_from([1, 2, 3, 7, 71]),
)
def test_everything_is_covered_once(sequences, kv_heads, group):
    query_lens = [length for length, _ in sequences]
    kv_lens = [length + start for length, start in sequences]
    queries = queries_per_tile(group)
    exact = plan_tiles(query_lens, kv_lens, kv_heads, queries)
    check(exact, query_lens, kv_lens, queries)
    # A bucket's lists: as long whoever is in it, and the same tiles in front.
    room = (
        prefill_capacity(sum(query_lens), len(sequences), queries),
        decode_capacity(len(sequences), kv_heads),
    )
    fixed = plan_tiles(np.array(query_lens), np.array(kv_lens), kv_heads, queries, *room)
    check(fixed, query_lens, kv_lens, queries)
    assert [array.size for array in fixed[:5]] == [room[0]] * 2 + [room[1]] * 3
    for mine, theirs in zip(exact, fixed, strict=True):
        assert (theirs[: mine.size] == mine).all() and (theirs[mine.size :] == -1).all()


def longest_share(tiles: Tiles) -> float:
    """Keys of the longest decode tile, relative to the average."""
    lengths = (tiles.decode_last - tiles.decode_first)[tiles.decode_sequences >= 0]
    return float(lengths.max() / lengths.mean())


def test_few_or_uneven_decodes_are_split_and_many_are_not():
    programs = 4 * 132
    alone = plan_tiles([1], [100_000], 8, 16)
    assert (
        programs * 0.9 < alone.decode_sequences.size * 8 <= programs + 8
        and longest_share(alone) < 1.1
    )
    few = plan_tiles([1] * 8, [4000] * 8, 8, 16)
    assert (
        programs * 0.9 < few.decode_sequences.size * 8 <= programs + 64 and longest_share(few) < 1.2
    )
    many = plan_tiles([1] * 256, range(500, 1524, 4), 8, 16)
    assert many.split_count.tolist() == [1] * 256
    uneven = plan_tiles([1] * 256, [*range(500, 1520, 4), 200_000], 8, 16)
    assert uneven.split_count.tolist()[:-1] == [1] * 255 and uneven.split_count[-1] > 20
    short = plan_tiles([1, 1], [448, 449], 1, 16)
    assert short.split_count.tolist() == [
        1,
        2,
    ], "no split has less than four key blocks, the last of them begun"


def test_the_longest_come_first():
    tiles = plan_tiles([1, 100, 1, 1, 40], [70, 500, 440, 300, 2000], 8, 16)
    assert tiles.decode_sequences.tolist() == [2, 3, 0]
    seen = [
        500 - 100 + min(f + 16, 100) if s == 1 else 2000 - 40 + min(f + 16, 40)
        for s, f in zip(*tiles[:2], strict=True)
    ]
    assert seen == sorted(seen, reverse=True) and len(seen) == 7 + 3


def test_what_does_not_fit_is_refused_and_tight_lists_split_less():
    with pytest.raises(ValueError, match="3 decodes do not fit into 2 tiles"):
        plan_tiles([1, 1, 1], [5, 5, 5], 8, 16, 0, 2)
    with pytest.raises(ValueError, match="2 tiles do not fit into 1"):
        plan_tiles([20], [20], 8, 16, 1, 4)
    assert plan_tiles([1, 1], [50_000, 5], 8, 16, 0, 2).split_count.tolist() == [1, 1]
    assert plan_tiles([1, 1], [50_000, 5], 8, 16, 0, 10).split_count.tolist() == [8, 1]


def test_nothing_to_do():
    tiles = plan_tiles([0, 0], [7, 0], 8, 16, 3, 5)
    assert (
        tiles.prefill_sequences.tolist() == [-1] * 3 and tiles.decode_sequences.tolist() == [-1] * 5
    )
    assert tiles.split_count.tolist() == [0, 0]


@examples(100)
@given(scheduled=passes())
def test_layout_leads_to_the_slots_that_the_pass_was_packed_with(scheduled):
    output, num_blocks = scheduled
    batch = pack(output, BLOCK, num_blocks * BLOCK, torch.device("cpu"))
    layout = paged_layout(output, BLOCK, 4, 2, torch.device("cpu"))
    width = batch.input_ids.shape[1]
    for segment, *numbers, table in zip(
        batch.segments,
        layout.query_rows,
        layout.query_lens,
        layout.kv_lens,
        layout.block_tables,
        strict=True,
    ):
        first_row, length, kv_len = map(int, numbers)
        assert (first_row, length, kv_len) == (
            segment.row * width + segment.first,
            segment.end - segment.first,
            segment.kv_len,
        )
        slots = (
            torch.arange(segment.slots.start, segment.slots.stop)
            if isinstance(segment.slots, slice)
            else segment.slots
        )
        assert [int(table[p // BLOCK]) * BLOCK + p % BLOCK for p in range(kv_len)] == slots.tolist()
    exact = plan_tiles(
        layout.query_lens.numpy(), layout.kv_lens.numpy(), 2, layout.queries_per_tile
    )
    assert all(
        torch.equal(getattr(layout, name), torch.from_numpy(array))
        for name, array in exact._asdict().items()
    )
