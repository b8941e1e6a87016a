"""Packs a GGUF file for a browser's tab with the standard library alone: here for a site, and in
the tab itself for a visitor's own file. The bytes of its quantized blocks do not change; they are
put where `assets/engine/quantized.c` reads them. The packed file has the format of
`core.browser.weights`; each of its matrices names its kind. A site's header also has the tokenizer,
and what the chat template writes between messages, see `core.browser.chat`.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from core.browser.chat import worked_out
from core.browser.weights import PANEL, llama_sizes, model_facts, packed_file, panels
from core.errors import shown_quoted
from core.torch_engine.models.gguf import (
    ROPE,
    TURNED,
    GgufFile,
    Tensor,
    facts_of,
    reader,
    tokenizer_config_of,
)
from core.torch_engine.models.weight_files import BadWeights
from core.workload.chat import template_text
from core.workload.request import Message

# bytes of the numbers in a block, one after the other
_BLOCKS = {
    "F32": (4,),
    "F16": (2,),
    "Q4_0": (2, *(1,) * 16),
    "Q4_1": (2, 2, *(1,) * 16),
    "Q5_0": (2, *(1,) * 20),
    "Q5_1": (2, 2, *(1,) * 20),
    "Q8_0": (2, *(1,) * 32),
    "Q4_K": (2, 2, *(1,) * 140),
    "Q5_K": (2, 2, *(1,) * 172),
    "Q6_K": (*(1,) * 208, 2),
}
_PIECE = 2**21  # bytes that are packed at a time
_MOST_POSITIONS = 16_384  # tokens of a page's run at most: a table has a row for each


class PackedGguf:
    """Header and numbers of a file's model, if a tab can compute it; the numbers, `size` bytes,
    come piece by piece. name: the model's in traces. Raises BadWeights for a file that cannot be
    read or computed here, and what its reader raises.
    """

    def __init__(self, file: GgufFile, name: str) -> None:
        config, self.tokenizer = facts_of(file)
        self._file, self.size, self._places = file, 0, dict[str, Any]()
        self._pieces: list[Callable[[], Iterator[bytes]]] = []
        self._left = set(file.tensors) - {ROPE}
        parameters = sum(_numbers_of(file.tensors[name]) for name in self._left)
        self._turn = config["head_dim"] if config["model_type"] in TURNED else 0
        sizes = llama_sizes(config)
        sizes["positions"] = min(sizes["positions"], _MOST_POSITIONS)
        try:
            self._lay(sizes, config["vocab_size"], own_head=not config["tie_word_embeddings"])
        except KeyError as error:
            raise BadWeights(f"the file does not have “{error.args[0]}”") from None
        if self._left:
            raise BadWeights(
                f"it has a tensor {shown_quoted(min(self._left))}, which is not read here"
            )
        ends = config["eos_token_id"] or ()
        self.header: dict[str, Any] = {
            "model": model_facts(name, config, sizes, parameters, tuple(ends)).to_json(),
            "sizes": sizes,
            "float16": False,
            "tensors": self._places,
        }
        words = tokenizer_config_of(file.facts)
        template = words.pop("chat_template", None)
        tokens = {of: token for of, token in words.items() if of.endswith("_token")}
        self.chat_text: Callable[[Sequence[Message]], str] | None = template and partial(
            template_text, template, **tokens
        )

    def __iter__(self) -> Iterator[bytes]:
        for pieces in self._pieces:
            yield from pieces()

    def _lay(self, sizes: dict[str, Any], vocabulary: int, own_head: bool) -> None:
        hidden, inner, size = sizes["hidden"], sizes["inner"], sizes["head_size"]
        queries, keys = sizes["heads"] * size, sizes["kv_heads"] * size
        if size % PANEL or keys < size or sizes["heads"] % sizes["kv_heads"]:
            raise BadWeights("its attention heads have sizes that a tab does not compute")
        if own_head:
            self._matrix("embedding", ["token_embd"], [vocabulary], hidden)
        self._matrix("head", ["output" if own_head else "token_embd"], [vocabulary], hidden)
        for layer in range(sizes["layers"]):
            at = f"blk.{layer}."
            self._vector(f"{layer}.norm", [f"{at}attn_norm.weight"], hidden)
            self._group(
                f"{layer}.",
                {f"{at}attn_{part}": part for part in "qkv"},
                [queries, keys, keys],
                hidden,
            )
            for norm in ("q_norm", "k_norm"):
                if f"{at}attn_{norm}.weight" in self._left:
                    self._vector(f"{layer}.{norm}", [f"{at}attn_{norm}.weight"], size)
            self._matrix(f"{layer}.out", [f"{at}attn_output"], [hidden], queries)
            self._vector(f"{layer}.mlp_norm", [f"{at}ffn_norm.weight"], hidden)
            self._matrix(f"{layer}.up", [f"{at}ffn_gate", f"{at}ffn_up"], [inner, inner], hidden)
            self._matrix(f"{layer}.down", [f"{at}ffn_down"], [hidden], inner)
        self._vector("norm", ["output_norm.weight"], hidden)

    def _group(self, prefix: str, parts: dict[str, str], outputs: list[int], inputs: int) -> None:
        """Queries, keys and values: one matrix, or three if they are stored in several types."""
        together = len({self._file.tensors[f"{part}.weight"].kind for part in parts}) == 1
        groups = [list(parts)] if together else [[part] for part in parts]
        for group in groups:
            name = prefix + "".join(parts[part] for part in group)
            sizes = [outputs[list(parts).index(part)] for part in group]
            self._matrix(name, group, sizes, inputs)
            biases = [f"{part}.bias" for part in group]
            if biases[0] in self._left:
                self._vector(f"{name}.bias", biases, sum(sizes))

    def _vector(self, name: str, parts: list[str], length: int) -> None:
        """Parts one after the other, unchanged."""
        found = [self._taken(part) for part in parts]
        if {tensor.kind for tensor in found} != {"F32"} or sum(map(_numbers_of, found)) != length:
            raise BadWeights(f"its “{parts[0]}” is not what a tab computes")
        self._add(name, 4 * length, length, 1)
        self._pieces.append(partial(self._plain, found))

    def _matrix(self, name: str, parts: list[str], outputs: list[int], inputs: int) -> None:
        """Panels of all outputs of the parts, one part after the other."""
        found = [self._taken(f"{part}.weight") for part in parts]
        kinds = sorted({tensor.kind for tensor in found})
        if [tensor.shape for tensor in found] != [(inputs, part) for part in outputs] or any(
            part % PANEL for part in outputs[: -1 if name in _OF_VOCABULARY else None]
        ):
            raise BadWeights(f"its “{parts[0]}” has another size than the file says")
        if len(kinds) > 1 or kinds[0] not in _BLOCKS:
            raise BadWeights(f"numbers of the kind “{', '.join(kinds)}” are not computed in a tab")
        rows = -(-sum(outputs) // PANEL) * PANEL
        kind = [] if kinds == ["F32"] else [kinds[0].lower()]
        self._add(name, rows * found[0].row, rows, inputs, *kind)
        for part, tensor in zip(parts, found, strict=True):
            turn = self._turn if part.endswith(("attn_q", "attn_k")) else 0
            self._pieces.append(partial(self._panels, tensor, turn))

    def _taken(self, name: str) -> Tensor:
        self._left.remove(name)
        return self._file.tensors[name]

    def _add(self, name: str, size: int, *about: int | str) -> None:
        self._places[name] = self.size, *about
        self.size += -(-size // 16) * 16

    def _plain(self, tensors: list[Tensor]) -> Iterator[bytes]:
        found = b"".join(self._file.content(tensor, tensor.row) for tensor in tensors)
        yield found + bytes(-len(found) % 16)

    def _panels(self, tensor: Tensor, turn: int) -> Iterator[bytes]:
        """turn: the size of a head, if llama.cpp has permuted the rows of its heads."""
        size, whole = tensor.row, turn or PANEL
        step = whole * max(1, _PIECE // (whole * size))
        for begin in range(0, tensor.outputs, step):
            count = min(step, tensor.outputs - begin)
            read = self._file.content(tensor, count * size, begin * size)
            read += bytes(-count % PANEL * size)
            rows = [read[at : at + size] for at in range(0, len(read), size)]
            if turn:
                heads = range(0, count, turn)
                rows = [
                    rows[head + r] for head in heads for odd in (0, 1) for r in range(odd, turn, 2)
                ]
            yield bytes(panels(rows, _BLOCKS[tensor.kind]))


_OF_VOCABULARY = ("head", "embedding")


def _numbers_of(tensor: Tensor) -> int:
    return math.prod(tensor.shape)


def pack_gguf(file: str, name: str) -> bytes:
    """The packed file of a site. name and exceptions: see `PackedGguf`; also raises
    UnsupportedModel for a chat template that looks at more than roles.
    """
    with open(file, "rb") as content:
        packed = PackedGguf(GgufFile(reader(content)), name)
        words = {
            "tokenizer": json.dumps(packed.tokenizer, ensure_ascii=False),
            "between": packed.chat_text and worked_out(packed.chat_text),
        }
        return packed_file({**packed.header, **words}, b"".join(packed))
