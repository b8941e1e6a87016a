"""The shapes of published models, as data, and models of those shapes with random weights. Speed depends on shapes, never on weights.

Sources: the `config.json` of Qwen/Qwen3-0.6B, meta-llama/Llama-3.2-1B and meta-llama/Llama-3.1-8B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen3Config


@dataclass(frozen=True)
class Shape:
    """A decoder of the Qwen3 or the Llama architecture.

    tied: the output layer is the embedding table. rope_factor: of Llama 3's frequency scaling, None for plain RoPE.
    """

    name: str
    family: Literal["qwen3", "llama"]
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float
    tied: bool
    norm_eps: float
    rope_factor: float | None = None

    def config(self, context: int, initializer_range: float = 0.02) -> PreTrainedConfig:
        """context: positions, less than the published model has, so that nothing is sized for a request of 131,072 tokens."""
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.rope_theta}
        if self.rope_factor is not None:
            rope |= {"rope_type": "llama3", "factor": self.rope_factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            rope |= {"original_max_position_embeddings": 8192}
        kind = Qwen3Config if self.family == "qwen3" else LlamaConfig
        return kind(
            hidden_size=self.hidden, num_hidden_layers=self.layers, num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim, intermediate_size=self.intermediate, vocab_size=self.vocab, rope_parameters=rope,
            tie_word_embeddings=self.tied, rms_norm_eps=self.norm_eps, max_position_embeddings=context,
            initializer_range=initializer_range, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )  # fmt: skip

    def build(
        self, device: torch.device, dtype: torch.dtype, context: int, seed: int = 0, initializer_range: float = 0.02
    ) -> PreTrainedModel:
        """A model of random weights, drawn on the device itself."""
        torch.manual_seed(seed)
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(self.config(context, initializer_range), dtype=dtype)
        return model.eval().requires_grad_(False)

    def kv_bytes(self, dtype: torch.dtype) -> int:
        """Of one token, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * dtype.itemsize


QWEN3_06B = Shape("qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151_936, 1e6, True, 1e-6)
LLAMA_1B = Shape("llama-3.2-1b", "llama", 2048, 16, 32, 8, 64, 8192, 128_256, 5e5, True, 1e-5, rope_factor=32.0)
LLAMA_8B = Shape("llama-3.1-8b", "llama", 4096, 32, 32, 8, 128, 14_336, 128_256, 5e5, False, 1e-5, rope_factor=8.0)


def weight_bytes_read(model: PreTrainedModel) -> int:
    """Bytes of weights that a decode step must read: every parameter once; of an untied embedding table next to nothing, a row a token."""
    read = sum(p.numel() * p.element_size() for p in model.parameters())  # a tied table is one parameter
    table: Any = model.get_input_embeddings().weight
    output: Any = model.get_output_embeddings()
    return read - (0 if output.weight is table else table.numel() * table.element_size())
