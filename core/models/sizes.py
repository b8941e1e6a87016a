"""What a workload, or a simulated engine, has to know of a model: vocabulary, context and tokenizer. Loads no weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from core.config import model_source
from core.errors import UnsupportedModel

MOST_CONTEXT = 2**31 - 1  # tokens, of a model whose config names no context


class Sizes(NamedTuple):
    """context: in tokens, None if the model's config names none."""

    vocab_size: int
    context: int | None
    tokenizer: Any

    def count(self, text: str) -> int:
        """The tokens of a text."""
        return len(self.tokenizer(text).input_ids)


def sizes_of(name: str) -> Sizes:
    """Of a built-in model, a folder or a hub id; raises UnsupportedModel."""
    from transformers import AutoConfig, AutoTokenizer  # seconds to import: `--help` must not wait for them

    source = model_source(name)
    try:
        config = AutoConfig.from_pretrained(source).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"The model {name!r} cannot be read: {' '.join(str(error).split())[:200]}") from None
    return Sizes(config.vocab_size, getattr(config, "max_position_embeddings", None), tokenizer)
