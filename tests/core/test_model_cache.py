"""Loaded models: one for each device, by whatever name it is asked for."""

from __future__ import annotations

import pytest
import torch

from core.torch_engine.models.cache import ModelCache, device_key


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("cpu", "cpu"),
        ("cpu:1", "cpu"),
        ("cuda", "cuda"),
        ("cuda:0", "cuda"),
        ("cuda:1", "cuda:1"),
        ("mps:0", "mps"),
    ],
)
def test_a_device_has_one_name(asked, place):
    assert device_key(torch.device(asked)) == place


def test_no_name_of_a_device_loads_a_model_again():
    models = ModelCache()
    (first, tokenizer), (second, another) = (
        models.get("shakespeare-char", device) for device in ("cpu", "cpu:7")
    )
    assert first is second and tokenizer is not another, "weights are shared, tokenizers are not"
