"""The paged kernels against the oracle: ragged passes of every kind, what must not matter, and
faults that must be seen.

Each runs compiled where there is a GPU and interpreted elsewhere; compiling for a GPU is tested
without one.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.torch_engine.attention import spec as plain
from core.torch_engine.gpu.paged_layout import (
    PagedLayout,
    decode_capacity,
    plan_tiles,
    prefill_capacity,
)
from worlds.passes import BLOCK, passes
from worlds.triton_cases import DEVICE, Case, case, triton_paged

# the interpreter's, where infinities meet
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Sixteen keys an iteration and sixteen rows a tile, so that short requests take several."""
    cut, short = triton_paged.launch_of, {"KEYS": 16, "num_warps": 4, "num_stages": 2}
    monkeypatch.setattr(triton_paged, "launch_of", lambda *given: cut(*given) | short)
    monkeypatch.setattr("core.torch_engine.gpu.paged_layout.TILE_ROWS", 16)


def a_pass(
    *lengths_and_starts: tuple[int, int], layout: str = "packed"
) -> tuple[SchedulerOutput, int]:
    """Requests of so many tokens after so many, every second one's blocks in reverse; and how many
    blocks that is.
    """
    rows, next_block = [], 0
    for lane, (length, start) in enumerate(lengths_and_starts):
        blocks = range(next_block, next_block - (-(start + length) // BLOCK))
        next_block += len(blocks)
        table = BlockTable().extend(tuple(blocks[:: -1 if lane % 2 else 1]))
        rows.append(
            ScheduledRequest(f"r{lane}", lane, "prefill", tuple(range(length)), start, table, True)
        )
    return SchedulerOutput(layout, tuple(rows)), next_block


MIXED = a_pass((1, 37), (19, 10), (1, 3), (1, 70))

KINDS: dict[str, dict[str, Any]] = {
    "one head a KV head": {"heads": 4, "group": 1},
    "groups of 2, small heads": {"heads": 4, "group": 2, "sizes": (6, 4)},
    "groups of 3, sinks": {"heads": 6, "group": 3, "sinks": True},
    "one KV head, softcap": {"heads": 7, "group": 7, "sizes": (24, 16), "softcap": 3.0},
    "all at once": {"heads": 14, "group": 7, "sizes": (4, 6), "softcap": 3.0, "sinks": True},
}


def check_against_the_oracle(made: Case) -> None:
    mine, heads, value_size = made.mine(), made.query.shape[1], made.values.shape[2]
    assert mine.shape == (*made.batch.input_ids.shape, heads, value_size) and mine.is_contiguous()
    torch.testing.assert_close(mine[made.real], made.oracle()[made.real], atol=2e-5, rtol=2e-5)
    assert not mine[~made.real].any(), "rows that belong to nobody"


ragged = {
    "scheduled": st.one_of(
        passes(), passes(longest=1, furthest=70), passes(longest=24, furthest=40)
    ),
    "kind": st.sampled_from(sorted(KINDS)),
    "window": st.sampled_from([None, 1, 2, 5, 16, 30, 100]),
    "key_block": st.sampled_from([4, 64]),  # splits from 32 keys on, or none
}


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(**ragged)
def test_agrees_with_the_oracle(scheduled, kind, window, key_block):
    check_against_the_oracle(case(*scheduled, window=window, key_block=key_block, **KINDS[kind]))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_precision(dtype, layout):
    output, num_blocks = MIXED
    made = case(
        replace(output, layout=layout),
        num_blocks,
        6,
        3,
        (80, 96),
        50,
        5.0,
        True,
        dtype,
        key_block=4,
    )
    assert max(made.layout.split_count.tolist()) > made.layout.split_count[2] == 1
    mine = made.mine()
    assert mine.dtype == dtype
    assert (
        (mine.float() - made.oracle())[made.real] / made.oracle()[made.real].abs().clamp(min=1)
    ).abs().max() < TOLERANCE[dtype]


def test_a_query_may_lie_in_any_order():
    made = case(*a_pass((1, 5), (3, 2)), 4, 2)
    turned = made.query.transpose(2, 3).contiguous().transpose(2, 3)
    assert turned.stride(3) != 1
    assert torch.equal(replace(made, query=turned).mine(), made.mine())


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 71])
def test_launches_as_they_are(group, monkeypatch):
    """Full tiles of the real size, 64 rows or more."""
    monkeypatch.undo()
    made = case(*a_pass((70, 130), (1, 300), (1, 5)), max(4, group), group, (16, 16))
    assert made.layout.prefill_first.tolist() == (
        [64, 0] if group == 1 else list(range(69, -1, -1))
    )
    torch.testing.assert_close(made.mine(), made.oracle(), atol=2e-5, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 20])
def test_padded_lists_change_nothing(window):
    """Lists as long as a bucket's, for lanes that are not all there: bit for bit the same."""
    made = case(*MIXED, 4, 2, window=window, sinks=True, key_block=4)
    lens, kv_lens = (
        [*getattr(made.layout, name).tolist(), 0, 0] for name in ("query_lens", "kv_lens")
    )
    lists = {
        name: torch.tensor(values, dtype=torch.int32)
        for name, values in (("query_lens", lens), ("kv_lens", kv_lens))
    }
    for name in ("query_rows", "block_tables"):
        known = getattr(made.layout, name)
        # never followed
        lists[name] = torch.cat(
            [known, torch.full((2, *known.shape[1:]), 10**6, dtype=torch.int32)]
        )
    queries = made.layout.queries_per_tile
    with patch("core.torch_engine.gpu.paged_layout.KEY_BLOCK", 4):
        most = prefill_capacity(64, 8, queries), decode_capacity(8, 2)
        tiles = plan_tiles(lens, kv_lens, 2, queries, *most)
    lists |= {name: torch.from_numpy(array) for name, array in tiles._asdict().items()}
    padded = replace(made, layout=replace(made.layout, **lists))
    assert (tiles.decode_sequences == -1).any() and (tiles.prefill_sequences == -1).any()
    assert torch.equal(padded.mine(), made.mine())


@pytest.mark.parametrize(
    ("poison", "window"),
    [
        (math.nan, 20),
        pytest.param(math.nan, None, marks=pytest.mark.slow),
        pytest.param(math.inf, None, marks=pytest.mark.slow),
    ],
)
def test_what_is_not_finite_stays_with_its_request(poison, window):
    """In any slot but a request's own: those of others, the rest of its last block, the trash
    slot.
    """
    made = case(*MIXED, 4, 2, window=window, key_block=4)
    clean = made.mine()
    for segment in made.batch.segments:
        keys, values = (torch.full_like(pool, poison) for pool in (made.keys, made.values))
        keys[segment.slots], values[segment.slots] = (
            made.keys[segment.slots],
            made.values[segment.slots],
        )
        dirty = replace(made, keys=keys, values=values).mine()[0]
        assert torch.equal(
            dirty[segment.first : segment.end], clean[0, segment.first : segment.end]
        )
        others = torch.cat([dirty[: segment.first], dirty[segment.end :]])
        assert not others.isfinite().any(), "within a request it is not hidden"


def lists(change):
    """A fault in the layout. None leads out of a tensor: nothing is there to catch that."""
    return lambda made: replace(made, layout=replace(made.layout, **change(made.layout)))


def neighbours_block(layout: PagedLayout) -> dict[str, torch.Tensor]:
    tables = layout.block_tables.clone()
    tables[0, 1] = tables[1, 0]
    return {"block_tables": tables}


def spec(**changes: float | None):
    """A fault in what the layer asks for."""
    return lambda made: replace(made, spec=made.spec._replace(**changes))


FAULTS = {
    "mask off by one": lists(lambda layout: {"kv_lens": layout.kv_lens - 1}),
    "last key of a decode unseen": lists(lambda layout: {"decode_last": layout.decode_last - 1}),
    "another's query": lists(lambda layout: {"query_rows": layout.query_rows[[2, 1, 0, 3]]}),
    "a split lost": lists(lambda layout: {"split_count": layout.split_count - 1}),
    "splits of another": lists(lambda layout: {"split_start": layout.split_start * 0}),
    "neighbour's block": lists(neighbours_block),
    "order of blocks ignored": lists(
        lambda layout: {"block_tables": layout.block_tables.sort(1).values}
    ),
    "sink counted twice": lambda made: replace(
        made, spec=made.spec._replace(sinks=made.spec.sinks + math.log(2))
    ),
    "sink ignored": spec(sinks=None),
    "window ignored": spec(window=None),
    "window one wider": spec(window=61),
    "softcap ignored": spec(softcap=None),
    "heads of another group": lambda made: replace(made, keys=made.keys.flip(1)),
}


@pytest.mark.slow
def test_faults_are_seen():
    """The oracle would show each of these."""
    made = case(
        *a_pass((1, 37), (5, 10), (1, 70), (1, 2)),
        4,
        2,
        window=60,
        softcap=3.0,
        sinks=True,
        key_block=4,
    )
    oracle = made.oracle()[made.real]

    def agrees(case: Case, tolerance: float) -> bool:
        return bool((case.mine()[made.real] - oracle).abs().max() < tolerance)  # not so for NaN

    assert agrees(made, 2e-5)
    assert [name for name, fault in FAULTS.items() if agrees(fault(made), 1e-3)] == []


@pytest.mark.parametrize(("kv_heads", "sizes"), [(1, (8, 8)), (3, (6, 4)), (8, (16, 32))])
@pytest.mark.parametrize("transposed", [True, False])
def test_store(kv_heads, sizes, transposed):
    generator = torch.Generator().manual_seed(0)
    rows, width, slots = 3, 5, 40

    def noise(*shape):
        return torch.randn(*shape, generator=generator).to(DEVICE)

    if transposed:
        new = [noise(rows, width, kv_heads, size).transpose(1, 2) for size in sizes]
    else:
        new = [noise(rows, kv_heads, size, width).transpose(2, 3) for size in sizes]
    pools = [noise(slots, kv_heads, size) for size in sizes]
    expected = [pool.clone() for pool in pools]
    mapping = torch.randperm(slots - 1, generator=generator)[: rows * width].to(DEVICE)
    mapping[::4] = slots - 1  # pads, all to the trash slot
    triton_paged.store(*new, *pools, mapping)
    plain.store(*new, *expected, mapping)
    for mine, theirs in zip(pools, expected, strict=True):
        assert torch.equal(mine[:-1], theirs[:-1])


# -- compiled, without a GPU -----------------------------------------------------------------------

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}  # of a program at most
# bytes of stack: float32 operands fill the registers, as no matrix instruction is exact
SPILLED = {"Qwen3-0.6B in float32": 32}
A_REGISTER_OR_TWO = 8


@cache
def compiled(capability: int) -> list[dict[str, Any]]:
    """What the kernels of all models take; see compile_kernels.py."""
    command = [
        sys.executable,
        "-P",
        str(Path(__file__).parents[1] / "worlds" / "compile_kernels.py"),
        str(capability),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_resources(capability: int, kernels: list[dict[str, Any]]) -> None:
    for kernel in kernels:
        assert kernel["variants"] == 1, kernel  # no compilation in the middle of a run
        assert kernel["shared"] <= SHARED_MEMORY[capability], kernel
        assert kernel["local"] == 0 and kernel["stack"] <= SPILLED.get(
            kernel["shape"], A_REGISTER_OR_TWO
        ), kernel


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_compiles_for_hopper():
    ours = ("Llama-3.1-8B", "sampling, bfloat16")
    kernels = [kernel for kernel in compiled(90) if kernel["shape"] in ours]
    assert [k["kernel"] for k in kernels] == [
        "prefill_kernel",
        "decode_kernel",
        "combine_kernel",
        "store_kernel",
        "_turn",
        "_stretch",
        "_row",
    ]
    for kernel in kernels[:2]:
        # K and V are fetched one round ahead and in full width
        assert kernel["stack"] == 0 and kernel["copies"] == [16]
        # Three programs on a processor: 1 KB of shared memory each is the system's.
        assert (
            3 * (kernel["shared"] + 1024) <= 228 * 1024
            and 3 * 32 * kernel["warps"] * kernel["reg"] <= 65536
        )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("capability", SHARED_MEMORY)
def test_compiles_all_models(capability):
    check_resources(capability, compiled(capability))
