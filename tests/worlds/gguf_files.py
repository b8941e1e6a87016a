"""Small GGUF files of random weights, with a tokenizer and a chat template."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    GGUFWriter,
    TokenType,
    get_tensor_name_map,
    quants,
)
from gguf import GGMLQuantizationType as Kind

HIDDEN, HEADS, KV_HEADS, LAYERS = 64, 4, 2, 2
LETTERS = sorted({chr(b) for b in range(33, 127)} | {"Ġ", "Ċ"})
SPECIAL = ["<|end|>", "<|start|>"]
MERGES = ["h e", "l l", "1 2", "Ġ 1", "Ġ t", "Ġt he"]
TOKENS = [*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
TEMPLATE = "{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}<|start|>"
# what divides the rotary frequencies of Llama 3.2's heads at 16 numbers, of which the sixth pair
# turns in 5,434 tokens
SHARE = (8192 / (2 * math.pi * 5e4 ** (10 / 16)) - 1) / (4 - 1)
FITTING = [1, 1, 1, 1, 1, 1 / ((1 - SHARE) / 32 + SHARE), 32, 32]


def stored(values, kind, rng):
    """Numbers as `kind` stores them; at random where the package `gguf` only reads it."""
    if kind not in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        return quants.quantize(values, kind)
    rows, inputs = values.shape
    size = GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (rows, inputs // 256, size), dtype=np.uint8)
    scales = (5e-5,) if kind == Kind.Q6_K else (5e-4, 4e-3)  # d, and what is taken away
    few = rng.uniform(0.5, 1, (*blocks.shape[:2], len(scales))) * scales
    place = size - 2 if kind == Kind.Q6_K else 0
    blocks[..., place : place + 2 * len(scales)] = few.astype("<f2").view(np.uint8)
    return blocks.reshape(rows, -1)


def write(
    file,
    arch="llama",
    kind=Kind.Q4_1,
    kinds=MappingProxyType({}),
    pre="smollm",
    spoiled=(),
    hidden=HIDDEN,
    tokens=TOKENS,
    own_head=False,
    template=TEMPLATE,
    alignment=32,
    layers=LAYERS,
    context=256,
    weights=MappingProxyType({}),
    rope=(),
    **facts,
):
    """A small model of random weights, its matrices as `kind`, or as `kinds` has it by the ends of
    their names; facts: of the header, also by names with `__` for a dot. spoiled: (name, shape) of
    tensors more. alignment: of the places of tensors, in bytes. weights: by the names of tensors,
    instead of random ones. rope: what divides the rotary frequencies.
    """
    rng = np.random.default_rng(1)
    inner = hidden + hidden // 2 if hidden == HIDDEN else hidden
    size = 128 if arch == "qwen3" else hidden // HEADS  # of a head; transformers knows no other
    writer = GGUFWriter(file, arch)
    writer.add_custom_alignment(alignment)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    controls = [TokenType.CONTROL] * len(SPECIAL)
    writer.add_token_types(controls + [TokenType.NORMAL] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    if template:
        writer.add_chat_template(template)
    for name, value in facts.items():
        add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
        add.get(type(value), writer.add_string)(name.replace("__", "."), value)

    def random(name, mean, wide, *shape):
        return weights.get(name, rng.normal(mean, wide, shape).astype(np.float32))

    def matrix(name, out, inputs):
        values = random(name, 0, 0.2, out, inputs)
        its = next((kinds[end] for end in kinds if name.endswith(f"{end}.weight")), kind)
        if its == Kind.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, stored(values, its, rng), raw_dtype=its)

    def vector(name, length, mean=1):
        writer.add_tensor(name, random(name, mean, 0.1, length))

    matrix("token_embd.weight", len(tokens), hidden)
    if own_head:
        matrix("output.weight", len(tokens), hidden)
    vector("output_norm.weight", hidden)
    for layer in range(layers):
        at = f"blk.{layer}."
        vector(f"{at}attn_norm.weight", hidden)
        vector(f"{at}ffn_norm.weight", hidden)
        for name, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS), ("attn_v", KV_HEADS)):
            out = heads * size
            matrix(f"{at}{name}.weight", out, hidden)
            if arch == "qwen2":
                vector(f"{at}{name}.bias", out, mean=0)
        if arch == "qwen3":
            vector(f"{at}attn_q_norm.weight", size)
            vector(f"{at}attn_k_norm.weight", size)
        matrix(f"{at}attn_output.weight", hidden, HEADS * size)
        matrix(f"{at}ffn_gate.weight", inner, hidden)
        matrix(f"{at}ffn_up.weight", inner, hidden)
        matrix(f"{at}ffn_down.weight", hidden, inner)
    if len(rope):
        writer.add_tensor("rope_freqs.weight", np.array(rope, np.float32))
    for name, shape in spoiled:
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(file)


def converted(model) -> dict[str, Any]:
    """What `write` is given of a Llama or SmolLM3 of these sizes, as llama.cpp's converter has it:
    its names, its order of the rows of heads, and what divides its rotary frequencies.
    """
    config = model.config
    rope = config.rope_parameters
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)  # SmolLM3's, too
    weights = {}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:  # its pairs stand side by side
            half = config.head_dim // 2
            values = values.reshape(-1, 2, half, HIDDEN).swapaxes(1, 2).reshape(values.shape)
        weights[names.get_name(name, (".weight",))] = values
    usual = rope["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    scaled = model.model.rotary_emb.inv_freq.numpy()
    return {
        "arch": config.model_type,
        "kind": Kind.F32,
        "own_head": True,
        "layers": config.num_hidden_layers,
        "context": config.max_position_embeddings,
        "weights": weights,
        "rope": () if rope["rope_type"] == "default" else usual / scaled,
    }
