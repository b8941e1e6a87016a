"""What is known about a model without its weights: its tokenizer, vocabulary and context. Does not
import torch.
"""

import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from core.browser.tokenizer import PlainTokenizer, byte_characters
from core.config import BUILTIN_FOLDER, BUILTIN_MODELS, SMOLLM2
from core.errors import UnsupportedModel
from core.torch_engine.models.names import is_gguf
from core.torch_engine.models.pretrained import (
    hub_answers,
    read_config,
    read_tokenizer,
    unreachable,
)
from core.torch_engine.models.weight_files import BadWeights
from core.workload.chat import encoded

MOST_CONTEXT = 2**31 - 1  # tokens, for a model whose config states no context


def is_tokenizer(files: Iterable[str]) -> bool:
    """Whether there is a tokenizer among the names of a model's files."""
    return any("token" in file or file.startswith("vocab") for file in files)


def longest_token(tokenizer: Any | None) -> int | None:
    """The most bytes of a text that one of its tokens can stand for: a text of more bytes than `n`
    times that has more than `n` tokens.

    None if the tokenizer does not imply such a number: some drop or merge any number of characters,
    mostly spaces. A text with characters that the tokenizer does not know is refused anyway and
    need not be considered.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if tokenizer is None or backend is None:
        return None
    made, names = json.loads(backend.to_str()), tokenizer.get_vocab()
    model = made["model"]
    normalizers = _parts(made["normalizer"])
    splits = _parts(made["pre_tokenizer"])
    of_bytes = any(part["type"] == "ByteLevel" for part in (*normalizers, *splits))
    alphabet = (
        byte_characters().values()
        if of_bytes
        else [f"<0x{byte:02X}>" for byte in range(256)]
        if model.get("byte_fallback")
        else []
    )
    unknown = model.get("unk_token")
    knows_all = bool(alphabet) and all(name in names for name in alphabet)
    refuses = unknown is not None and (unknown == tokenizer.unk_token or unknown not in names)
    if (
        model["type"] not in ("BPE", "WordLevel")
        or not (knows_all or refuses)
        or not all(_keeps_bytes(part) for part in normalizers)
        or not all(
            part["type"] in _SPLITTING and part.get("behavior") != "Removed" for part in splits
        )
        # these absorb adjacent spaces
        or any(added["lstrip"] or added["rstrip"] for added in made["added_tokens"])
    ):
        return None
    # a token's name has at least one byte for each byte that it stands for
    longest = max(len(name.encode()) for name in names)
    return longest * (_COMPOSED if any(part["type"] == "NFC" for part in normalizers) else 1)


_SPLITTING = {"ByteLevel", "Digits", "Metaspace", "Split"}
# no Unicode character in form NFC has another spelling of more than 3.5 times its bytes
_COMPOSED = 4


def _parts(stage: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a tokenizer's normalizer or pre-tokenizer, in order."""
    if stage is None:
        return []
    inner = stage.get("normalizers") or stage.get("pretokenizers")
    return [stage] if inner is None else [part for one in inner for part in _parts(one)]


def _keeps_bytes(normalizer: dict[str, Any]) -> bool:
    """Whether it never shortens a text, or, like NFC, by `_COMPOSED` at most."""
    if normalizer["type"] == "Replace":
        replaced = normalizer["pattern"].get("String")
        return replaced is not None and len(normalizer["content"].encode()) >= len(
            replaced.encode()
        )
    return normalizer["type"] in ("ByteLevel", "NFC", "Prepend")


class ModelDescription(NamedTuple):
    """What a workload or a simulated engine needs to know about a model. context: in tokens;
    context and layers are None if the model's config states none.
    """

    vocab_size: int
    context: int | None
    tokenizer: Any
    layers: int | None = None

    def count(self, text: str) -> int:
        """The number of tokens in a text."""
        ids = encoded(self.tokenizer, text)
        if ids is None:
            raise UnsupportedModel("The model's tokenizer cannot encode a text of the file.")
        return len(ids)


def describe_model(name: str) -> ModelDescription:
    """The description of a built-in model, a folder or a hub id; raises UnsupportedModel."""
    if name in BUILTIN_MODELS:
        return _describe_builtin(name)
    source = _source(name)
    offline = not os.path.exists(source) and not hub_answers()
    try:
        config = read_config(source, offline=offline).get_text_config()
        tokenizer = read_tokenizer(source, offline=offline)
    except (OSError, ValueError, KeyError) as error:
        if offline:
            raise unreachable(name) from None
        raise UnsupportedModel(
            f"The model {name!r} cannot be read: {' '.join(str(error).split())[:200]}"
        ) from None
    return ModelDescription(
        config.vocab_size,
        getattr(config, "max_position_embeddings", None),
        tokenizer,
        getattr(config, "num_hidden_layers", None),
    )


def _source(name: str) -> str:
    """See `prepared`, which is called only if there is something to prepare."""
    if name != SMOLLM2 and not is_gguf(name):
        return name
    from core.torch_engine.models.prepared import prepared

    try:
        return prepared(name)
    except (BadWeights, OSError) as error:
        raise UnsupportedModel(f"The model {name!r} cannot be read: {error}.") from None


def _describe_builtin(name: str) -> ModelDescription:
    """Done without transformers, which takes seconds to import and is not always installed."""
    folder = BUILTIN_FOLDER / name
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = PlainTokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
    context = config.get("max_position_embeddings", config.get("n_positions"))
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    return ModelDescription(config["vocab_size"], context, tokenizer, layers)
