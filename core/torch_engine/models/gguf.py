"""A GGUF file of a Llama, Qwen 2, Qwen 3 or SmolLM3. Its metadata is read with the standard library
alone, which also works in a browser's tab (`gguf_for_tab.py`). Here the file becomes a folder like
those of transformers: its weights as the package `gguf` dequantizes them to float32, with its own
tokenizer and chat template. Everything else then reads a folder.

GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. transformers reads such files as
well, but ignores how `smollm` splits digits, which gives one number in five other tokens.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from core.browser.weights import rope_factors
from core.errors import shown_quoted
from core.torch_engine.models.weight_files import BadWeights

Progress = Callable[[int, int], None]
"""How many tensors are done, of how many."""

_MADE = 2  # version of the conversion: raise it to make folders anew


def folder_for(file: str, folders: Path) -> Path:
    """The path of the folder made from a file; it changes with the file."""
    about = os.stat(file)
    key = f"{_MADE}\0{os.path.realpath(file)}\0{about.st_size}\0{about.st_mtime_ns}"
    return folders / f"{Path(file).stem[:60]}-{sha256(key.encode()).hexdigest()[:12]}"


def make_folder(file: str, folder: Path, progress: Progress = lambda done, total: None) -> None:
    """Make the folder, whole or not at all; raises BadWeights for an unsupported file, and OSError
    if there is no room for it.
    """
    with open(file, "rb") as content:
        found = GgufFile(reader(content))
        _make(found, folder, progress)


def _make(found: GgufFile, folder: Path, progress: Progress) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        _write(found, made, progress)
        for one in (made, *made.iterdir()):  # several people may share the folder
            one.chmod(0o755 if one is made else 0o644)
        if not folder.exists():  # another process may have made it first
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


# -- the file --------------------------------------------------------------------------------------

Reader = Callable[[int, int], bytes]
"""What stands in a file from a place on, so many bytes or as many as there are."""
_NO_FILE = "it is no GGUF file, or not a whole one"
_NO_SENSE = "what the file says of its model makes no sense"
_NUMBERS = ("B", "b", "H", "h", "I", "i", "f", "?", "", "", "Q", "q", "d")  # kinds of values
_STRING, _LIST = 8, 9
_AHEAD = 2**20  # bytes that are read at once
_MOST_HEADER = 2**28  # bytes
_MOST_BYTES = 2**42  # of a file: systems refuse to look much further


# how numbers are stored: ggml's number, the name, weights of a block, bytes of a block
_STORED = """
0 F32 1 4, 1 F16 1 2, 30 BF16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24,
8 Q8_0 32 34, 10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210,
16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50, 20 IQ4_NL 32 18,
21 IQ3_S 256 110, 22 IQ2_S 256 82, 23 IQ4_XS 256 136, 29 IQ1_M 256 56, 34 TQ1_0 256 54,
35 TQ2_0 256 66, 39 MXFP4 32 17
"""
_KINDS = {
    int(number): (name, int(weights), int(size))
    for number, name, weights, size in map(str.split, _STORED.split(","))
}


class Tensor(NamedTuple):
    """shape: inputs first. kind: the name of its number type. row: bytes of one output's inputs.
    at: its offset in the file.
    """

    shape: tuple[int, ...]
    kind: str
    row: int
    at: int

    @property
    def outputs(self) -> int:
        """The rows of a matrix; 1 for a vector."""
        return math.prod(self.shape[1:])


class GgufFile:
    """A file's metadata, and its tensors by name. Raises BadWeights for a file that is no GGUF file
    or is incomplete, and what `read` raises.
    """

    def __init__(self, read: Reader) -> None:
        self.read = read
        self._head, self._at = b"", 0
        self.facts: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        try:
            self._read_header()
        except (ArithmeticError, IndexError, RecursionError, TypeError, ValueError, struct.error):
            raise BadWeights(_NO_FILE) from None
        del self._head

    def content(self, tensor: Tensor, size: int, begin: int = 0) -> bytes:
        """Bytes of a tensor from an offset on. Raises BadWeights if the file ends before that."""
        found = self.read(tensor.at + begin, size)
        if len(found) < size:
            raise BadWeights(_NO_FILE)
        return found

    def _read_header(self) -> None:
        magic, version, tensors, facts = self._numbers("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError
        for _ in range(facts):
            name = self._text()
            self.facts[name] = self._value(*self._numbers("I"))
        places: dict[str, tuple[Any, ...]] = {}
        for _ in range(tensors):
            name, (dimensions,) = self._text(), self._numbers("I")
            if dimensions > 4:
                raise ValueError
            places[name] = self._numbers(f"{dimensions}QIQ")
        if len(self.facts) < facts or len(places) < tensors:  # two of one name
            raise ValueError
        unit = self.facts.get("general.alignment", 32)
        begin = -(-self._at // unit) * unit
        for name, (*shape, number, offset) in places.items():
            kind, weights, size = _KINDS.get(number, (f"{number}", 1, 0))
            if not shape or 0 in shape or shape[0] % weights:
                raise ValueError
            row = shape[0] // weights * size
            tensor = self.tensors[name] = Tensor(tuple(shape), kind, row, begin + offset)
            last = max(1, row * tensor.outputs) - 1
            if tensor.at + last > _MOST_BYTES:
                raise ValueError
            self.content(tensor, 1, last)
        end = begin
        for tensor in sorted(self.tensors.values(), key=lambda tensor: tensor.at):
            if tensor.at < end:  # a small file could become a model of any size
                raise ValueError
            end = tensor.at + tensor.row * tensor.outputs

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _LIST:
            (number,) = self._numbers(_NUMBERS[kind])
            return number
        of, count = self._numbers("IQ")
        if of in (_STRING, _LIST):
            return [self._value(of) for _ in range(count)]
        return list(self._numbers(f"{count}{_NUMBERS[of]}"))

    def _text(self) -> str:
        (length,) = self._numbers("Q")
        return self._next(length).decode()

    def _numbers(self, format: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{format}", self._next(struct.calcsize(f"<{format}")))

    def _next(self, size: int) -> bytes:
        if (end := self._at + size) > _MOST_HEADER:
            raise ValueError
        while end > len(self._head):
            have = len(self._head)
            more = self.read(have, max(_AHEAD, have, end - have))
            if not more:
                raise ValueError
            self._head += more
        found = self._head[self._at : end]
        self._at = end
        return found


def reader(file: BinaryIO) -> Reader:
    """Of an opened file."""

    def read(at: int, size: int) -> bytes:
        file.seek(at)
        return file.read(size)

    return read


def facts_of(file: GgufFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `config.json` and `tokenizer.json` say; raises BadWeights."""
    try:
        return config_of(file), tokenizer_of(file.facts)
    except KeyError as error:
        raise BadWeights(f"the file does not have “{error.args[0]}”") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
        raise BadWeights(_NO_SENSE) from None


# -- the folder ------------------------------------------------------------------------------------


def _write(file: GgufFile, made: Path, progress: Progress) -> None:
    from safetensors.numpy import save_file

    config, tokenizer = facts_of(file)
    weights = _weights(file, config, progress)
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    stops = {"eos_token_id": config["eos_token_id"], "bos_token_id": config["bos_token_id"]}
    for name, content in (
        ("config.json", config),
        ("generation_config.json", stops),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", tokenizer_config_of(file.facts)),
    ):
        (made / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


# -- config ----------------------------------------------------------------------------------------

_READ = ("llama", "qwen2", "qwen3", "smollm3")  # kinds
TURNED = ("llama", "smollm3")  # llama.cpp permutes the rows of their heads for its rotary embedding
_HAS = {
    "qwen2": {"attn_q.bias", "attn_k.bias", "attn_v.bias"},
    "qwen3": {"attn_q_norm.weight", "attn_k_norm.weight"},
}
_MORE = re.compile(r".*\.bias|attn_[qk]_norm\.weight")
_COUNTS = re.compile(
    r"(embedding|feed_forward|context)_length|block_count|vocab_size|"
    r"attention\.(head_count(_kv)?|key_length)"
)
_FRACTIONS = ("rope.freq_base", "attention.layer_norm_rms_epsilon")


def config_of(file: GgufFile) -> dict[str, Any]:
    """What `config.json` says."""
    facts, shapes = file.facts, {name: tensor.shape for name, tensor in file.tensors.items()}
    kind = facts["general.architecture"]
    if kind not in _READ:
        raise BadWeights(
            "GGUF files of Llama, Qwen 2, Qwen 3 and SmolLM3 are read here, not of the kind"
            f" {shown_quoted(kind)}"
        )
    of = {
        name.removeprefix(f"{kind}."): value
        for name, value in facts.items()
        if name.startswith(f"{kind}.")
    }
    heads, hidden = of["attention.head_count"], of["embedding_length"]
    size, theta = of.get("attention.key_length", hidden // heads), of.get("rope.freq_base", 10000.0)
    changes_nothing = {
        "attention.value_length": size,
        "rope.dimension_count": size,
        "rope.scaling.type": "none",
        **dict.fromkeys(("rope.scaling.factor", "rope.scale_linear"), 1),
        **dict.fromkeys(("expert_count", "expert_used_count"), 0),
    }
    for name, value in of.items():  # ignoring one could change every logit
        if not (
            isinstance(value, int)
            if _COUNTS.fullmatch(name)
            else isinstance(value, float) and math.isfinite(value)
            if name in _FRACTIONS
            else value == changes_nothing.get(name)
        ):
            raise BadWeights(
                f"a GGUF file whose {shown_quoted(name)} is {shown_quoted(value)} is not read here"
            )
    # transformers would leave out what a kind does not have, and make up what is missing
    parts = {name.split(".", 2)[-1] for name in shapes}
    if {part for part in parts if _MORE.fullmatch(part)} != _HAS.get(kind, set()):
        raise BadWeights(
            "a GGUF file with other biases or head norms than its kind has is not read here"
        )
    config = {
        "model_type": kind,
        "dtype": "float32",
        "vocab_size": shapes["token_embd.weight"][1],
        "hidden_size": hidden,
        "intermediate_size": of["feed_forward_length"],
        "num_hidden_layers": of["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": of.get("attention.head_count_kv", heads),
        "head_dim": size,
        "max_position_embeddings": of["context_length"],
        "rms_norm_eps": of["attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in shapes,
        "bos_token_id": facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _ends(facts) or None,
        "pad_token_id": None,
    }
    if ROPE in file.tensors:
        _scale_positions(config, file)
    if kind == "smollm3":
        config["no_rope_layer_interval"] = 4
    return config


ROPE = "rope_freqs.weight"


def _scale_positions(config: dict[str, Any], file: GgufFile) -> None:
    """Put the scaling of positions into the config. A file has only its result, a divisor for each
    rotary frequency; since Llama 3.1, models differ only in the factor, which divides the lowest.
    """
    tensor, divisors = file.tensors[ROPE], [1.0]
    if tensor.kind == "F32" and tensor.outputs == 1:
        divisors = list(struct.unpack(f"<{tensor.row // 4}f", file.content(tensor, tensor.row)))
    config["rope_parameters"] |= {
        "rope_type": "llama3",
        "factor": max(divisors),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    # the lengths first: a head's size may be anything that a file says
    if 2 * len(divisors) != config["head_dim"] or not all(
        map(partial(math.isclose, rel_tol=1e-4), divisors, rope_factors(config))
    ):
        raise BadWeights(
            "a GGUF file with positions scaled unlike those of Llama 3 is not read here"
        )


_OF_A_TURN = frozenset({"<|end|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>"})


def _ends(facts: Mapping[str, Any]) -> list[int]:
    """The tokens that end an answer. Many files name only the end of a text, though their chat
    template ends turns with another token: llama.cpp also recognizes those by name.
    """
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts.get("tokenizer.ggml.token_type", ())
    ends = {id for id, kind in enumerate(kinds) if kind == _CONTROL and tokens[id] in _OF_A_TURN}
    named: list[Any] = [facts.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot")]
    return sorted(ends.union(id for id in named if id in range(len(tokens))))


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


def _weights(file: GgufFile, config: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    import numpy as np
    from gguf import GGMLQuantizationType, dequantize

    weights: dict[str, Any] = {}
    for done, (name, tensor) in enumerate(file.tensors.items()):
        progress(done, len(file.tensors))
        if name == ROPE:
            continue
        theirs = _name(name)
        if not tensor.row:
            raise BadWeights(f"numbers of the kind “{tensor.kind}” are not read here")
        stored = np.frombuffer(file.content(tensor, tensor.row * tensor.outputs), np.uint8)
        turned = config["model_type"] in TURNED and name.split(".")[-2] in ("attn_q", "attn_k")
        try:
            rows = stored.reshape(*reversed(tensor.shape[1:]), tensor.row)
            values = dequantize(rows, GGMLQuantizationType[tensor.kind])
            if turned:  # pairs of rows are adjacent
                pairs = values.reshape(-1, config["head_dim"] // 2, 2, tensor.shape[0])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
        except (TypeError, ValueError):
            raise BadWeights(_NO_SENSE) from None
        weights[theirs] = np.ascontiguousarray(values, dtype=np.float32)
    return weights


def _name(name: str) -> str:
    """transformers' name of a tensor; raises BadWeights for one that these models do not have."""
    path, _, kind = name.rpartition(".")
    *layer, part = path.split(".")
    if part not in _NAMES or kind not in ("weight", "bias"):
        raise BadWeights(f"it has a tensor {shown_quoted(name)}, which is not read here")
    prefix = f"model.layers.{layer[1]}." if len(layer) == 2 else ""
    return f"{prefix}{_NAMES[part]}.{kind}"


# -- tokenizer -------------------------------------------------------------------------------------

_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _split(numbers: str) -> list[dict[str, Any]]:
    """The pattern of Llama 3; Qwen's differs only in its numbers."""
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
    "smaug-bpe": _split(r"\p{N}{1,3}"),
    "qwen2": _split(r"\p{N}"),
}
"""What stands before the merges, by `tokenizer.ggml.pre`: a file holds no more than its name."""
_LLAMA_3 = ("llama-bpe", "smaug-bpe")  # the second one of models that begin no text by themselves
_CONTROL, _OWN = 3, 4  # kinds of tokens


def tokenizer_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What `tokenizer.json` says."""
    kind, before = facts["tokenizer.ggml.model"], facts.get("tokenizer.ggml.pre")
    if kind != "gpt2" or before not in _STEPS:
        raise BadWeights(
            "tokenizers of Llama 3, Qwen, SmolLM and GPT-2 are read here, not of the kind"
            f" {shown_quoted(kind)}, {shown_quoted(before)}"
        )
    tokens = facts["tokenizer.ggml.tokens"]
    if len(set(tokens)) < len(tokens):  # the first of two that are equal would have no text
        raise ValueError
    kinds = facts.get("tokenizer.ggml.token_type", ())
    # Llama 3's files do not say so: llama.cpp also hard-codes it
    begins = facts.get("tokenizer.ggml.add_bos_token", before == "llama-bpe")
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
        "post_processor": _begin(facts) if begins else None,
        "decoder": _WORDS,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": before in _LLAMA_3,
            "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in facts["tokenizer.ggml.merges"]],
        },
    }


def _begin(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Make every text begin with the beginning-of-text token."""
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
        if (id := facts.get(f"tokenizer.ggml.{at}_token_id")) in range(len(tokens))
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
