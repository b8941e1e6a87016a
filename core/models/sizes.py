"""What of a model a workload must fit: vocabulary, context, and how many tokens a text is. Loads no weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from core.assets import ASSETS
from core.errors import UnsupportedModel


class Sizes(NamedTuple):
    vocab_size: int
    context: int
    count: Callable[[str], int]  # the tokens of a text


def sizes_of(name: str) -> Sizes:
    """Of a built-in model, a folder or a hub id; raises UnsupportedModel."""
    from transformers import AutoConfig, AutoTokenizer  # seconds to import: `--help` must not wait for them

    folder = ASSETS / "models" / name
    source = str(folder) if folder.is_dir() else name
    try:
        config = AutoConfig.from_pretrained(source).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"The model {name!r} cannot be read: {' '.join(str(error).split())[:200]}") from None
    return Sizes(config.vocab_size, config.max_position_embeddings, lambda text: len(tokenizer(text).input_ids))
