"""Models that an engineer brings: small random ones in folders of their own, with tokenizers, some
with a chat template; and folders that are none.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

from worlds.families import BY_NAME

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}{% if"
    " add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
_TEXT = [
    "To be, or not to be, that is the question.",
    "O Romeo, Romeo! wherefore art thou Romeo?",
    "What light through yonder window breaks?",
]
SHAPES = ("qwen3", "gemma3_text", "gpt_oss", "llama")


def tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE that writes any text in about 300 tokens."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer, own.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    own.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(vocab_size=300, special_tokens=_SPECIAL, initial_alphabet=alphabet),
    )
    found = PreTrainedTokenizerFast(
        tokenizer_object=own, eos_token="<|end|>", clean_up_tokenization_spaces=False
    )
    if chat:
        found.chat_template = CHAT
    return found


def save(
    folder: Path,
    family: str = "qwen3",
    chat: bool = False,
    with_tokenizer: bool = True,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Path:
    """A random model of a family in a folder, whose vocabulary is its tokenizer's."""
    words = tokenizer(chat)
    model = BY_NAME[family].build(
        vocab_size=len(words), eos_token_id=None, **{"max_position_embeddings": 512, **options}
    )
    model.to(dtype).save_pretrained(folder)
    if with_tokenizer:
        words.save_pretrained(folder)
    return folder


def alibi(folder: Path) -> Path:
    """A model that the probe refuses by its name."""
    config = CONFIG_MAPPING["bloom"](vocab_size=300, hidden_size=32, n_layer=2, n_head=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def pickled(folder: Path, source: Path) -> Path:
    """Weights as a pickle only."""
    shutil.copytree(source, folder)
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(2)}, folder / "pytorch_model.bin")
    return folder


def truncated(folder: Path, source: Path) -> Path:
    """Weights that were not copied to their end."""
    shutil.copytree(source, folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    return folder


def config_only(folder: Path, source: Path, **fields: Any) -> Path:
    """A config without weights, its fields changed."""
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


def requests_of(*prompts: str, new: int = 8) -> list[dict[str, Any]]:
    """As the page sends them."""
    return [
        {
            "id": f"r{i}",
            "prompt": p,
            "sampling": {"max_new_tokens": new, "ignore_eos": True},
            "arrival": i,
        }
        for i, p in enumerate(prompts or ("To be", "O Romeo, what light", "What"))
    ]


def spec(model: Path | str, *prompts: str, **fields: Any) -> dict[str, Any]:
    """What the page sends for a short run of a model."""
    config = {
        "policy": "continuous",
        "max_num_seqs": 2,
        "max_num_batched_tokens": 16,
        "block_size": 4,
    }
    workload = {
        "schema": 1,
        "name": "own",
        "arrival_unit": "step",
        "requests": requests_of(*prompts),
    }
    return {"workload": workload, "config": config, "model": str(model), "device": "cpu", **fields}
