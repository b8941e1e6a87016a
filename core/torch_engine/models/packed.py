"""A Llama's GGUF file packed for a browser's tab: its quantized blocks byte for byte, put where
`assets/engine/quantized.c` reads them. The file is one of `core.browser.weights`; its header also
has the tokenizer, and what the chat template writes between messages, see `core.browser.chat`.

Norms stay float32, and each matrix names its kind: q4_1, and q8_0 for the head.
"""

from __future__ import annotations

import json
from typing import Any

from core.browser.chat import worked_out
from core.browser.weights import PANEL, llama_sizes, model_facts, packed_file
from core.errors import UnsupportedModel
from core.torch_engine.models.gguf import (
    config_of,
    read_file,
    tokenizer_config_of,
    tokenizer_of,
    turned_back,
)
from core.workload.chat import template_text

_BLOCK = 32  # inputs
_SCALES = {"Q4_1": 2, "Q8_0": 1}  # float16 numbers before those of a block


def pack_gguf(file: str, name: str) -> bytes:
    """The packed file. name: the model's in traces. Raises UnsupportedModel for a model that is not
    computed in a tab, BadWeights for a file that is not read, and OSError.
    """
    facts, read = read_file(file)
    tensors = {tensor.name: tensor for tensor in read}
    config = config_of(facts, {of: tuple(map(int, t.shape)) for of, t in tensors.items()})
    if config["model_type"] != "llama" or not config["tie_word_embeddings"]:
        raise UnsupportedModel("A browser computes GGUF files of Llamas with tied embeddings.")
    packed, sizes = _PackedBlocks(tensors), llama_sizes(config, config["rope_theta"])
    packed.matrix("head", "token_embd", kind="Q8_0")
    for layer in range(sizes["layers"]):
        at = f"blk.{layer}."
        packed.vector(f"{layer}.norm", f"{at}attn_norm")
        turn = sizes["head_size"]
        packed.matrix(f"{layer}.qkv", *(f"{at}attn_{part}" for part in "qkv"), turn=turn)
        packed.matrix(f"{layer}.out", f"{at}attn_output")
        packed.vector(f"{layer}.mlp_norm", f"{at}ffn_norm")
        packed.matrix(f"{layer}.up", f"{at}ffn_gate", f"{at}ffn_up")
        packed.matrix(f"{layer}.down", f"{at}ffn_down")
    packed.vector("norm", "output_norm")
    words = tokenizer_config_of(facts)
    template = words.pop("chat_template")
    tokens = {of: token for of, token in words.items() if of.endswith("_token")}
    header = {
        "model": model_facts(
            name,
            config,
            sizes,
            sum(int(tensor.n_elements) for tensor in read),
            (config["eos_token_id"],),
        ).to_json(),
        "sizes": sizes,
        "float16": False,
        "tensors": packed.places,
        "tokenizer": json.dumps(tokenizer_of(facts), ensure_ascii=False),
        "between": worked_out(lambda messages: template_text(template, messages, **tokens)),
    }
    return packed_file(header, bytes(packed.numbers))


class _PackedBlocks:
    """Tensors in the order in which they are added. places: by name, where one begins, its outputs
    and inputs, and of a matrix the kind of its blocks.
    """

    def __init__(self, tensors: dict[str, Any]) -> None:
        self._tensors, self.numbers, self.places = tensors, bytearray(), dict[str, Any]()

    def vector(self, name: str, part: str) -> None:
        """A vector as it is."""
        found = self._tensors[f"{part}.weight"].data
        self._add(name, found.astype("<f4").tobytes(), len(found), 1)

    def matrix(self, name: str, *parts: str, kind: str = "Q4_1", turn: int = 0) -> None:
        """Panels of all outputs of the parts, one part after the other. turn: the size of a head,
        if the rows of all parts but the last are those of heads that llama.cpp has turned.
        """
        import numpy as np

        found = [self._tensors[f"{part}.weight"] for part in parts]
        inputs, outputs = int(found[0].shape[0]), sum(int(tensor.shape[1]) for tensor in found)
        if {tensor.tensor_type.name for tensor in found} != {kind} or outputs % PANEL:
            raise UnsupportedModel(f"A browser computes {parts[0]} in panels of {kind}.")
        rows = [tensor.data for tensor in found]
        if turn:
            rows = [*(turned_back(part, turn) for part in rows[:-1]), rows[-1]]
        panels, count, scales = outputs // PANEL, inputs // _BLOCK, 2 * _SCALES[kind]
        blocks = np.concatenate(rows).reshape(panels, PANEL, count, -1)
        together = [
            # [panel, output, block, number] to [panel, block, number, output]
            np.ascontiguousarray(part.transpose(0, 2, 3, 1)).view("u1").reshape(panels, count, -1)
            for part in (
                np.ascontiguousarray(blocks[..., :scales]).view("<u2"),
                blocks[..., scales:],
            )
        ]
        numbers = np.concatenate(together, axis=2).tobytes()
        self._add(name, numbers, outputs, inputs, kind.lower())

    def _add(self, name: str, numbers: bytes, *about: int | str) -> None:
        self.places[name] = len(self.numbers), *about
        self.numbers += numbers + bytes(-len(numbers) % 16)
