"""What a model's folder contains, from the headers of its safetensors files: no weights are loaded.
A pickle is never opened, since opening one can run code.
"""

import json
import math
import os
from collections import Counter
from typing import Any

from core.errors import malformed, shown

_ONE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_MOST_HEADER = 100 * 2**20  # bytes, as safetensors itself allows
_MOST_TENSORS = 2**18  # the largest mixtures of experts have half of that; each takes time
_MOST_DIMENSIONS = 64  # as torch allows: longer products of sizes take hours
_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8",
    "U8": "uint8",
    "I8": "int8",
}

WANTED = (
    _ONE,
    _INDEX,
    "model-*.safetensors",
    "*.json",
    "*.jinja",
    "*.model",
    "merges.txt",
    "vocab.txt",
)
"""What is fetched of a model on the hub: no pickles, and no code."""


class BadWeights(Exception):
    """Why weights cannot be read; the message completes "it cannot be loaded: …"."""


def stored_weights(folder: str, layers: int = 0) -> tuple[str, ...]:
    """The number formats of the weights in a folder, the one with the most values first; raises
    BadWeights if weights are missing, cut, or can run code. layers: of the model, which would be
    made in full before weights are missed.
    """
    values, tensors = Counter[str](), 0
    for name in _weight_files(folder):
        for tensor in _header(os.path.join(folder, name), name).values():
            dtype = _NAMES.get(tensor["dtype"], tensor["dtype"].lower()[:20])
            values[dtype] += math.prod(tensor["shape"])
            tensors += 1
    if tensors > _MOST_TENSORS:
        raise BadWeights(f"{tensors:,} tensors are stored, of which at most {_MOST_TENSORS:,} load")
    if tensors < layers:
        raise BadWeights(
            f"its config names {layers:,} layers, but only {tensors:,} tensors are stored"
        )
    return tuple(dtype for dtype, _ in values.most_common())


def _weight_files(folder: str) -> list[str]:
    if os.path.isfile(os.path.join(folder, _ONE)):
        return [_ONE]
    index = os.path.join(folder, _INDEX)
    if os.path.isfile(index):
        try:
            with open(index, encoding="utf-8") as file:
                told = json.load(file)
            dict(told["metadata"])  # transformers needs it
            names = sorted({str(name) for name in told["weight_map"].values()})
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise BadWeights(f"its {_INDEX} is damaged: {malformed(error)}") from None
        here = {name for name in names if os.path.basename(name) == name}
        absent = [n for n in names if n not in here or not os.path.isfile(os.path.join(folder, n))]
        if absent:
            raise BadWeights(
                f"{len(absent)} of its {len(names)} weight files are missing, such as"
                f" {shown(absent[0])}"
            )
        return names
    pickled = sorted(name for name in os.listdir(folder) if name.endswith(_PICKLES))
    if pickled:
        raise BadWeights(
            f"its weights are only in {shown(pickled[0])}, a pickle, which can run code when it is"
            " opened (save it as safetensors)"
        )
    raise BadWeights(f"there is no {_ONE} in that folder")


def _header(path: str, name: str) -> dict[str, Any]:
    """The header of a file without metadata; checks that all tensors are there."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(size - 8, _MOST_HEADER):
                raise ValueError
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        if any(
            len(tensor["data_offsets"]) != 2
            or not isinstance(tensor["dtype"], str)
            or len(tensor["shape"]) > _MOST_DIMENSIONS
            or not all(
                isinstance(number, int) and number < 2**63
                for number in (*tensor["data_offsets"], *tensor["shape"])
            )
            for tensor in header.values()
        ):
            raise ValueError
        ends = [tensor["data_offsets"][1] for tensor in header.values()]
        whole = 8 + length + max(ends, default=0)
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise BadWeights(f"{name} is damaged: its header cannot be read") from None
    if size < whole:
        raise BadWeights(f"{name} is cut short: it has {size:,} of {whole:,} bytes")
    return header
