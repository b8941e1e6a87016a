"""A built-in model's weights in the layout that `assets/engine/kernels.c` reads: float16, arranged
once when a site is made, so that a tab only has to widen them. GGUF files are packed in
`core/torch_engine/models/gguf_for_tab.py`.

A packed file is the header's length (4 bytes), the header (JSON), and the numbers. The header has
the facts of the model, see `ModelFacts`, its sizes, whether the numbers are "float16", and for each
tensor its offset in bytes in a tab's memory, its outputs and its inputs.

A matrix is stored in panels of eight outputs, `[outputs / 8][inputs][8]`, the last one padded with
zeros: eight outputs are two of the machine's registers. Matrices that read the same input are
stored together: queries, keys and values; gate and up.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import UnsupportedModel
from core.trace.header import ModelFacts

PANEL = 8
_FLOAT32 = 4  # bytes of a number in a tab's memory

Rows = Iterator["array[int]"]


def pack_weights(folder: Path) -> bytes:
    """The packed file of a built-in model: a GPT-2 or Llama in float16 with tied embeddings."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    reader = _Safetensors(folder / "model.safetensors")
    packed = _Packed()
    sizes = {"gpt2": _gpt2, "llama": _llama}[config["model_type"]](config, reader, packed)
    header = {
        "model": model_facts(
            folder.name, config, sizes, reader.parameters, _end_tokens(folder, config)
        ).to_json(),
        "sizes": sizes,
        "float16": True,
        "tensors": packed.tensors,
    }
    return packed_file(header, packed.numbers.tobytes())


def model_facts(
    name: str,
    config: Mapping[str, Any],
    sizes: Mapping[str, Any],
    parameters: int,
    ends: tuple[int, ...],
) -> ModelFacts:
    """The facts of the model in a trace. ends: tokens at which generation stops."""
    return ModelFacts(
        name=name,
        type=config["model_type"],
        parameters=parameters,
        layers=sizes["layers"],
        vocab_size=config["vocab_size"],
        context=sizes["positions"],
        eos_token_ids=ends,
        windows=(None,) * sizes["layers"],
        plug="attention",
        kv_bytes_per_token=2 * _FLOAT32 * sizes["layers"] * sizes["kv_heads"] * sizes["head_size"],
    )


def llama_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes of a Llama, from its config; raises what `rope_factors` raises."""
    sometimes = {
        "rope_factors": rope_factors(config),
        "no_rope_interval": config.get("no_rope_layer_interval"),
    }
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "kv_heads": config["num_key_value_heads"],
        "head_size": config["head_dim"],
        "inner": config["intermediate_size"],
        "positions": config["max_position_embeddings"],
        "epsilon": config["rms_norm_eps"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        **{name: value for name, value in sometimes.items() if value},
    }


_LLAMA3 = {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}


def rope_factors(config: Mapping[str, Any]) -> list[float]:
    """What the rotary frequencies are divided by, where positions are scaled as those of Llama 3.1;
    none where they are as they are. Raises UnsupportedModel where they are scaled in another way.
    """
    rope = config["rope_parameters"]
    scaled = rope.keys() - {"rope_type", "rope_theta"}
    if (rope["rope_type"], scaled) not in (("default", set()), ("llama3", _LLAMA3)):
        raise UnsupportedModel("A browser computes no positions that are scaled unlike Llama 3's.")
    factors = []
    for number in range(0, config["head_dim"] if scaled else 0, 2):
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        length = 2 * math.pi * rope["rope_theta"] ** (number / config["head_dim"])
        turns = rope["original_max_position_embeddings"] / length
        share = min(1, max(0, (turns - low) / (high - low)))
        factors.append(1 / ((1 - share) / rope["factor"] + share))
    return factors


def panels(rows: Sequence[bytes], widths: Sequence[int]) -> bytearray:
    """Rows, which must fill whole panels, in panels: number by number, those of eight rows side by
    side. widths: the bytes of each number in a block; a row consists of such blocks.
    """
    size, made = sum(widths), bytearray(len(rows) * len(rows[0]))
    for output in range(PANEL):
        mine, begin = b"".join(rows[output::PANEL]), 0
        for width in widths:
            for byte in range(width):
                place = PANEL * begin + width * output + byte
                made[place :: PANEL * size] = mine[begin + byte :: size]
            begin += width
    return made


def packed_file(header: Mapping[str, Any], numbers: bytes) -> bytes:
    """Header and numbers as one file."""
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 4)
    return struct.pack("<I", len(text)) + text + numbers


def _end_tokens(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """The tokens at which generation stops; the generation config comes before the model's."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = generation.get("eos_token_id")
    found = config.get("eos_token_id") if found is None else found
    return () if found is None else tuple(sorted(found if isinstance(found, list) else [found]))


class _Safetensors:
    """The tensors of a file, each read once. parameters: how many numbers were read so far."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        (length,) = struct.unpack("<Q", self._data[:8])
        self._about = json.loads(self._data[8 : 8 + length])
        self._begin, self.parameters = 8 + length, 0

    def __call__(self, name: str) -> tuple[array[int], list[int]]:
        """The numbers of a tensor, as the bits of float16, and its shape."""
        about = self._about[name]
        start, end = about["data_offsets"]
        numbers = array("H", self._data[self._begin + start : self._begin + end])
        self.parameters += len(numbers)
        return numbers, about["shape"]

    def rows(self, name: str) -> Rows:
        """A matrix `[outputs, inputs]`, output by output."""
        numbers, (outputs, inputs) = self(name)
        return (numbers[r * inputs : (r + 1) * inputs] for r in range(outputs))

    def columns(self, name: str) -> Rows:
        """A matrix `[inputs, outputs]`, as GPT-2 keeps its own, output by output."""
        numbers, (_, outputs) = self(name)
        return (numbers[c::outputs] for c in range(outputs))


class _Packed:
    """Tensors in the order in which they are added. tensors: by name, its offset once it is
    widened, its outputs and its inputs.
    """

    def __init__(self) -> None:
        self.numbers, self.tensors = array("H"), dict[str, tuple[int, int, int]]()

    def matrix(self, name: str, *parts: Rows) -> None:
        """Panels of all outputs of the parts, one part after the other."""
        outputs = [row.tobytes() for part in parts for row in part]
        size, count = len(outputs[0]), len(outputs)
        outputs += [bytes(size)] * (-count % PANEL)
        self._add(name, array("H", panels(outputs, (2,))), count, size // 2)

    def vector(self, name: str, numbers: array[int]) -> None:
        """The numbers as they are, padded with zeros to whole panels."""
        self._add(name, numbers + array("H", bytes(2 * (-len(numbers) % PANEL))), len(numbers), 1)

    def _add(self, name: str, numbers: array[int], outputs: int, inputs: int) -> None:
        self.tensors[name] = _FLOAT32 * len(self.numbers), outputs, inputs
        self.numbers += numbers


def _llama(config: dict[str, Any], read: _Safetensors, packed: _Packed) -> dict[str, Any]:
    def rows(*names: str) -> list[Rows]:
        return [read.rows(f"{name}_proj.weight") for name in names]

    packed.matrix("head", read.rows("model.embed_tokens.weight"))
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        attention, mlp = at + "self_attn.", at + "mlp."
        packed.vector(f"{layer}.norm", read(at + "input_layernorm.weight")[0])
        packed.matrix(f"{layer}.qkv", *rows(attention + "q", attention + "k", attention + "v"))
        packed.matrix(f"{layer}.out", *rows(attention + "o"))
        packed.vector(f"{layer}.mlp_norm", read(at + "post_attention_layernorm.weight")[0])
        packed.matrix(f"{layer}.up", *rows(mlp + "gate", mlp + "up"))
        packed.matrix(f"{layer}.down", *rows(mlp + "down"))
    packed.vector("norm", read("model.norm.weight")[0])
    return llama_sizes(config)


def _gpt2(config: dict[str, Any], read: _Safetensors, packed: _Packed) -> dict[str, Any]:
    def vector(name: str, of: str) -> None:
        packed.vector(name, read(of + ".weight")[0])
        packed.vector(name + ".bias", read(of + ".bias")[0])

    def matrix(name: str, of: str) -> None:
        packed.matrix(name, read.columns(of + ".weight"))
        packed.vector(name + ".bias", read(of + ".bias")[0])

    packed.matrix("head", read.rows("transformer.wte.weight"))
    packed.vector("positions", read("transformer.wpe.weight")[0])
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        vector(f"{layer}.norm", at + "ln_1")
        matrix(f"{layer}.qkv", at + "attn.c_attn")
        matrix(f"{layer}.out", at + "attn.c_proj")
        vector(f"{layer}.mlp_norm", at + "ln_2")
        matrix(f"{layer}.up", at + "mlp.c_fc")
        matrix(f"{layer}.down", at + "mlp.c_proj")
    vector("norm", "transformer.ln_f")
    return {
        "layers": config["n_layer"],
        "hidden": config["n_embd"],
        "heads": config["n_head"],
        "kv_heads": config["n_head"],
        "head_size": config["n_embd"] // config["n_head"],
        "inner": config["n_inner"] or 4 * config["n_embd"],
        "positions": config["n_positions"],
        "epsilon": config["layer_norm_epsilon"],
    }
