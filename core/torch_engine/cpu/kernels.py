"""Finds out whether the compiled kernels can be used here: compiles them, or reads them from disk,
and compares their results with torch. Norms and replaced modules are compared one by one elsewhere.
"""

from functools import cache

import numba
import torch

from core.torch_engine.attention import cpu
from core.torch_engine.attention.batch import AttentionSegment, PackedBatch
from core.torch_engine.attention.spec import AttentionSpec
from core.torch_engine.cpu import attention, heads, rows
from core.torch_engine.cpu.attention import BACKEND
from core.torch_engine.cpu.formats import number_type

NOTE = (
    f"Attention, norms, activations and sampling by kernels that numba {numba.__version__} compiled"
    " for this CPU."
)


@cache
def obstacle(dtype: torch.dtype) -> str | None:
    """Why the kernels cannot be used for a number format, as the end of a sentence, or None."""
    if number_type(dtype) is None:
        return f"they are not for {dtype}"
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, 5, n, 16, generator=draw).to(dtype).transpose(1, 2) for n in (4, 2, 2)
    )
    keys, values = (torch.randn(20, 2, 16, generator=draw).to(dtype) for _ in range(2))
    slots = torch.tensor([2, 8, 17, 18, 19])
    segments = tuple(
        AttentionSegment(
            row=0,
            first=first,
            end=end,
            start=kv_len - end + first,
            kv_len=kv_len,
            num_pads=0,
            slots=slice(begin, begin + kv_len),
        )
        for first, end, begin, kv_len in ((0, 1, 0, 3), (1, 2, 4, 5), (2, 5, 9, 11))
    )
    batch = PackedBatch(
        layout="packed",
        input_ids=slots[None],
        position_ids=slots[None],
        slot_mapping=slots,
        sample_rows=slots,
        segments=segments,
    )
    spec = AttentionSpec(0.25)
    logits = 3 * torch.randn(3, 1500, generator=draw).to(dtype)
    try:
        for kernel in (*attention.KERNELS, *heads.KERNELS, *rows.KERNELS):
            kernel.prepare(dtype)
        rows.logit_stats_kernel.prepare(torch.float32)  # as logits with penalties are
        BACKEND.store(key, value, keys, values, slots)
        out = BACKEND.attend(query, keys, values, batch, spec)
        activated, (best, margin, logsumexp) = rows.gelu(logits), rows.logit_stats(logits)
    except (numba.core.errors.NumbaError, ValueError, RuntimeError) as error:
        return f"numba says: {error}"
    stored = torch.equal(keys[slots], key[0].transpose(0, 1)) and torch.equal(
        values[slots], value[0].transpose(0, 1)
    )
    highest = logits.float().topk(2).values
    chosen = torch.equal(best, logits.argmax(-1)) and torch.equal(
        margin, highest[:, 0] - highest[:, 1]
    )
    tolerance = 4 * torch.finfo(dtype).eps
    agrees = (
        torch.allclose(out, cpu.attend(query, keys, values, batch, spec), tolerance, tolerance)
        and torch.allclose(
            activated, torch.nn.functional.gelu(logits, approximate="tanh"), tolerance, tolerance
        )
        and torch.allclose(logsumexp, logits.float().logsumexp(-1))
    )
    return None if stored and chosen and agrees else "what they compute here is wrong"
