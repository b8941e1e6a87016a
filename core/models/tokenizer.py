"""What is known about a model without its weights: its tokenizer, vocabulary and context. Does not import torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_FOLDER, BUILTIN_MODELS, model_source
from core.errors import InvalidRequest, UnsupportedModel, first_sentence

MOST_CONTEXT = 2**31 - 1  # tokens, for a model whose config states no context


def local_tokenizer(name: str) -> Any | None:
    """The tokenizer of a built-in model or a local folder; None where there is none."""
    source = model_source(name)
    if not os.path.isdir(source) or not has_tokenizer(source):
        return None
    from transformers import AutoTokenizer  # seconds to import

    try:
        return AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    except Exception:  # a folder without a model fails in many ways
        return None


def has_tokenizer(folder: str) -> bool:
    """Whether a folder contains tokenizer files."""
    return is_tokenizer(os.listdir(folder))


def is_tokenizer(files: Iterable[str]) -> bool:
    """Whether there is a tokenizer among the names of a model's files."""
    return any("token" in file or file.startswith("vocab") for file in files)


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """A conversation as the tokenizer's own template writes it, up to where the answer begins; raises InvalidRequest if the template refuses it."""
    try:
        ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True, return_dict=False)
    except Exception as error:  # templates are third-party programs
        raise InvalidRequest(f"The model's chat template refuses these messages: {first_sentence(error)}.") from None
    return tuple(ids)


class ModelDescription(NamedTuple):
    """What a workload or a simulated engine has to know about a model. context: in tokens, None if the model's config states none."""

    vocab_size: int
    context: int | None
    tokenizer: Any

    def count(self, text: str) -> int:
        """The number of tokens in a text."""
        return len(self.tokenizer(text)["input_ids"])


def describe_model(name: str) -> ModelDescription:
    """The description of a built-in model, a folder or a hub id; raises UnsupportedModel."""
    if name in BUILTIN_MODELS:
        return _describe_builtin(name)
    from transformers import AutoConfig, AutoTokenizer  # seconds to import: `--help` must not wait for them

    source = model_source(name)
    try:
        config = AutoConfig.from_pretrained(source).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"The model {name!r} cannot be read: {' '.join(str(error).split())[:200]}") from None
    return ModelDescription(config.vocab_size, getattr(config, "max_position_embeddings", None), tokenizer)


def _describe_builtin(name: str) -> ModelDescription:
    """Without transformers, which takes seconds to import and is not everywhere."""
    folder = BUILTIN_FOLDER / name
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokenizer = PlainTokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return ModelDescription(config["vocab_size"], config.get("max_position_embeddings", config.get("n_positions")), tokenizer)
