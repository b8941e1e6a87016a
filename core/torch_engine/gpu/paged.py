"""CUDA backend: launches the kernels of paged attention (`core.torch_engine.gpu.paged_kernels`) on
a `PagedLayout`.

Grids depend only on the lengths of the layout's lists, and nothing waits for the device: a CUDA
graph can capture every call except a kernel's first, which compiles it. For compute capability 8
and above: on older GPUs Triton has no matrix instructions. Importing this module needs Triton; with
TRITON_INTERPRET=1 set before, it runs on CPU tensors.
"""

from typing import Any

import torch
import triton

from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.spec import AttentionSpec, Backend
from core.torch_engine.gpu.paged_kernels import (
    LOG2_E,
    combine_kernel,
    decode_kernel,
    prefill_kernel,
    store_kernel,
)

SPLITS_AT_ONCE = 16
# programs per head that look for sequences to combine: most steps have none, and each program costs
# time
COMBINERS = 32
# multiply-adds, as Triton does by default up to 3.9, which warns that 3.10 will not
FUSED = {"enable_fp_fusion": True}


def launch_of(rows: int, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
    """The launch of an attention kernel whose tiles have at least `rows` rows: an iteration of its
    loop takes KEYS keys, and num_stages iterations are in flight, including the current one.

    Decodes are bound by memory alone: each multiprocessor of an H200 must have some 40 KB in flight
    to use its share of the bandwidth (36 bytes/ns x about 1 us). Prefetching one iteration of 32 KB
    achieves that with two programs on a multiprocessor, and three fit into its 227 KB of shared
    memory. Tall tiles also hold queries and more sums, and in float32 even the operands (no matrix
    instruction is exact there), so their iterations are half as long.
    """
    rows, itemsize, value_size = _padded(rows), keys.element_size(), _padded(values.shape[2])
    a_key = (_padded(keys.shape[2]) + value_size) * itemsize
    wanted = 2**15 if rows < 64 and itemsize < 4 else 2**14
    count = 1 << (min(max(wanted // a_key, 16), 128).bit_length() - 1)
    return {
        "ROWS": rows,
        "KEYS": count,
        "num_warps": 8 if itemsize == 4 or rows * max(count, value_size) > 64 * 128 else 4,
        "num_stages": 3 if count * a_key <= wanted else 2,
        **FUSED,
    }


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """See `Attend`. `batch` needs a `PagedLayout` and `input_ids`; other rows get zeros."""
    layout = batch.paged
    assert layout is not None, "a pass without a paged layout"
    rows, heads, width, key_size = query.shape
    kv_heads, value_size = values.shape[1:]
    if query.stride(3) != 1:
        query = query.contiguous()
    out = query.new_zeros(rows, width, heads, value_size)
    if spec.softcap is None:
        inner, outer = spec.scaling * LOG2_E.value, 0.0  # the scale of the scores
    else:
        # in the argument of tanh, and before it
        inner, outer = spec.scaling / spec.softcap, spec.softcap * LOG2_E.value
    sinks = query if spec.sinks is None else spec.sinks  # a kernel without sinks reads none
    group = heads // kv_heads
    sizes = {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "WINDOWED": spec.window is not None,
        "CAPPED": spec.softcap is not None,
        "SINKS": spec.sinks is not None,
        "PAGE": layout.block_size,
        "DK": key_size,
        "DV": value_size,
        "DK_PAD": _padded(key_size),
        "DV_PAD": _padded(value_size),
    }
    numbers = (
        width,
        *_strides(query),
        *keys.stride()[:2],
        *values.stride()[:2],
        layout.block_tables.stride(0),
        inner,
        outer,
        spec.window or 0,
    )
    num_prefill, num_decode = layout.prefill_sequences.shape[0], layout.decode_sequences.shape[0]
    if num_prefill:
        prefill_kernel[(num_prefill * kv_heads,)](
            query,
            keys,
            values,
            out,
            sinks,
            layout.block_tables,
            layout.query_rows,
            layout.query_lens,
            layout.kv_lens,
            layout.prefill_sequences,
            layout.prefill_first,
            *numbers,
            **sizes,
            **launch_of(layout.queries_per_tile * group, keys, values),
            QUERIES=layout.queries_per_tile,
        )
    if num_decode:
        partial = query.new_empty(num_decode, heads, value_size, dtype=torch.float32)
        weights = query.new_empty(num_decode, heads, 2, dtype=torch.float32)
        decode_kernel[(num_decode * kv_heads,)](
            query,
            keys,
            values,
            out,
            partial,
            weights,
            sinks,
            layout.block_tables,
            layout.query_rows,
            layout.kv_lens,
            layout.decode_sequences,
            layout.decode_first,
            layout.decode_last,
            layout.split_count,
            *numbers,
            **sizes,
            **launch_of(group, keys, values),
        )
        num_sequences = layout.split_count.shape[0]
        sequences_each = triton.cdiv(num_sequences, COMBINERS)
        combine_kernel[(triton.cdiv(num_sequences, sequences_each) * heads,)](
            partial,
            weights,
            out,
            sinks,
            layout.query_rows,
            layout.split_start,
            layout.split_count,
            num_sequences,
            sequences_each,
            HEADS=heads,
            SINKS=spec.sinks is not None,
            SPLITS=SPLITS_AT_ONCE,
            DV=value_size,
            DV_PAD=_padded(value_size),
            **FUSED,
        )
    return out


def store(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """See `Store`."""
    rows, kv_heads, width, key_size = key.shape
    value_size = value.shape[3]
    key, value = (t if t.stride(3) == 1 else t.contiguous() for t in (key, value))
    store_kernel[(rows * width,)](
        key,
        value,
        keys,
        values,
        slots,
        width,
        *_strides(key),
        *_strides(value),
        *keys.stride()[:2],
        *values.stride()[:2],
        KV_HEADS=kv_heads,
        HEADS_PAD=triton.next_power_of_2(kv_heads),
        DK=key_size,
        DV=value_size,
        DK_PAD=triton.next_power_of_2(key_size),
        DV_PAD=triton.next_power_of_2(value_size),
        **FUSED,
    )


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of rows, heads and positions of `[R, H, W, D]`; 0 along a length of 1."""
    return tuple(
        stride if length > 1 else 0
        for length, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
    )


def _padded(size: int) -> int:
    """The next power of two, at least 16, which matrix instructions require."""
    return max(16, triton.next_power_of_2(size))


BACKEND = Backend(attend, store)
