"""SmolLM2 in a browser's tab, its real JavaScript and WebAssembly in Node: its tokens are the
library's, its conversations the template's, its weights and its answers those of torch.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import unicodedata
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from core import Engine
from core.browser.chat import worked_out, written
from core.browser.executor import BrowserExecutor
from core.browser.tokenizer import PlainTokenizer
from core.config import BUILTIN_MODELS, SMOLLM2, EngineConfig, model_source
from core.engine.engine import EngineCore
from core.errors import UnsupportedModel
from core.recorders.texts import tokenizer_of
from core.torch_engine.models import gguf
from core.torch_engine.models.load import load_adapter
from core.torch_engine.models.names import PACKED, packed_smollm2
from core.workload.chat import chat_ids, chat_text, has_template
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from worlds.node_model import node_model
from worlds.own_models import tokenizer as small_tokenizer
from worlds.texts import texts

pytestmark = pytest.mark.slow


@pytest.fixture
def here(users_packed, monkeypatch):
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_packed)


@pytest.fixture(scope="module")
def model(users_packed, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFLIGHT_MODELS_DIR", users_packed)
        with node_model(SMOLLM2, tmp_path_factory.mktemp("packed")) as found:
            yield found


def engine(model, config=None):
    tokenizer = PlainTokenizer(model.tokenizer, partial(written, json.loads(model.between)))
    machine = {"device_name": "Node, WebAssembly", "versions": {}}
    return EngineCore(BrowserExecutor(model, machine), tokenizer, config)


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


@pytest.mark.parametrize("kind", gguf._STEPS)
def test_two_thousand_texts_have_the_librarys_tokens_by_each_kind_of_gguf(kind, here):
    """With these tokens, among which 21 bytes have none."""
    smollm2 = json.loads(file_of(SMOLLM2))
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": list(smollm2["model"]["vocab"]),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in smollm2["model"]["merges"]],
        "tokenizer.ggml.token_type": [3] * len(smollm2["added_tokens"]),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.bos_token_id": 1,
    }
    made = gguf.tokenizer_of(facts)
    library, ours = Tokenizer.from_str(json.dumps(made)), PlainTokenizer(made)
    newer = 0
    for text in ("\x04", *texts(2000)):
        composed = unicodedata.normalize("NFC", text)
        if kind == "qwen2" and library.normalizer.normalize_str(text) != composed:
            newer += 1  # the library knows no combining marks of Unicode 14, 74 characters
            continue
        expected = library.encode(text).ids
        assert ours(text)["input_ids"] == expected, text
        assert ours.decode(expected) == library.decode(expected, skip_special_tokens=False), text
    assert newer < 5


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
    between = worked_out(lambda said: chat_text(library, said))
    ours = PlainTokenizer(file_of(SMOLLM2), partial(written, between))
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


PACKED_SHA256 = "15a7cd37dc5d5c63ca169c6d7917ed303ee684f62b8154c0af4396d945cdb008"


def test_every_weight_is_torchs_to_the_bit(here):
    content = gzip.decompress(packed_smollm2().read_bytes())
    (length,) = struct.unpack("<I", content[:4])
    header, numbers = json.loads(content[4 : 4 + length]), content[4 + length :]

    def unpacked(name):
        at, outputs, inputs, *kind = header["tensors"][name]
        if not kind:
            return np.frombuffer(numbers, "<f4", outputs, at)
        size = {"q4_1": 160, "q8_0": 272}[kind[0]]
        count = outputs * inputs // 256
        blocks = np.frombuffer(numbers, "u1", count * size, at).reshape(outputs // 8, -1, size)

        def scales(first):
            found = np.ascontiguousarray(blocks[..., first : first + 16]).view("<f2")
            return found.astype(np.float32)[:, :, None, :]

        if kind == ["q8_0"]:
            of_8_bits = np.ascontiguousarray(blocks[..., 16:]).view("i1")
            q = of_8_bits.reshape(*blocks.shape[:2], 32, 8).astype(np.float32)
            w = q * scales(0)
        else:
            halves = blocks[..., 32:].reshape(*blocks.shape[:2], 16, 8)
            q = np.concatenate([halves & 15, halves >> 4], 2).astype(np.float32)
            w = q * scales(0) + scales(16)
        return w.reshape(outputs // 8, inputs, 8).transpose(0, 2, 1).reshape(outputs, inputs)

    at = "model.layers.{}."
    names = {"head": ["model.embed_tokens"], "norm": ["model.norm"]}
    for layer in range(header["sizes"]["layers"]):
        parts = {
            "norm": ["input_layernorm"],
            "mlp_norm": ["post_attention_layernorm"],
            "qkv": [f"self_attn.{part}_proj" for part in "qkv"],
            "out": ["self_attn.o_proj"],
            "up": ["mlp.gate_proj", "mlp.up_proj"],
            "down": ["mlp.down_proj"],
        }
        for name, of in parts.items():
            names[f"{layer}.{name}"] = [at.format(layer) + part for part in of]
    assert names.keys() == header["tensors"].keys()
    with safe_open(f"{model_source(SMOLLM2)}/model.safetensors", "numpy") as torchs:
        for name, parts in names.items():
            wanted = np.concatenate([torchs.get_tensor(f"{part}.weight") for part in parts])
            assert unpacked(name).tobytes() == wanted.tobytes(), name


def test_a_file_that_is_packed_otherwise_has_another_number(here):
    """Browsers keep it by `PACKED`, for ever."""
    content = gzip.decompress(packed_smollm2().read_bytes())
    assert (PACKED, hashlib.sha256(content).hexdigest()) == (1, PACKED_SHA256)


def asked(new=24):
    return Workload(
        Request(f"r{i}", messages=chat, arrival=i // 2, sampling=SamplingParams(new))
        for i, chat in enumerate(
            (
                [{"role": "user", "content": "What is the capital of France?"}],
                [
                    {"role": "system", "content": "You are a pirate."},
                    {"role": "user", "content": "Who are you?"},
                ],
                [
                    {"role": "user", "content": "Name a colour."},
                    {"role": "assistant", "content": "Blue<|im_end|>"},
                    {"role": "user", "content": "Another, and the number 2024."},
                ],
                [{"role": "user", "content": "日本語で答えて: 2 + 2?"}],
                [{"role": "user", "content": "Write a poem about \x04 rain.\n\n1."}],
            )
        )
    )


def sampled(trace):
    found = {}
    for event in trace.events:
        for s in event.sampled:
            found.setdefault(s.request, []).append((s.token_id, s.logprob, s.margin))
    return found


def test_chats_are_answered_as_torch_answers_them(here, model):
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=32)
    ours = engine(model, config).run(asked())
    theirs = Engine(*load_adapter(SMOLLM2, "cpu", "float32"), config).run(asked())
    assert ours.prompts == theirs.prompts and ours.header.model == theirs.header.model
    assert ours.texts.output == theirs.texts.output
    found, wanted = sampled(ours), sampled(theirs)
    assert found.keys() == wanted.keys()
    for request, facts in wanted.items():
        assert [f[0] for f in found[request]] == [f[0] for f in facts]
        for mine, other in zip(found[request], facts, strict=True):
            assert mine[1:] == pytest.approx(other[1:], abs=2e-4)


def test_alone_beside_others_and_in_chunks_an_answer_is_the_same_to_the_bit(model, monkeypatch):
    monkeypatch.setattr("core.browser.executor.round", lambda n, _: n, raising=False)
    limits = [
        EngineConfig("sequential"),
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=1024),
        EngineConfig(max_num_seqs=5, max_num_batched_tokens=1024),
        EngineConfig(max_num_seqs=3, max_num_batched_tokens=7),
        EngineConfig("static", max_num_seqs=4),
    ]
    alone, *others = (sampled(engine(model, config).run(asked(6))) for config in limits)
    assert len(alone) == 5
    for found in others:
        assert found == alone


def test_attention_weights_are_torchs(here, model):
    adapter, library = load_adapter(SMOLLM2, "cpu", "float32")
    ids = library("Why is the sky blue in summer?")["input_ids"]
    adapter.model.set_attn_implementation("eager")
    attentions = adapter.model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    executor = engine(model).executor
    for layer, head in ((0, 0), (17, 4), (29, 8)):
        ours = executor.attention(ids, layer, head)
        for row, other in zip(ours, attentions[layer][0, head].tolist(), strict=True):
            assert row == pytest.approx(other, abs=1e-4)
