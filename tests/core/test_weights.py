"""The copies of linear weights: the same products, used in passes alone, renewed when the weights change."""

from __future__ import annotations

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from core.runner.weights import PackedWeights, packed_weights


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


@pytest.mark.parametrize("rows", [(1,), (2,), (3,), (64,), (65,), (1, 1), (1, 7), (4, 5)])
def test_products_are_the_same(rows):
    model = _model()
    copies = PackedWeights(model)
    assert len(copies) == 3
    with torch.inference_mode():
        for name in ("linear", "bare", "conv", "small"):
            width = {"linear": 512, "bare": 768, "conv": 512, "small": 8}[name]
            given = torch.randn(*rows, width)
            own = model[name](given)
            with copies.in_use():
                torch.testing.assert_close(model[name](given), own, rtol=1e-4, atol=1e-4)


def test_the_model_is_as_it_was_outside_and_after_an_error():
    model = _model()
    copies = PackedWeights(model)
    with pytest.raises(RuntimeError, match="stop"), copies.in_use():
        assert "forward" in model["linear"].__dict__
        raise RuntimeError("stop")
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_changed_weights_are_copied_again():
    model = _model()
    copies = PackedWeights(model)
    given = torch.randn(3, 512)
    with torch.no_grad():
        model["linear"].weight.mul_(2)
        own = model["linear"](given)
    with torch.inference_mode(), copies.in_use():
        torch.testing.assert_close(model["linear"](given), own, rtol=1e-4, atol=1e-4)
    model["linear"].weight = torch.nn.Parameter(torch.zeros(768, 512))
    with torch.inference_mode(), copies.in_use():
        torch.testing.assert_close(model["linear"](given), model["linear"].bias.expand(3, -1))


def test_what_is_not_copied():
    assert len(PackedWeights(_model(), most_bytes=2 * 2**20)) == 1  # the next smallest no longer fits
    assert len(PackedWeights(_model().to(torch.bfloat16))) == 0
    wrapped = _model()
    wrapped["linear"].forward = wrapped["linear"].forward
    assert len(PackedWeights(wrapped)) == 2  # somebody else has replaced that one
    assert len(packed_weights(object())) == 0
    model = _model()
    assert packed_weights(model) is packed_weights(model)


def test_a_row_that_is_not_finite_spoils_no_other():
    model = _model()
    given = torch.randn(4, 512)
    given[1] = torch.nan
    with torch.inference_mode(), PackedWeights(model).in_use():
        assert torch.isfinite(model["linear"](given)).all(-1).tolist() == [True, False, True, True]
