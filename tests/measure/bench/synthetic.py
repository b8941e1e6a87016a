"""The models and requests that benchmarks run on: random weights of a GPT-2 or Llama shape, seeded
requests.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload


def gpt2(
    layers: int, width: int, heads: int = 12, vocab_size: int = 50257, context: int = 1024
) -> Any:
    """A GPT-2 with random weights, spread widely enough that its answers differ (float32,
    seeded).
    """
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=heads,
        vocab_size=vocab_size,
        n_positions=context,
        initializer_range=0.06,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def llama(
    layers: int = 16,
    width: int = 768,
    heads: int = 12,
    kv_heads: int = 4,
    mlp: int = 2048,
    vocab_size: int = 32000,
    context: int = 1024,
) -> Any:
    """A Llama with random weights, by default of 150 M parameters (float32, seeded)."""
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=mlp,
        vocab_size=vocab_size,
        max_position_embeddings=context,
        initializer_range=0.06,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def requests(prompts: list[int], new: list[int], vocab_size: int, seed: int = 0) -> Workload:
    """Greedy requests of these lengths, all arriving at the start."""
    draw = random.Random(seed)
    return Workload(
        [
            Request(
                f"r{index}",
                prompt_token_ids=tuple(draw.randrange(vocab_size) for _ in range(length)),
                sampling=SamplingParams(max_new_tokens=count, ignore_eos=True),
            )
            for index, (length, count) in enumerate(zip(prompts, new, strict=True))
        ],
        name="bench",
    )


def mixed(
    count: int, vocab_size: int, prompts: tuple[int, int], new: tuple[int, int], seed: int = 0
) -> Workload:
    """`count` requests, prompt and answer lengths drawn evenly from these ranges."""
    draw = random.Random(seed)
    return requests(
        [draw.randint(*prompts) for _ in range(count)],
        [draw.randint(*new) for _ in range(count)],
        vocab_size,
        seed,
    )


def greedy(workload: Workload, most_tokens: int | None = None) -> Workload:
    """The same requests at temperature 0, ignoring end-of-sequence tokens, all arriving at the
    start: every contender can run these.

    most_tokens: of an answer, for a quick run.
    """
    return Workload(
        [
            replace(
                r,
                sampling=SamplingParams(
                    min(r.sampling.max_new_tokens, most_tokens or 10**9), ignore_eos=True
                ),
                arrival=0,
            )
            for r in workload
        ],
        name=workload.name,
    )
