"""Which tokens of a prompt are what somebody said, whatever they said."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from core.config import SMOLLM2
from core.recorders.texts import tokenizer_of
from core.trace.detokenize import pieces
from core.workload.chat import chat_ids, chat_text
from core.workload.request import Message
from visualizer.documents.replay import said
from worlds.own_models import tokenizer

ROLES = ("system", "user", "assistant")
SAYINGS = (
    "a",
    "I",
    "user",
    "assistant",
    "system",
    "assistant\nuser",
    "You are a helpful AI assistant named SmolLM",
    "👋🏽",
    "é 🎉 ü",
    "  two spaces before, and a line after\n",
    "What is 2 + 2?\n\nAnswer with a number.",
)


def of(tokens, messages: Sequence[Message]) -> list[str | None]:
    prompt = pieces(tokens, chat_ids(tokens, chat_text(tokens, messages)))
    shown = said(prompt, messages)
    assert len(shown) == len(prompt)
    assert all(one in (None, piece) for one, piece in zip(shown, prompt, strict=True))
    return shown


def parts(shown: list[str | None]) -> list[str]:
    """The texts between the template's tokens, without the blanks around them."""
    text = "".join("\0" if piece is None else piece for piece in shown)
    return [part.strip() for part in text.split("\0") if part]


def conversations() -> list[tuple[Message, ...]]:
    alone = [[("user", text)] for text in SAYINGS]
    after = [[("system", text), ("user", "user")] for text in SAYINGS]
    turns = [
        [("user", text), ("assistant", other), ("user", text)]
        for text, other in zip(SAYINGS, SAYINGS[1:] + SAYINGS[:1], strict=True)
    ]
    longer = [[(ROLES[1 + i % 2], text) for i, text in enumerate(SAYINGS)]]
    return [
        tuple({"role": role, "content": content} for role, content in one)
        for one in alone + after + turns + longer
    ]


def check(tokens) -> None:
    for messages in conversations():
        expected = [message["content"].strip() for message in messages]
        assert parts(of(tokens, messages)) == expected, messages


@cache
def small():
    return tokenizer(chat=True)


def test_of_a_conversation_every_text_is_found_and_nothing_of_the_template():
    check(small())


@pytest.mark.slow
def test_also_in_what_a_real_models_template_writes(users_models, monkeypatch):
    """SmolLM2's adds a system prompt of its own, which nobody said."""
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)
    tokens = tokenizer_of(SMOLLM2)
    check(tokens)
    empty(tokens)


def empty(tokens) -> None:
    """A text of blanks alone is found nowhere, and those around it are."""
    blank = {"role": "user", "content": " \n"}
    last = {"role": "user", "content": "Well?"}
    assert parts(of(tokens, [blank])) == []
    assert parts(of(tokens, [blank, {"role": "assistant", "content": "?"}, last])) == ["?", "Well?"]


def test_nobody_said_an_empty_text():
    empty(small())


def test_a_template_may_have_another_word_for_a_role():
    tokens = tokenizer(chat=True)
    tokens.chat_template = tokens.chat_template.replace(
        "m['role']", "{'user': 'user', 'assistant': 'model'}[m['role']]"
    )
    messages = [
        {"role": "user", "content": "Who are you?"},
        {"role": "assistant", "content": "I am an assistant."},
    ]
    assert parts(of(tokens, messages)) == ["Who are you?", "I am an assistant."]


def test_where_a_template_changes_a_text_all_pieces_are_shown():
    tokens = tokenizer(chat=True)
    tokens.chat_template = tokens.chat_template.replace("m['content']", "m['content'] | upper")
    shown = of(tokens, [{"role": "user", "content": "To be"}])
    assert "".join(shown) == "<|user|>TO BE<|end|><|assistant|>"


def test_white_space_between_the_template_and_a_message_is_the_templates() -> None:
    shown = said(["user", "\n", "Hi", "!"], [{"role": "user", "content": "Hi!"}])
    assert shown == [None, None, "Hi", "!"]
