"""Small random models of many families, and what `model.generate` makes of the same requests, one
at a time.

Weights are wide and embeddings untied: at a default initialisation a tiny model emits one to four
different tokens, whatever it attends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from core import Engine, EngineConfig, Request, SamplingParams, Trace, Workload
from core.torch_engine.attention import cpu
from core.torch_engine.attention.spec import Backend
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe

VOCAB = 101
CONTEXT = 96
WINDOW = 5  # shorter than most prompts below

_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SIZES_GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": CONTEXT,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Family:
    """A tiny model. covers: what sets its attention apart. plug: the one it must be run by. sizes:
    replaced by None where renamed.
    """

    name: str
    covers: str
    options: dict[str, Any] = field(default_factory=dict)
    plug: str = "attention"
    sizes: dict[str, Any] = field(default_factory=lambda: _SIZES)
    model_type: str | None = None

    def config(self, **options: Any) -> Any:
        merged = {
            k: v for k, v in {**self.sizes, **self.options, **options}.items() if v is not ...
        }
        return CONFIG_MAPPING[self.model_type or self.name](**merged)

    def build(self, seed: int = 0, **options: Any) -> Any:
        """A fresh model, the same every time."""
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(self.config(**options), dtype=torch.float32).eval()
        widen(model, seed)
        if "softcap" in self.covers:
            # other implementations drop the cap in some versions of transformers
            model.set_attn_implementation("eager")
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        return model


def widen(model: Any, seed: int = 0) -> None:
    """Replace all weights by wide seeded noise, so that what a token attends to decides the
    next.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                parameter.add_(0.1 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * 2.0 / parameter.shape[-1] ** 0.5)


_MLA = {
    "num_key_value_heads": 4,
    "head_dim": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}
_SLIDING = ["sliding_attention", "full_attention"]
_GPTJ_PLUG = "attention" if Version(transformers.__version__) >= Version("5.24") else "cache"
_NO_KV_HEADS = {"num_key_value_heads": ...}

FAMILIES: tuple[Family, ...] = (
    Family("gpt2", "learned positions", sizes=_SIZES_GPT2),
    Family("gpt_bigcode", "learned positions, one KV head", sizes=_SIZES_GPT2),
    Family(
        "opt",
        "learned positions with an offset",
        {"ffn_dim": 48, "word_embed_proj_dim": 32, **_NO_KV_HEADS, "intermediate_size": ...},
    ),
    Family("llama", "grouped queries"),
    Family("qwen2", "biases on queries, keys and values"),
    Family("qwen3", "normalised queries and keys", {"head_dim": 12}),
    Family("mistral", "window in every layer", {"sliding_window": WINDOW}),
    Family("phi3", "fused projections, window", {"sliding_window": WINDOW}),
    Family("starcoder2", "window, biases", {"sliding_window": WINDOW}),
    Family("gemma", "wide heads, scaled embeddings", {"head_dim": 12}),
    Family(
        "gemma2",
        "softcap, window in every other layer",
        {
            "head_dim": 12,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 12,
            "attn_logit_softcapping": 5.0,
            "layer_types": _SLIDING,
        },
    ),
    Family(
        "gemma3_text",
        "two RoPEs, window in every other layer",
        {
            "head_dim": 12,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 12,
            "layer_types": _SLIDING,
        },
    ),
    Family(
        "cohere2",
        "no positions in full layers, parallel residual",
        {"sliding_window": WINDOW, "layer_types": _SLIDING},
    ),
    Family(
        "gpt_neox",
        "partial rotary, parallel residual",
        {"rotary_pct": 0.5, "use_parallel_residual": True, **_NO_KV_HEADS},
    ),
    Family("phi", "partial rotary, parallel residual, biases", {"partial_rotary_factor": 0.5}),
    Family(
        "stablelm",
        "partial rotary, layer norm",
        {"partial_rotary_factor": 0.25, "use_parallel_residual": True},
    ),
    Family("cohere", "parallel residual, logit scale"),
    Family("granite", "attention multiplier", {"attention_multiplier": 0.3}),
    Family("olmo2", "norms after attention"),
    Family("mixtral", "mixture of experts", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    Family(
        "qwen2_moe",
        "mixture of experts with a shared one",
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 24,
            "decoder_sparse_step": 1,
        },
    ),
    Family("olmoe", "mixture of experts", {"num_experts": 4, "num_experts_per_tok": 2}),
    Family(
        "gpt_oss",
        "sinks, window in every other layer, mixture of experts",
        {
            "head_dim": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "layer_types": _SLIDING,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    Family(
        "deepseek_v2",
        "K and V heads of unequal size, mixture of experts",
        {**_MLA, "topk_method": "greedy"},
    ),
    Family("deepseek_v3", "K and V heads of unequal size, mixture of experts", _MLA),
    Family("smollm3", "layers without positions", {"no_rope_layers": [1, 0]}),
    Family(
        "gptj",
        "partial rotary, parallel residual",
        {"rotary_dim": 4},
        plug=_GPTJ_PLUG,
        sizes=_SIZES_GPT2,
    ),
    Family(
        "codegen",
        "partial rotary, parallel residual",
        {"rotary_dim": 4},
        plug=_GPTJ_PLUG,
        sizes=_SIZES_GPT2,
    ),
    Family(
        "falcon",
        "one KV head, parallel residual",
        {"multi_query": True, "alibi": False, **_NO_KV_HEADS, "intermediate_size": ...},
        plug="cache",
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}

PROMPT_LENGTHS = (9, 3, 17, 1)
NEW_TOKENS = (10, 16, 12, 14)
ARRIVALS = (0, 0, 2, 5)


def requests(
    prompt_lengths: Sequence[int] = PROMPT_LENGTHS,
    new_tokens: Sequence[int] = NEW_TOKENS,
    vocab: int = VOCAB,
) -> list[Request]:
    """Random prompts that arrive one after the other; past the end-of-sequence token."""
    generator = torch.Generator().manual_seed(7)
    return [
        Request(
            f"r{i}",
            prompt_token_ids=tuple(
                torch.randint(3, vocab, (length,), generator=generator).tolist()
            ),
            sampling=SamplingParams(max_new_tokens=new, ignore_eos=True),
            arrival=arrival,
        )
        for i, (length, new, arrival) in enumerate(
            zip(prompt_lengths, new_tokens, ARRIVALS, strict=True)
        )
    ]


def generate(model: Any, request: Request) -> list[int]:
    """What the model makes of one request by itself, greedily."""
    ids = torch.tensor([request.prompt_token_ids])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=request.sampling.max_new_tokens,
    )
    return output[0, ids.shape[1] :].tolist()


@dataclass(frozen=True)
class World:
    """A model, probed, and the reference outputs."""

    model: Any
    adapter: ModelAdapter
    requests: tuple[Request, ...]
    expected: dict[str, list[int]]

    def run(self, backend: Backend | None = cpu.BACKEND, **limits: Any) -> Trace:
        engine = Engine(self.adapter, None, EngineConfig(**limits), backend=backend)
        return engine.run(Workload(list(self.requests), name="families", arrival_unit="step"))


@cache
def world(name: str, **options: Any) -> World:
    """The world of a family, built once. options: of its config."""
    model = BY_NAME[name].build(**options)
    asked = tuple(requests())
    return World(model, probe(model, name), asked, {r.id: generate(model, r) for r in asked})


# A way to run the requests by name: limits of the engine, small enough to bind.
RUNS: dict[str, dict[str, Any]] = {
    "packed": {"policy": "continuous", "max_num_seqs": 3},
    "chunked": {
        "policy": "continuous",
        "max_num_seqs": 3,
        "max_num_batched_tokens": 7,
        "block_size": 4,
    },
    "preempting": {
        "policy": "continuous",
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "block_size": 2,
        "num_blocks": 18,
    },
    "static": {"policy": "static", "max_num_seqs": 3},
    "dynamic": {"policy": "dynamic", "max_num_seqs": 3},
    "split-chunked": {"policy": "split-chunked", "max_num_seqs": 3, "max_num_batched_tokens": 8},
}
