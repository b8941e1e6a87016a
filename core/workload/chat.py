"""Messages as the text and the tokens that a model reads, written by its chat template."""

import sys
from collections.abc import Sequence
from typing import Any

from core.errors import InvalidRequest, first_sentence
from core.workload.request import Message
from core.workload.template import TemplateHere, TemplateProcess

_TEMPLATES = TemplateHere() if sys.platform == "emscripten" else TemplateProcess()


def has_template(tokenizer: Any) -> bool:
    """Whether a model's tokenizer has a chat template; the built-in models' have none."""
    return bool(getattr(tokenizer, "chat_template", None))


def chat_text(tokenizer: Any, messages: Sequence[Message]) -> str:
    """A conversation as the tokenizer's own template writes it, up to where the answer begins.
    Raises InvalidRequest if there is no template, or if the template refuses the conversation or
    takes too much time or memory. A tokenizer that writes conversations without a template has a
    method `chat_text`.
    """
    if own := getattr(tokenizer, "chat_text", None):
        return str(own(messages))
    if not has_template(tokenizer):
        raise InvalidRequest(
            "the model has no chat template, so its prompts must be text.", param="messages"
        )
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # there are several, and none is the default
        raise InvalidRequest(
            f"the model's chat template cannot be told: {first_sentence(error)}.", param="messages"
        ) from None
    return template_text(template, messages, **tokenizer.special_tokens_map)


def template_text(template: str, messages: Sequence[Message], **tokens: Any) -> str:
    """The text that a template writes for messages. tokens: special tokens it may use."""
    return _TEMPLATES.text(
        template,
        {
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            **tokens,
        },
    )


def chat_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """The token ids of a conversation as `chat_text` gives it: the template has written the special
    tokens already. Raises InvalidRequest if the tokenizer cannot encode it, or makes no tokens of
    it.
    """
    ids = encoded(tokenizer, text, add_special_tokens=False)
    if not ids:
        raise InvalidRequest("the tokenizer cannot encode the conversation.", param="messages")
    return ids


def encoded(tokenizer: Any, text: str, **options: Any) -> tuple[int, ...] | None:
    """The token ids of a text, or None if the tokenizer fails on it. The tokenizers library reports
    unknown characters by bare exceptions, and a pattern that searches for too long by a panic,
    which is not an Exception.
    """
    try:
        return tuple(tokenizer(text, **options)["input_ids"])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None
