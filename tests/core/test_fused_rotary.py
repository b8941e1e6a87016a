"""Rotary embeddings in one kernel say what families' own functions say, and stand in for those
alone.
"""

from __future__ import annotations

import pytest
import torch
from transformers.models.glm import modeling_glm
from transformers.models.llama import modeling_llama

pytest.importorskip("triton", reason="the kernel needs the package triton")

from core.torch_engine.gpu import rotary
from core.torch_engine.gpu.rotary import fused_rotations, rotations_replaced, turn
from worlds.families import world
from worlds.triton_cases import DEVICE

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def given(rows: int, heads: int, kv_heads: int, width: int, size: int, dtype: torch.dtype):
    """Queries and keys as projections leave them, and a rotation of each position."""
    torch.manual_seed(0)
    query, key = (
        torch.randn(rows, width, count, size, device=DEVICE).to(dtype).transpose(1, 2)
        for count in (heads, kv_heads)
    )
    angles = 9 * torch.randn(rows, width, size, device=DEVICE)
    return query, key, angles.cos().to(dtype), angles.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 4, 2, 7, 16), (3, 1, 1, 1, 2), (2, 5, 1, 3, 20)])
def test_it_gives_every_bit_of_the_familys_own_function(shape, dtype):
    query, key, cos, sin = given(*shape, dtype)
    own = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    assert all(map(torch.equal, turn(query, key, cos, sin), own))
    assert not torch.equal(turn(query, key, sin, cos)[0], own[0])


def test_one_rotation_for_all_rows():
    query, key, cos, sin = given(3, 2, 1, 4, 8, torch.float32)
    own = modeling_llama.apply_rotary_pos_emb(query, key, cos[:1], sin[:1])
    assert all(map(torch.equal, turn(query, key, cos[:1], sin[:1]), own))


def test_it_stands_in_inside_a_pass_and_only_where_it_gives_the_same():
    llama = modeling_llama.apply_rotary_pos_emb
    replaced = fused_rotations(world("llama").model.to(DEVICE), torch.float32)
    with rotations_replaced(replaced):
        assert modeling_llama.apply_rotary_pos_emb is not llama
    assert modeling_llama.apply_rotary_pos_emb is llama
    assert fused_rotations(torch.nn.Linear(2, 2).to(DEVICE), torch.float32) == []

    class OfGlm(torch.nn.Linear):  # GLM turns neighbours
        __module__ = modeling_glm.__name__

    assert fused_rotations(OfGlm(2, 2).to(DEVICE), torch.float32) == []


def test_what_does_not_fit_is_given_to_the_function_itself(monkeypatch):
    replaced = fused_rotations(world("llama").model.to(DEVICE), torch.float32)
    in_kernel = []
    monkeypatch.setattr(rotary, "turn", lambda *case: in_kernel.append(case) or turn(*case))
    query, key, cos, sin = given(1, 2, 1, 3, 8, torch.float32)
    square, single = (given(1, 2, 1, width, 8, torch.float32) for width in (8, 1))
    cases = [
        (query, key, cos.double(), sin.double()),
        (query.clone().requires_grad_(), key, cos, sin),
        (query.transpose(1, 2), key.transpose(1, 2), cos, sin, 2),
        (query.transpose(2, 3).contiguous().transpose(2, 3), key, cos, sin),
        (query, key[:, :, :1], cos, sin),
        (query, key, cos, sin[:, :1]),
        (query, key, cos[:, :1], sin[:, :1]),
        (query, key, cos[..., :1], sin[..., :1]),
        (query, key, cos.expand(2, 3, 8), sin.expand(2, 3, 8)),
        (square[0][0], square[1][0], *square[2:]),
        (*single[:2], single[2][None], single[3][None]),
        given(1, 2, 1, 3, 7, torch.float32),
    ]
    with rotations_replaced(replaced):
        now = [modeling_llama.apply_rotary_pos_emb(*case) for case in cases]
        assert not in_kernel
        modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
        assert len(in_kernel) == 1
    for case, found in zip(cases, now, strict=True):
        own = modeling_llama.apply_rotary_pos_emb(*case)
        assert all(map(torch.equal, found, own))
        assert found[0].requires_grad == own[0].requires_grad
