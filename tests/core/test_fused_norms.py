"""RMS norms in one kernel say what modules say, and stand in for those alone: Triton's kernel and
numba's.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import NamedTuple

import pytest
import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from core.torch_engine.stand_ins import RMSNorm, forwards_replaced, fused_norms
from worlds.families import world


class Kernel(NamedTuple):
    rms_norm: RMSNorm
    device: str


@pytest.fixture(params=["triton", "numba"])
def kernel(request) -> Kernel:
    """Either is tested where its package is there."""
    pytest.importorskip(
        request.param,
        reason=f"the kernel needs the package {request.param}, which this platform does not have",
    )
    if request.param == "numba":
        return Kernel(import_module("core.torch_engine.cpu.rows").rms_norm, "cpu")
    return Kernel(
        import_module("core.torch_engine.gpu.fused_norms").rms_norm,
        import_module("worlds.triton_cases").DEVICE,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5, 32), (2, 3, 4, 8), (7, 100), (1, 2, 1500)])
def test_it_says_what_the_module_says(shape, dtype, kernel):
    rms_norm, device = kernel
    torch.manual_seed(0)
    module = LlamaRMSNorm(shape[-1], eps=1e-5).to(device, dtype)
    module.weight.data.normal_()
    x = (3 * torch.randn(shape, device=device)).to(dtype)
    with torch.inference_mode():
        mine, own = rms_norm(x, module.weight, 1e-5), module(x)
    assert mine.dtype == own.dtype and mine.shape == own.shape
    torch.testing.assert_close(mine, own, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    other = rms_norm(x, module.weight, 0.5)
    assert not torch.allclose(other.float(), own.float(), rtol=1e-2)


def test_rows_that_do_not_lie_together(kernel):
    rms_norm, device = kernel
    x = torch.randn(4, 3, 8, device=device).transpose(0, 1)
    weight = torch.randn(8, device=device)
    assert torch.equal(rms_norm(x, weight, 1e-6), rms_norm(x.contiguous(), weight, 1e-6))


def test_what_is_not_finite_stays_in_its_row(kernel):
    rms_norm, device = kernel
    x = torch.randn(3, 8, device=device)
    x[1, 2] = torch.nan
    assert rms_norm(x, torch.ones(8, device=device), 1e-6).isnan().any(1).tolist() == [
        False,
        True,
        False,
    ]


def test_only_norms_that_agree_are_replaced_and_only_for_a_pass(kernel):
    rms_norm, device = kernel
    model = copy.deepcopy(world("qwen3").model).to(device)
    norms = [*fused_norms(model, rms_norm)]
    # before and after attention, of queries and of keys; the last one
    assert len(norms) == 2 * 4 + 1
    norm = model.model.norm
    own = norm.forward
    with forwards_replaced(norms):
        assert norm.forward != own
    assert norm.forward == own and "forward" not in norm.__dict__


def test_a_norm_of_another_kind_is_left_alone(kernel):
    """Gemma scales by one more than the weight: the negative control of the trial."""
    rms_norm, device = kernel
    model = torch.nn.Sequential(GemmaRMSNorm(8), torch.nn.LayerNorm(8)).to(device)
    model[0].weight.data.normal_()
    assert not [*fused_norms(model, rms_norm)]
    assert len([*fused_norms(torch.nn.Sequential(LlamaRMSNorm(8)).to(device), rms_norm)]) == 1
