"""RMS norms in one kernel say what modules say, and stand in for those alone."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("triton", reason="the kernel needs the package triton, which this platform does not have")

import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from core.runner.gpu.fused_norms import FusedNorms, rms_norm
from worlds.families import world
from worlds.triton_cases import DEVICE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5, 32), (2, 3, 4, 8), (7, 100), (1, 2, 1500)])
def test_it_says_what_the_module_says(shape, dtype):
    torch.manual_seed(0)
    module = LlamaRMSNorm(shape[-1], eps=1e-5).to(DEVICE, dtype)
    module.weight.data.normal_()
    x = (3 * torch.randn(shape, device=DEVICE)).to(dtype)
    with torch.inference_mode():
        mine, own = rms_norm(x, module.weight, 1e-5), module(x)
    assert mine.dtype == own.dtype and mine.shape == own.shape
    torch.testing.assert_close(mine, own, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    other = rms_norm(x, module.weight, 0.5)
    assert not torch.allclose(other.float(), own.float(), rtol=1e-2)


def test_rows_that_do_not_lie_together():
    x = torch.randn(4, 3, 8, device=DEVICE).transpose(0, 1)
    weight = torch.randn(8, device=DEVICE)
    assert torch.equal(rms_norm(x, weight, 1e-6), rms_norm(x.contiguous(), weight, 1e-6))


def test_what_is_not_finite_stays_in_its_row():
    x = torch.randn(3, 8, device=DEVICE)
    x[1, 2] = torch.nan
    assert rms_norm(x, torch.ones(8, device=DEVICE), 1e-6).isnan().any(1).tolist() == [False, True, False]


def test_only_norms_that_agree_are_replaced_and_only_for_a_pass():
    model = copy.deepcopy(world("qwen3").model).to(DEVICE)
    norms = FusedNorms(model)
    assert len(norms) == 2 * 4 + 1  # before and after attention, of queries and of keys; the last one
    norm = model.model.norm
    own = norm.forward
    with norms.in_use():
        assert norm.forward != own
    assert norm.forward == own and "forward" not in norm.__dict__


def test_a_norm_of_another_kind_is_left_alone():
    """Gemma scales by one more than the weight: the negative control of the trial."""
    model = torch.nn.Sequential(GemmaRMSNorm(8), torch.nn.LayerNorm(8)).to(DEVICE)
    model[0].weight.data.normal_()
    assert len(FusedNorms(model)) == 0
    assert len(FusedNorms(torch.nn.Sequential(LlamaRMSNorm(8)).to(DEVICE))) == 1
