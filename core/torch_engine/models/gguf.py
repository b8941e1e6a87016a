"""A GGUF file of a Llama, Qwen 2 or Qwen 3 made into a folder as transformers writes them: the
numbers of its quantized blocks in float32, as the package `gguf` widens them, and the tokenizer and
chat template of its own lists. Everything else then reads a folder.

GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. transformers reads such files as
well, but drops how `smollm` splits digits, and one number in five has other tokens then.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from core.errors import shown
from core.torch_engine.models.weight_files import BadWeights

SUFFIX = ".gguf"
Progress = Callable[[int, int], None]
"""How many tensors are done, of how many."""


def is_gguf(name: str) -> bool:
    """Whether a name can only be that of a GGUF file."""
    return name.lower().endswith(SUFFIX)


def folder_for(file: str, folders: Path) -> Path:
    """Where the folder made from a file lies: another one once the file has changed."""
    about = os.stat(file)
    key = f"{os.path.realpath(file)}\0{about.st_size}\0{about.st_mtime_ns}"
    return folders / f"{Path(file).stem[:60]}-{sha256(key.encode()).hexdigest()[:12]}"


def make_folder(file: str, folder: Path, progress: Progress = lambda done, total: None) -> None:
    """Make the folder, whole or not at all; raises BadWeights for a file that is not read here, and
    OSError where there is no room for it.
    """
    content = read_file(file)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        _write(*content, made, progress)
        for one in (made, *made.iterdir()):  # the folder may be one that several people share
            one.chmod(0o755 if one is made else 0o644)
        if not folder.exists():  # another process may have been as quick
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def read_file(file: str) -> tuple[dict[str, Any], Any]:
    """What the file says of its model, by name, and its tensors; raises BadWeights and OSError."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        return {name: field.contents() for name, field in reader.fields.items()}, reader.tensors
    except OSError:
        raise
    except Exception:  # of a file cut short, or none of this kind
        raise BadWeights("it is no GGUF file, or not a whole one") from None


def _write(facts: Mapping[str, Any], tensors: Any, made: Path, progress: Progress) -> None:
    from safetensors.numpy import save_file

    try:
        shapes = {tensor.name: tuple(map(int, tensor.shape)) for tensor in tensors}
        config, tokenizer = config_of(facts, shapes), tokenizer_of(facts)
        weights = _weights(tensors, config, progress)
    except KeyError as error:
        raise BadWeights(f"the file does not have {error.args[0]}") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
        raise BadWeights("what the file says of its model makes no sense") from None
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    stops = {"eos_token_id": config["eos_token_id"], "bos_token_id": config["bos_token_id"]}
    for name, content in (
        ("config.json", config),
        ("generation_config.json", stops),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", tokenizer_config_of(facts)),
    ):
        (made / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


# -- config ----------------------------------------------------------------------------------------

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def config_of(facts: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What `config.json` says. shapes: of the tensors, by name."""
    kind = facts["general.architecture"]
    if kind not in _CLASSES:
        raise BadWeights(f"a GGUF file of the kind {shown(kind)} is not read here")
    of = {
        name.removeprefix(f"{kind}."): value
        for name, value in facts.items()
        if name.startswith(f"{kind}.")
    }
    if of.get("expert_count"):
        raise BadWeights("a GGUF file with experts is not read here")
    if "rope_freqs.weight" in shapes or of.get("rope.scaling.type", "none") != "none":
        raise BadWeights("a GGUF file with scaled positions is not read here")
    heads, hidden = of["attention.head_count"], of["embedding_length"]
    return {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "dtype": "float32",
        "vocab_size": shapes["token_embd.weight"][1],
        "hidden_size": hidden,
        "intermediate_size": of["feed_forward_length"],
        "num_hidden_layers": of["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": of.get("attention.head_count_kv", heads),
        "head_dim": of.get("attention.key_length", hidden // heads),
        "max_position_embeddings": of["context_length"],
        "rms_norm_eps": of["attention.layer_norm_rms_epsilon"],
        "rope_theta": of.get("rope.freq_base", 10000.0),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in shapes,
        "bos_token_id": facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": facts.get("tokenizer.ggml.eos_token_id"),
    }


# -- weights ---------------------------------------------------------------------------------------

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _weights(tensors: Any, config: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    import numpy as np
    from gguf import dequantize

    weights: dict[str, Any] = {}
    for done, tensor in enumerate(tensors):
        progress(done, len(tensors))
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise BadWeights(f"numbers of the kind {kind} are not read here") from None
        part = tensor.name.split(".")[-2]
        # llama.cpp turns the rows of a Llama's heads for its own rotary embedding
        if config["model_type"] == "llama" and part in ("attn_q", "attn_k"):
            values = turned_back(values, config["head_dim"])
        weights[_name(tensor.name)] = np.ascontiguousarray(values, dtype=np.float32)
    return weights


def turned_back(rows: Any, head_dim: int) -> Any:
    """The rows of a Llama's heads where transformers has them."""
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _name(name: str) -> str:
    """What transformers calls a tensor; raises BadWeights for one that these models do not have."""
    *layer, part, kind = name.split(".")
    if part not in _NAMES or kind not in ("weight", "bias"):
        raise BadWeights(f"it has a tensor {shown(name)}, which is not read here")
    prefix = f"model.layers.{layer[1]}." if len(layer) == 2 else ""
    return f"{prefix}{_NAMES[part]}.{kind}"


# -- tokenizer -------------------------------------------------------------------------------------

_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _split(numbers: str) -> list[dict[str, Any]]:
    """The pattern of Llama 3, which Qwen has with other numbers."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + numbers
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return [{**split, "invert": False}, {**_WORDS, "use_regex": False}]


_STEPS = {
    "gpt-2": [_WORDS],
    "smollm": [_DIGITS, _WORDS],
    "llama-bpe": _split(r"\p{N}{1,3}"),
    "qwen2": _split(r"\p{N}"),
}
"""What stands before the merges, by `tokenizer.ggml.pre`: a file holds no more than its name."""
_CONTROL, _OWN = 3, 4  # kinds of tokens


def tokenizer_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What `tokenizer.json` says."""
    kind, before = facts["tokenizer.ggml.model"], facts.get("tokenizer.ggml.pre")
    if kind != "gpt2" or before not in _STEPS:
        raise BadWeights(
            f"a tokenizer of the kind {shown(kind)}, {shown(before)}, is not read here"
        )
    tokens = facts["tokenizer.ggml.tokens"]
    kinds = facts.get("tokenizer.ggml.token_type", ())
    added = [
        {
            "id": id,
            "content": tokens[id],
            "special": kind == _CONTROL,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for id, kind in enumerate(kinds)
        if kind in (_CONTROL, _OWN)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if before == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _STEPS[before]},
        "post_processor": _begin(facts) if facts.get("tokenizer.ggml.add_bos_token") else None,
        "decoder": _WORDS,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": before == "llama-bpe",
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in facts["tokenizer.ggml.merges"]],
        },
    }


def _begin(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Every text begins with the token of beginning."""
    id = facts["tokenizer.ggml.bos_token_id"]
    token = facts["tokenizer.ggml.tokens"][id]
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, second],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
    }


def tokenizer_config_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What `tokenizer_config.json` says."""
    tokens = facts["tokenizer.ggml.tokens"]
    names = {
        f"{name}_token": tokens[id]
        for name, at in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (id := facts.get(f"tokenizer.ggml.{at}_token_id")) is not None and id < len(tokens)
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **names,
        **(
            {"chat_template": template}
            if isinstance(template := facts.get("tokenizer.chat_template"), str)
            else {}
        ),
    }
