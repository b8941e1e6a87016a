"""Fused sampling against `core.sampling`: the same tokens, noise included, and the same facts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.request import SamplingParams
from core.sampling import SamplingRow, choose, noise_key
from triton_world import DEVICE, sampling_kernel


def both(logits: torch.Tensor, temperatures: list[float], seed: int = 0):
    """Tokens, logprobs and margins from the kernel and from `core.sampling`, on the CPU."""
    rows = [SamplingRow(SamplingParams(temperature=t, seed=seed + i), 3 * i) for i, t in enumerate(temperatures)]
    keys = torch.tensor([noise_key(row) for row in rows], device=DEVICE)
    mine = sampling_kernel.sample_rows(logits.to(DEVICE), torch.tensor(temperatures, dtype=torch.float32, device=DEVICE), keys)
    assert [t.dtype for t in mine] == [torch.int64, torch.float32, torch.float32]
    return [t.cpu() for t in mine], choose(logits, rows)


TEMPERATURES = [0.0, 1.0, 0.7, 0.05, 3.0, 1e-30, 1e30]


@settings(max_examples=40, deadline=None)
@given(
    vocab_size=st.sampled_from([1, 2, 17, 64, 100, 130]),
    temperatures=st.lists(st.sampled_from(TEMPERATURES), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    coarse=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_same_as_the_reference(vocab_size, temperatures, dtype, coarse, seed):
    logits = 3 * torch.randn(len(temperatures), vocab_size, generator=torch.Generator().manual_seed(seed))
    if coarse:  # ties
        logits = logits.round()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_kernel, "STRETCH", 32)
        mine, reference = both(logits.to(dtype), temperatures, seed)
    assert torch.equal(mine[0], reference[0])
    torch.testing.assert_close(mine[1:], list(reference[1:]), atol=2e-5, rtol=1e-5)
