"""Whether compiled kernels can be used here: they are compiled, or read from the disk, and tried beside torch."""

from __future__ import annotations

from functools import cache

import numba
import torch

from core.attention import cpu
from core.attention.batch import AttentionSegment, PackedBatch
from core.attention.spec import AttentionSpec
from core.compiled.attention import BACKEND, prepare
from core.compiled.formats import is_known
from core.compiled.rows import gelu, logit_stats, rms_norm

NOTE = f"Attention of decodes, RMS norms, GELU and sampling by kernels that numba {numba.__version__} compiled for this CPU."


@cache
def obstacle(dtype: torch.dtype) -> str | None:
    """Why the kernels cannot be used for a number format, as the end of a sentence."""
    if not is_known(dtype):
        return f"they are not for {dtype}"
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, heads, 16, generator=draw).to(dtype).transpose(1, 2) for heads in (4, 2, 2))
    keys, values = (torch.randn(9, 2, 16, generator=draw).to(dtype) for _ in range(2))
    slots = torch.tensor([2, 8])
    segments = (AttentionSegment(0, 0, 1, 2, 3, 0, slice(0, 3)), AttentionSegment(0, 1, 2, 4, 5, 0, slice(4, 9)))
    batch, spec = PackedBatch("packed", slots[None], slots[None], slots, slots, segments), AttentionSpec(0.25)
    rows = 3 * torch.randn(3, 1500, generator=draw).to(dtype)
    try:
        prepare(dtype)
        BACKEND.store(key, value, keys, values, slots)
        out = BACKEND.attend(query, keys, values, batch, spec)
        activated, (best, margin, logsumexp) = gelu(rows), logit_stats(rows)
        logit_stats(rows.float())  # penalties are in float32
        rms_norm(query, keys[0, 0], 1e-6)  # each norm is tried beside its own module
    except (numba.core.errors.NumbaError, ValueError, RuntimeError) as error:
        return f"numba says: {error}"
    stored = torch.equal(keys[slots], key[0].transpose(0, 1)) and torch.equal(values[slots], value[0].transpose(0, 1))
    two = rows.float().topk(2)
    chosen = torch.equal(best, two.indices[:, 0]) and torch.equal(margin, two.values[:, 0] - two.values[:, 1])
    tolerance = 4 * torch.finfo(dtype).eps
    agrees = (
        torch.allclose(out, cpu.attend(query, keys, values, batch, spec), tolerance, tolerance)
        and torch.allclose(activated, torch.nn.functional.gelu(rows, approximate="tanh"), tolerance, tolerance)
        and torch.allclose(logsumexp, rows.float().logsumexp(-1))
    )
    return None if stored and chosen and agrees else "what they compute here is wrong"
