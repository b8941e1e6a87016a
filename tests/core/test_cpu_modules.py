"""What stands in for a model's modules on a CPU: the same results, used in passes alone, renewed
when the weights change.
"""

from __future__ import annotations

import pytest
import torch
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from core.torch_engine.cpu import modules as standing_in
from core.torch_engine.cpu.modules import CPUModules, cpu_modules, product_type
from core.torch_engine.stand_ins import forwards_replaced
from measure.bench.gpu import TINY
from measure.bench.gpu.parts import logits_error
from measure.bench.synthetic import mixed
from worlds.families import BY_NAME, VOCAB


@pytest.fixture(autouse=True)
def on_any_processor(monkeypatch):
    monkeypatch.setattr(standing_in, "_is_intel", lambda: False)


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.ModuleDict(
        {
            "linear": torch.nn.Linear(512, 768),
            "bare": torch.nn.Linear(768, 512, bias=False),
            "conv": Conv1D(640, 512),
            "small": torch.nn.Linear(8, 8),
        }
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [(1,), (2,), (3,), (64,), (300,), (1, 1), (1, 7), (4, 5), (1, 0)])
def test_products_are_the_same(rows, dtype):
    model = _model().to(dtype)
    copies = CPUModules(model)
    assert len(copies.forwards()) == 3
    with torch.inference_mode():
        for name in ("linear", "bare", "conv", "small"):
            width = {"linear": 512, "bare": 768, "conv": 512, "small": 8}[name]
            given = torch.randn(*rows, width).to(dtype)
            own = model[name](given)
            with forwards_replaced(copies.forwards()):
                error = max(1e-4, 2 * torch.finfo(dtype).eps)
                torch.testing.assert_close(model[name](given), own, rtol=error, atol=error)


@pytest.mark.parametrize("native", [True, False])
def test_short_formats_err_no_more_than_the_modules_own(native, monkeypatch):
    """Also on a CPU that does not multiply bfloat16, where only what goes in and out is rounded."""
    monkeypatch.setattr(
        standing_in, "product_type", product_type if native else lambda dtype: torch.float32
    )
    for dtype in (torch.bfloat16, torch.float16):
        model = _model().to(dtype)
        given = torch.randn(9, 512).to(dtype)
        exact = torch.nn.functional.linear(
            given.double(), model["linear"].weight.double(), model["linear"].bias.double()
        )
        with torch.inference_mode():
            own = (model["linear"](given) - exact).norm()
            with forwards_replaced(CPUModules(model).forwards()):
                assert (model["linear"](given) - exact).norm() <= 1.05 * own
    assert product_type(torch.float32) == product_type(torch.float16) == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_oss"])
def test_logits_in_short_formats_err_no_more_than_the_models_own(name, dtype, monkeypatch):
    monkeypatch.setattr(standing_in, "_LEAST_WEIGHTS", 1)
    short, exact = (BY_NAME[name].build().to(dtype) for _ in range(2))
    found = logits_error(short, exact.float(), mixed(8, VOCAB, (5, 40), (5, 20)), TINY)
    assert len(cpu_modules(short).forwards()) > 8
    assert found["tokens"] == 100 and 0 < found["packed_rms"] <= 1.2 * found["alone_rms"]


def test_gelu_in_one_operation():
    model = torch.nn.Sequential(NewGELUActivation(), torch.nn.GELU())
    given = torch.linspace(-9, 9, 1001)
    own = model[0](given)
    with torch.inference_mode(), forwards_replaced(CPUModules(model).forwards()):
        assert ["forward" in module.__dict__ for module in model] == [True, False]
        torch.testing.assert_close(model[0](given), own, rtol=1e-5, atol=1e-6)
    assert torch.equal(model[0](given), own)


class _Attention(torch.nn.Module):
    """Asks for keys twice, and for values of other rows, as a cross-attention would."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (
            torch.nn.Linear(256, size) for size in (512, 128, 128)
        )
        self.gate_proj, self.up_proj = (
            torch.nn.Linear(256, 320, bias=False),
            torch.nn.Linear(256, 320),
        )

    def forward(self, rows, others):
        return [
            self.q_proj(rows),
            self.k_proj(rows),
            self.v_proj(others),
            self.k_proj(rows),
            self.v_proj(rows),
            self.up_proj(rows),
        ]


def test_layers_of_the_same_rows_are_one_product():
    """And are computed on their own rows even so."""
    torch.manual_seed(0)
    model = _Attention()
    copies = CPUModules(model)
    assert len(copies.forwards()) == 5
    rows, others = torch.randn(2, 5, 256), torch.randn(2, 5, 256)
    with torch.inference_mode():
        own = model(rows, others)
        with forwards_replaced(copies.forwards()):
            mine = model(rows, others)
            again = model(rows + 1, others)
        joint = copies.product_of((model.q_proj, model.k_proj, model.v_proj))
        assert joint is not None and joint(rows).shape == (2, 5, 768)
        # gate and up do not agree about a bias
        assert copies.product_of((model.gate_proj, model.up_proj)) is None
        assert [out.stride(1) for out in mine] == [768, 768, 768, 768, 768, 320]
        for found, expected in zip((*mine, *again), (*own, *model(rows + 1, others)), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        model.k_proj.weight.zero_()
        model.k_proj.bias.fill_(3)
    with torch.inference_mode(), forwards_replaced(copies.forwards()):
        assert torch.equal(model.k_proj(rows), torch.full((2, 5, 128), 3.0))


def test_the_model_is_as_it_was_outside_and_after_an_error():
    model = _model()
    copies = CPUModules(model)
    with pytest.raises(RuntimeError, match="stop"), forwards_replaced(copies.forwards()):
        assert "forward" in model["linear"].__dict__
        raise RuntimeError("stop")
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_changed_weights_are_copied_again():
    model = _model()
    copies = CPUModules(model)
    given = torch.randn(3, 512)
    with torch.no_grad():
        model["linear"].weight.mul_(2)
        model["linear"].bias.add_(1)
        own = model["linear"](given)
    with torch.inference_mode(), forwards_replaced(copies.forwards()):
        torch.testing.assert_close(model["linear"](given), own, rtol=1e-4, atol=1e-4)
    model["linear"].weight = torch.nn.Parameter(torch.zeros(768, 512))
    with torch.inference_mode(), forwards_replaced(copies.forwards()):
        torch.testing.assert_close(model["linear"](given), model["linear"].bias.expand(3, -1))


def test_on_intels_processors_small_float32_layers_stay_with_mkl(monkeypatch):
    monkeypatch.setattr(standing_in, "_is_intel", lambda: True)
    models = [_model().to(dtype) for dtype in (torch.float32, torch.bfloat16)]
    assert [len(CPUModules(model).forwards()) for model in models] == [0, 3]
    assert len(CPUModules(torch.nn.Sequential(torch.nn.Linear(1024, 1024))).forwards()) == 1


def test_what_is_not_copied(monkeypatch):
    with monkeypatch.context() as tight:
        tight.setattr(standing_in, "_LEAST_BYTES", 2 * 2**20)
        tight.setattr(standing_in, "free_memory", lambda device: None)
        assert len(CPUModules(_model()).forwards()) == 1  # the next smallest no longer fits
    assert len(CPUModules(_model().double()).forwards()) == 0
    wrapped = _model()
    wrapped["linear"].forward = wrapped["linear"].forward
    assert len(CPUModules(wrapped).forwards()) == 2  # somebody else has replaced that one
    model = _model()
    assert cpu_modules(model) is cpu_modules(model)


def test_what_multiplies_otherwise_than_its_layer_is_not_used(monkeypatch):
    own = standing_in._product

    def longer(*given):
        return lambda rows: own(*given)(rows) * 1.1

    assert len(CPUModules(_model()).forwards()) == 3
    monkeypatch.setattr(standing_in, "_product", longer)
    assert not CPUModules(_model()).forwards()


def test_a_row_that_is_not_finite_spoils_no_other():
    model = _model()
    given = torch.randn(4, 512)
    given[1] = torch.nan
    with torch.inference_mode(), forwards_replaced(CPUModules(model).forwards()):
        assert torch.isfinite(model["linear"](given)).all(-1).tolist() == [True, False, True, True]
