"""The paged kernels against the oracle: ragged passes of every kind, what must not matter, and faults that must be seen."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.request import BlockTable
from core.scheduler_output import ScheduledRequest, SchedulerOutput
from passes import BLOCK, passes
from triton_world import case, triton_paged

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True, scope="module")
def small_turns():
    """Sixteen keys a turn, so that short caches take several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_paged, "launch_of", lambda *_: triton_paged.Launch(16, 4, 2))
        patch.setattr("core.attention.paged_layout.TILE_ROWS", 16)
        yield


def a_pass(*lengths_and_starts: tuple[int, int], layout: str = "packed") -> tuple[SchedulerOutput, int]:
    """Requests of so many tokens after so many, every second one's blocks in reverse."""
    rows, next_block = [], 0
    for lane, (length, start) in enumerate(lengths_and_starts):
        blocks = list(range(next_block, next_block - (-(start + length) // BLOCK)))
        next_block += len(blocks)
        table = BlockTable().extend(tuple(blocks[:: -1 if lane % 2 else 1]))
        rows.append(ScheduledRequest(f"r{lane}", lane, "prefill", tuple(range(length)), start, table, True))
    return SchedulerOutput(layout, tuple(rows)), next_block


HEADS = [(4, 1), (4, 2), (4, 4), (6, 3), (7, 7), (14, 7)]  # heads, group


@settings(max_examples=40, deadline=None)
@given(
    scheduled=st.one_of(passes(), passes(longest=1, furthest=70), passes(longest=24, furthest=40)),
    heads=st.sampled_from(HEADS),
    sizes=st.sampled_from([(8, 8), (6, 4), (4, 6), (24, 16)]),
    window=st.sampled_from([None, 1, 2, 5, 30, 100]),
    softcap=st.sampled_from([None, 3.0]),
    sinks=st.booleans(),
    key_block=st.sampled_from([4, 64]),
)
def test_agrees_with_the_oracle(scheduled, heads, sizes, window, softcap, sinks, key_block):
    made = case(*scheduled, *heads, sizes, window, softcap, sinks, key_block=key_block)
    mine = made.mine()
    assert mine.shape == (*made.batch.input_ids.shape, heads[0], sizes[1]) and mine.is_contiguous()
    torch.testing.assert_close(mine[made.real], made.oracle()[made.real], atol=2e-5, rtol=2e-5)
    assert not mine[~made.real].any()  # rows of nobody


MIXED = ((1, 37), (24, 10), (1, 3), (1, 100), (9, 0), (1, 70))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_precision(dtype, layout):
    made = case(*a_pass(*MIXED, layout=layout), 6, 3, (80, 96), 50, 5.0, True, dtype, key_block=4)
    assert 1 < int(made.layout.split_count.max()) > int(made.layout.split_count[2]) == 1
    assert made.error() < TOLERANCE[dtype]
    assert made.mine().dtype == dtype
