"""SmolLM2 in a browser's tab: its tokens are the library's, its conversations the template's."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from core.browser.chat import worked_out, written
from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_MODELS, SMOLLM2, model_source
from core.errors import UnsupportedModel
from core.recorders.texts import tokenizer_of
from core.workload.chat import chat_ids, chat_text, has_template
from worlds.own_models import tokenizer as small_tokenizer
from worlds.texts import texts

pytestmark = pytest.mark.slow


@pytest.fixture
def here(users_models, monkeypatch):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)


def file_of(name: str) -> str:
    with open(f"{model_source(name)}/tokenizer.json", encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("name", (*BUILTIN_MODELS, SMOLLM2))
def test_two_thousand_texts_have_the_librarys_tokens(name, here):
    library, ours = Tokenizer.from_str(file_of(name)), PlainTokenizer(file_of(name))
    refused = 0
    for text in texts(2000):
        try:
            expected = library.encode(text, add_special_tokens=False).ids
        except Exception:  # a character that has no token
            refused += 1
            with pytest.raises(KeyError):
                ours(text)
            continue
        assert ours(text)["input_ids"] == expected, text
        assert ours.decode(expected) == library.decode(expected, skip_special_tokens=False), text
    assert (refused > 0) == (name == "shakespeare-char")


def conversations():
    said = texts(60, seed=2)
    for at in range(0, 60, 6):
        a, b, c, d, e, f = said[at : at + 6]
        yield [("user", a)]
        yield [("system", b), ("user", c)]
        yield [("user", a), ("assistant", d), ("user", "")]
        yield [("system", e), ("user", f), ("assistant", " x\n"), ("user", b), ("assistant", c)]
        yield [("assistant", a), ("system", b), ("system", c), ("user", d)]


def test_a_conversation_is_the_servers_to_the_token(here):
    library = tokenizer_of(SMOLLM2)
    ours = PlainTokenizer(file_of(SMOLLM2), worked_out(lambda said: chat_text(library, said)))
    for said in conversations():
        messages = [{"role": role, "content": content} for role, content in said]
        text = chat_text(ours, messages)
        assert text == chat_text(library, messages)
        assert chat_ids(ours, text) == chat_ids(library, text)


def test_a_template_that_looks_at_what_is_said_is_refused():
    tokens = small_tokenizer(chat=True)
    assert has_template(tokens)
    between = worked_out(lambda said: chat_text(tokens, said))
    assert written(between, [{"role": "user", "content": "a"}]) == "<|user|>a<|end|><|assistant|>"
    tokens.chat_template = tokens.chat_template.replace("m['content']", "m['content'] | trim")
    with pytest.raises(UnsupportedModel, match="more than roles"):
        worked_out(lambda said: chat_text(tokens, said))
