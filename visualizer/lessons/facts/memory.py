"""Facts of the KV cache in bytes, by the model's own numbers."""

from __future__ import annotations

import json
from functools import cache as remembered
from typing import Any

from core.assets import ASSETS
from visualizer.lessons.facts.fact import cache_of, fact
from visualizer.lessons.places import At


@fact
def layers(at: At) -> int:
    return _on_record(at.trace.header.model.layers)


@fact
def kv_heads(at: At) -> int:
    return _model(at)["num_key_value_heads"]


@fact
def head_dim(at: At) -> int:
    model = _model(at)
    return model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"]


@fact
def number_bytes(at: At) -> int:
    """Bytes of one number of the cache."""
    return {"float32": 4, "bfloat16": 2, "float16": 2}[at.trace.header.dtype]


@fact
def token_bytes(at: At) -> int:
    """Bytes of a token in the cache: K and V × layers × heads × size of a head × bytes of a number."""
    return _on_record(at.trace.header.model.kv_bytes_per_token)


@fact
def cache_bytes(at: At, letter: str) -> int:
    return cache_of(at, letter) * _on_record(at.trace.header.model.kv_bytes_per_token)


def _on_record(number: int | None) -> int:
    assert number is not None, "the lesson's run says nothing of its model"
    return number


@remembered
def _model_file(name: str) -> dict[str, Any]:
    return json.loads((ASSETS / "models" / name / "config.json").read_text(encoding="utf-8"))


def _model(at: At) -> dict[str, Any]:
    return _model_file(str(at.trace.header.model.name))
