"""Rotary position embedding of queries and keys in one kernel; transformers takes ten operations,
which were most of the launches in a decode step of a small model.

Every product and sum is rounded as in transformers, so the results are equal bit for bit. A trial
shows whether a family's function computes the same; its name proves nothing. Importing this module
needs Triton.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Queries `[R, H, W, D]` and keys `[R, Hkv, W, D]` turned by `cos` and `sin`, `[R, W, D]` or `[1,
W, D]`: Su et al. (2021), each number with the one half of the head further on.
"""

_NAME = "apply_rotary_pos_emb"  # transformers' name of the function in a family's own file
_lock = threading.RLock()


class _Replaced(NamedTuple):
    """names: the globals of a family's file; own: its function."""

    names: dict[str, Any]
    own: Rotation
    fused: Rotation


@triton.jit
def _turned(
    source,
    target,
    row_stride,
    head_stride,
    token_stride,
    row,
    token,
    position,
    c1,
    c2,
    s1,
    s2,
    HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
):
    """All heads of one position."""
    head, column = tl.arange(0, HEADS_PAD).to(tl.int64)[:, None], tl.arange(0, HALF_PAD)[None]
    there = (head < HEADS) & (column < HALF)
    place = source + row * row_stride + token * token_stride + head * head_stride + column
    a, b = tl.load(place, mask=there, other=0.0), tl.load(place + HALF, mask=there, other=0.0)
    kind = a.dtype
    wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
    first = (wide_a * c1).to(kind).to(tl.float32) - (wide_b * s1).to(kind).to(tl.float32)
    second = (wide_b * c2).to(kind).to(tl.float32) + (wide_a * s2).to(kind).to(tl.float32)
    out = target + (position * HEADS + head) * (2 * HALF) + column
    tl.store(out, first.to(kind), mask=there)
    tl.store(out + HALF, second.to(kind), mask=there)


@triton.jit(do_not_specialize=["width"])
def _turn(
    query,
    key,
    queries,
    keys,
    cos,
    sin,
    width,
    q_row_stride,
    q_head_stride,
    q_token_stride,
    k_row_stride,
    k_head_stride,
    k_token_stride,
    cos_row_stride,
    cos_token_stride,
    sin_row_stride,
    sin_token_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    KV_HEADS_PAD: tl.constexpr,
    HALF: tl.constexpr,
    HALF_PAD: tl.constexpr,
):
    """Queries and keys of one position."""
    position = tl.program_id(0).to(tl.int64)
    row, token = position // width, position % width
    column = tl.arange(0, HALF_PAD)
    cosines = cos + row * cos_row_stride + token * cos_token_stride + column
    sines = sin + row * sin_row_stride + token * sin_token_stride + column
    there = column < HALF
    c1 = tl.load(cosines, mask=there, other=0.0).to(tl.float32)[None]
    c2 = tl.load(cosines + HALF, mask=there, other=0.0).to(tl.float32)[None]
    s1 = tl.load(sines, mask=there, other=0.0).to(tl.float32)[None]
    s2 = tl.load(sines + HALF, mask=there, other=0.0).to(tl.float32)[None]
    _turned(
        query,
        queries,
        q_row_stride,
        q_head_stride,
        q_token_stride,
        row,
        token,
        position,
        c1,
        c2,
        s1,
        s2,
        HEADS,
        HEADS_PAD,
        HALF,
        HALF_PAD,
    )
    _turned(
        key,
        keys,
        k_row_stride,
        k_head_stride,
        k_token_stride,
        row,
        token,
        position,
        c1,
        c2,
        s1,
        s2,
        KV_HEADS,
        KV_HEADS_PAD,
        HALF,
        HALF_PAD,
    )


def turn(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `Rotation`; all of one type, the numbers of a head side by side."""
    rows, heads, width, size = query.shape
    kv_heads, half = key.shape[1], size // 2
    queries = query.new_empty(rows, width, heads, size)
    keys = key.new_empty(rows, width, kv_heads, size)
    alone = cos.shape[0] == 1
    _turn[(rows * width,)](
        query,
        key,
        queries,
        keys,
        cos,
        sin,
        width,
        *query.stride()[:3],
        *key.stride()[:3],
        0 if alone else cos.stride(0),
        cos.stride(1),
        0 if alone else sin.stride(0),
        sin.stride(1),
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEADS_PAD=triton.next_power_of_2(heads),
        KV_HEADS_PAD=triton.next_power_of_2(kv_heads),
        HALF=half,
        HALF_PAD=triton.next_power_of_2(half),
        enable_fp_fusion=False,
    )
    return queries.transpose(1, 2), keys.transpose(1, 2)


def fused_rotations(model: torch.nn.Module, dtype: torch.dtype) -> list[_Replaced]:
    """The functions of a model's family that the kernel can replace."""
    files = {
        id(names): names
        for names in (vars(sys.modules[type(m).__module__]) for m in model.modules())
    }
    found = []
    for names in files.values():
        own = names.get(_NAME)
        if callable(own) and _agrees(own, next(model.parameters()).device, dtype):
            found.append(_Replaced(names, own, _fused(own)))
    return found


@contextmanager
def rotations_replaced(replaced: Sequence[_Replaced]) -> Iterator[None]:
    """Within it, families rotate queries and keys with the kernel; one thread at a time."""
    if not replaced:
        yield
        return
    with _lock:
        try:
            for one in replaced:
                one.names[_NAME] = one.fused
            yield
        finally:
            for one in replaced:
                one.names[_NAME] = one.own


def _fused(own: Rotation) -> Rotation:
    """The kernel if it fits the arguments, else the function itself."""

    def rotation(
        query: torch.Tensor,
        key: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if more or named or not _fits(query, key, cos, sin):
            return own(query, key, cos, sin, *more, **named)
        return turn(query, key, cos, sin)

    return rotation


def _fits(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> bool:
    size = query.shape[-1]
    given = (query, key, cos, sin)
    return (
        query.ndim == key.ndim == 4
        and cos.ndim == 3
        and cos.shape == sin.shape
        and cos.shape[0] in (1, query.shape[0])
        and cos.shape[1] == query.shape[2] == key.shape[2]
        and size % 2 == 0
        and all(
            part.shape[-1] == size and part.dtype == query.dtype and part.stride(-1) == 1
            for part in given
        )
        and not (torch.is_grad_enabled() and any(part.requires_grad for part in given))
    )


def _agrees(own: Rotation, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel's results equal the function's, in every bit."""
    random = torch.Generator().manual_seed(0)
    query, key, cos, sin = (
        torch.randn(shape, generator=random).to(device, dtype)
        for shape in ((2, 3, 5, 24), (2, 1, 5, 24), (2, 5, 24), (2, 5, 24))
    )
    try:
        theirs = own(query, key, cos, sin)
    except Exception:  # a family's function may take anything
        return False
    mine = turn(query, key, cos, sin)
    return len(theirs) == 2 and all(map(torch.equal, mine, theirs))
