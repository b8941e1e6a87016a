"""Loading a model by name: what is wrong with it is said in one sentence, soon, and no code that
comes with it is run.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from core import Engine, EngineConfig, Workload
from core.config import BUILTIN_FOLDER, BUILTIN_MODELS
from core.errors import UnsupportedModel
from core.recorders.texts import named_tokenizer, tokenizer_of
from core.torch_engine.models import forecast as foreseeing
from core.torch_engine.models import load as models
from core.torch_engine.models import pretrained, weight_files
from core.torch_engine.models.forecast import forecast
from core.torch_engine.models.load import load, load_adapter, resolve_device, resolve_dtype
from core.torch_engine.models.names import public_name
from core.torch_engine.models.probe import _agree, probe
from core.torch_engine.models.tokenizer import describe_model
from core.torch_engine.models.watch import ProgressBar
from worlds.families import BY_NAME, Family, generate, requests

CPU, ROOT = torch.device("cpu"), Path(__file__).resolve().parents[2]


def refusal(name) -> str:
    """The sentence that loading `name` ends with."""
    with pytest.raises(UnsupportedModel) as caught:
        load(str(name), CPU, torch.float32)
    sentence = str(caught.value)
    assert sentence.endswith(".") and ". " not in sentence and "\n" not in sentence
    assert all(builtin in sentence for builtin in BUILTIN_MODELS)
    assert len(sentence) < 500
    return sentence


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder as `save_pretrained` leaves it, without a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    BY_NAME["llama"].build().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it to spoil."""
    return shutil.copytree(saved, tmp_path / "tiny")


def edit_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_local_folder_runs_without_a_tokenizer(saved):
    model, tokenizer = load(str(saved), CPU, torch.float32)
    assert tokenizer is None and not model.training
    asked = requests()
    model.generation_config.eos_token_id = None
    trace = Engine(probe(model, "tiny"), None, EngineConfig()).run(Workload(asked))
    assert trace.outputs == {r.id: generate(model, r) for r in asked}


def test_clients_are_told_no_path(saved):
    named = (str(saved), f"{saved}/", "nobody/has-this-model")
    assert [*map(public_name, named)] == ["tiny", "tiny", "nobody/has-this-model"]


@pytest.mark.parametrize("name", ["nobody/has-this-model", "gpt-no-such-model"])
def test_unknown_name_without_a_network(monkeypatch, name):
    monkeypatch.setattr(pretrained, "hub_answers", lambda: False)
    assert "neither built in" in refusal(name) and "hub cannot be reached" in refusal(name)


@pytest.mark.slow
def test_what_a_simulation_needs_of_a_model_comes_from_the_hub(tmp_path):
    """From a hub on this machine: it has the files of a built-in model under another name."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            owner, _, name = self.path.partition("/resolve/main/")
            file = BUILTIN_FOLDER / "shakespeare-bpe" / name
            found = owner in ("", "/") or (owner == "/someone/verse" and file.is_file())
            data = file.read_bytes() if found and name else b""
            self.send_response(200 if found else 404)
            self.send_header("ETag", f'"{len(data)}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    asks = (
        "from core.torch_engine.models.tokenizer import describe_model as d;"
        "m = d('someone/verse'); print(m.vocab_size, m.context, m.layers, m.count('To be'))"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        here = {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(tmp_path),
            "NO_PROXY": "*",
        }
        done = subprocess.run(
            [sys.executable, "-c", asks],
            env=os.environ | here,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        hub.shutdown()
    known = describe_model("shakespeare-bpe")
    sizes = known.vocab_size, known.context, known.layers, known.count("To be")
    assert done.stdout.split() == list(map(str, sizes)), done.stderr


def test_of_a_model_on_the_hub_no_code_is_fetched_and_its_weights_last(saved, monkeypatch):
    """What is told of the progress are bytes of all that is needed."""
    own = {name: (saved / name).stat().st_size for name in os.listdir(saved)}
    others = {"a.py": 3, "pytorch_model.bin": 5, "onnx/config.json": 7, "vocab.txt": None}
    on_hub = {"model-00001-of-00002.safetensors": 9, **own, **others}
    fetched, told = [], []

    def info(source, files_metadata, timeout):
        assert source == "some/body" and files_metadata
        files = [SimpleNamespace(rfilename=name, size=size) for name, size in on_hub.items()]
        return SimpleNamespace(siblings=files)

    def download(source, name, tqdm_class):
        fetched.append(name)
        begun = 10 if name == "model.safetensors" else 0
        with tqdm_class(initial=begun) as bar:
            bar.update((on_hub[name] or 0) - begun)
        return str(saved / name)

    def watch(phase, done, total):
        if phase == "fetch":
            told.append((done, total))

    monkeypatch.setattr(pretrained, "hub_answers", lambda: True)
    monkeypatch.setattr(models, "HfApi", lambda: SimpleNamespace(model_info=info))
    monkeypatch.setattr(models, "hf_hub_download", download)
    model, _ = load("some/body", CPU, torch.float32, watch)
    assert model.config.model_type == "llama"
    assert fetched == ["config.json", "generation_config.json", "vocab.txt", "model.safetensors"]
    small = own["config.json"], own["generation_config.json"]
    before, total = sum(small), sum(own.values())
    done = [0, small[0], small[0], before, before, before, before + 10, total]
    assert told == [(number, total) for number in done]
    # what is known before: the bytes to come, and the number format that the config names
    monkeypatch.setattr(foreseeing, "hf_hub_download", lambda source, name: str(saved / name))
    monkeypatch.setattr(
        foreseeing, "read_config", lambda source, offline: pretrained.read_config(str(saved))
    )
    known = forecast("some/body")
    assert (known.download, known.stored, known.has_tokenizer) == (total, ("float32",), True)
    assert known.parameters == sum(p.numel() for p in model.parameters())
    del on_hub["model.safetensors"], on_hub["model-00001-of-00002.safetensors"]
    assert "it has no weights as safetensors, and a pickle" in refusal("some/body")
    del on_hub["config.json"]
    assert "it has no config.json;" in refusal("some/body")


def test_the_hub_is_asked_once_and_not_for_long(monkeypatch):
    """A network that swallows everything: one question with a time limit, none of the client's own
    retries.
    """
    asked = []

    class Session:
        def head(self, url, timeout):
            asked.append(timeout)
            raise OSError("timed out")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    refusal("nobody/has-this-model")
    assert asked == [pretrained.HUB_TIMEOUT] and pretrained.HUB_TIMEOUT <= 5


@pytest.mark.parametrize(
    "name", ["", "not a name!", "a/b/c", "x" * 5000, "nul\0byte", "../..", "."]
)
def test_names_that_are_none(monkeypatch, name):
    monkeypatch.setattr(pretrained, "hub_answers", lambda: False)
    refusal(name)


def test_a_folder_that_is_no_model(tmp_path):
    assert "no config.json" in refusal(tmp_path)


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "it is no GGUF file, or not a whole one;" in refusal(tmp_path / "model.gguf")
    (tmp_path / "model.bin").write_bytes(b"GGUF")
    assert "no config.json" in refusal(tmp_path / "model.bin")
    assert "there is no such file" in refusal(tmp_path / "other.gguf")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"model_type": "no-such-type"}', "\x00\x01"]
)
def test_a_damaged_config(folder, text):
    (folder / "config.json").write_text(text)
    assert "cannot be loaded" in refusal(folder)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"hidden_act": "no such"}, "it has no 'no such'"),
        ({"num_attention_heads": 0}, "its config contradicts itself: integer modulo by zero"),
        ({"num_labels": 10**9}, "its config names 1000000000 labels"),  # a table of 16 GB
        ({"text_config": {"num_labels": 10_000}}, "its config names 10000 labels"),
        ({"eos_token_id": [0] * 700_000}, "its config is larger than 2 MiB"),
    ],
)
def test_a_config_that_nothing_can_be_made_of_is_refused_in_more_than_a_word(folder, fields, why):
    edit_config(folder, **fields)
    assert f"cannot be loaded: {why};" in refusal(folder)


@pytest.mark.parametrize(
    "fields", [{"num_attention_heads": 0}, {"num_hidden_layers": "2"}, {"dtype": "os.system"}]
)
def test_a_config_that_contradicts_itself_is_refused_without_weights_too(folder, fields):
    with_step(folder, "normalizer", None)
    describe_model(str(folder))
    edit_config(folder, **fields)
    with pytest.raises(UnsupportedModel, match="cannot be read: its config contradicts itself"):
        describe_model(str(folder))


def test_a_model_for_which_there_is_no_memory_is_refused_by_what_is_lacking(folder):
    edit_config(folder, vocab_size=2**44)
    assert "cannot be loaded: DefaultCPUAllocator: can't allocate memory" in refusal(folder)


def test_a_context_beyond_all_numbers_is_one_that_a_tensor_can_number(folder):
    edit_config(folder, max_position_embeddings=10**30)
    assert load_adapter(str(folder), "cpu")[0].max_model_len == 2**31 - 1


def test_damaged_weights(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded" in refusal(folder)
    path.write_bytes(b"\xff" * 100)
    assert "cannot be loaded" in refusal(folder)
    path.unlink()
    assert "cannot be loaded" in refusal(folder)


def test_more_than_any_model_has_is_refused_before_it_takes_minutes(folder, monkeypatch):
    stored = len(load(str(folder), CPU, torch.float32)[0].state_dict())
    monkeypatch.setattr(weight_files, "_MOST_TENSORS", stored)
    load(str(folder), CPU, torch.float32)
    monkeypatch.setattr(weight_files, "_MOST_TENSORS", stored - 1)
    assert f"{stored} tensors are stored, of which at most {stored - 1} load" in refusal(folder)
    shutil.copy(BUILTIN_FOLDER / "shakespeare-char" / "tokenizer.json", folder)
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    one = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] = [
        {"id": 65 + i, "content": f"<{i}>", "special": True, **one} for i in range(3)
    ]
    path.write_text(json.dumps(data))
    monkeypatch.setattr(weight_files, "_MOST_TENSORS", stored)
    monkeypatch.setattr(pretrained, "_MOST_ADDED", 3)
    assert len(load(str(folder), CPU, torch.float32)[1].added_tokens_decoder) == 3
    monkeypatch.setattr(pretrained, "_MOST_ADDED", 2)
    assert "its tokenizer.json adds 3 tokens, of 2 at most" in refusal(folder)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"shape": None},
        {"shape": ["a", 2]},
        {"shape": [2**63, 1]},
        {"shape": [1] * 65},
        {"dtype": ["F32"]},
        {"data_offsets": [0]},
        {"data_offsets": [0, 4.0]},
    ],
)
def test_weights_whose_header_is_damaged(folder, otherwise):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    next(of for name, of in header.items() if name != "__metadata__").update(otherwise)
    told = json.dumps(header).encode()
    path.write_bytes(len(told).to_bytes(8, "little") + told + whole[8 + length :])
    assert "model.safetensors is damaged: its header cannot be read" in refusal(folder)


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({"weight_map": {}}, "it has no 'metadata'"),
        ({"metadata": {}}, "it has no 'weight_map'"),
        ({"metadata": 5, "weight_map": {}}, "a value is of the wrong kind"),
    ],
)
def test_an_index_of_weights_that_lacks_a_part_is_refused_by_its_name(folder, index, why):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"its model.safetensors.index.json is damaged: {why}" in refusal(folder)


def test_missing_weights_are_not_made_up(folder):
    edit_config(folder, num_hidden_layers=3)
    assert "of its weights are missing" in refusal(folder)
    edit_config(folder, num_hidden_layers=10**7)
    assert "its config names 10,000,000 layers, but only" in refusal(folder)


def test_weights_of_another_shape(folder):
    edit_config(folder, intermediate_size=64)
    assert "of another shape, such as model.layers.0.mlp.down_proj.weight;" in refusal(folder)


def test_a_damaged_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert "cannot be loaded" in refusal(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}'),
        ("tokenizer_config.json", "[1]"),
        (  # tokenizers panics
            "tokenizer.json",
            '{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "model":'
            ' {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
        ),
    ],
)
@pytest.mark.parametrize("read", [describe_model, named_tokenizer])
def test_a_tokenizer_that_contradicts_itself_is_refused(folder, read, file, content):
    (folder / file).write_text(content)
    with pytest.raises(UnsupportedModel, match="its tokenizer contradicts itself"):
        read(str(folder))


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_text_that_would_fill_the_memory_is_refused_unread(folder, file):
    """A sparse file takes no room on the disk."""
    with_step(folder, "normalizer", None)
    describe_model(str(folder))
    with open(folder / file, "ab") as grown:
        grown.truncate(128 * 2**20 + 1)
    with pytest.raises(UnsupportedModel, match=f"its {file} is larger than 128 MiB"):
        describe_model(str(folder))


def _replaced(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def with_step(folder, stage, step):
    """The folder with a built-in model's tokenizer, one stage of which is another."""
    built = BUILTIN_FOLDER / "shakespeare-bpe"
    shutil.copy(built / "tokenizer_config.json", folder)
    made = json.loads((built / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(made | {stage: step}))


_THRICE = [_replaced({"String": "a"}, 5 * "a")] * 3  # 125 letters of one


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        ("normalizer", {"type": "Sequence", "normalizers": _THRICE}),
        ("normalizer", _replaced({"Regex": "."}, 65 * "a")),
        ("normalizer", {"type": "Prepend", "prepend": 65 * "a"}),
        ("decoder", {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": _THRICE}]}),
        (
            "post_processor",
            {
                "type": "TemplateProcessing",
                "single": 65 * [{"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
                "special_tokens": {},
            },
        ),
    ],
)
@pytest.mark.parametrize("read", [describe_model, named_tokenizer])
def test_a_tokenizer_that_makes_much_of_a_letter_is_refused(folder, read, stage, step):
    with_step(folder, stage, None)
    read(str(folder))
    with_step(folder, stage, step)
    with pytest.raises(UnsupportedModel, match="could make a text more than 64 times as long"):
        read(str(folder))


@pytest.mark.parametrize("content", [64 * "a", "", 128 * "a"])
def test_a_tokenizer_may_lengthen_what_it_replaces(folder, content):
    with_step(
        folder, "normalizer", _replaced({"String": "ab" if content > 64 * "a" else "a"}, content)
    )
    assert describe_model(str(folder)).tokenizer


DOORS = {
    "load": lambda folder: load(folder, CPU, torch.float32),
    "forecast": forecast,
    "describe_model": describe_model,
    "named_tokenizer": named_tokenizer,
    "tokenizer_of": tokenizer_of,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model_type", ["llama", "mine"])
def test_code_in_a_folder_is_not_run(folder, tmp_path, model_type, door, monkeypatch):
    proof = tmp_path / "ran"
    (folder / "mine.py").write_text(
        f"open({str(proof)!r}, 'w')\nfrom transformers import LlamaConfig as C, LlamaForCausalLM"
        " as M\n"
    )
    edit_config(
        folder,
        model_type=model_type,
        auto_map={"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"},
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["mine.C", None]}})
    )
    # as a file on standard input would answer
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(UnsupportedModel):
        DOORS[door](str(folder))
    assert not proof.exists()


def test_code_alone_is_refused(folder):
    (folder / "mine.py").write_text("")
    edit_config(
        folder,
        model_type="mine",
        auto_map={"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"},
    )
    assert "cannot be loaded" in refusal(folder)


def test_what_is_no_causal_language_model(tmp_path):
    config = T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=50)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    assert "a t5 model is no causal language model" in refusal(tmp_path / "t5")


def test_refused_architectures_keep_their_name(tmp_path):
    Family(
        "bloom", "", {"n_head": 4, "n_layer": 2, "num_key_value_heads": ...}
    ).build().save_pretrained(tmp_path / "b")
    with pytest.raises(
        UnsupportedModel, match=r"b \(bloom\) cannot be run in packed batches: it adds ALiBi"
    ):
        Engine.from_pretrained(str(tmp_path / "b"), device="cpu")


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "", "meta", "cpu:x", "hpu"])
def test_unknown_device(device):
    with pytest.raises(UnsupportedModel, match="There is no device") as caught:
        resolve_device(device)
    assert re.search(r"\w[)']?\.$", str(caught.value)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float33", "int8", "", "nn", "float8_e4m3fn", torch.int64, None])
def test_unknown_dtype(dtype):
    with pytest.raises(UnsupportedModel, match="There is no floating-point type"):
        resolve_dtype(dtype, CPU)


def test_defaults_on_cpu():
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("bfloat16", CPU) == torch.bfloat16
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((12, 0), torch.bfloat16)],
)
def test_the_default_on_a_gpu_is_the_short_format_that_it_has(monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve_dtype("auto", torch.device("cuda")) == dtype


def test_from_pretrained_checks_device_and_dtype_before_it_loads(monkeypatch):
    monkeypatch.setattr(models, "load", lambda *args: pytest.fail("loaded"))
    with pytest.raises(UnsupportedModel, match="device"):
        Engine.from_pretrained("shakespeare-char", device="tpu")
    with pytest.raises(UnsupportedModel, match="float"):
        Engine.from_pretrained("shakespeare-char", device="cpu", dtype="int4")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ([-torch.inf, torch.nan, 1, 2], [-torch.inf, torch.nan, 1, 2], True),
        ([-torch.inf, 0, 1e-4], [-torch.inf, 0, 0], False),  # the others are all alike
        ([5, 0, 1], [-torch.inf, 0, 1], False),
        ([torch.inf, 0, 1], [-torch.inf, 0, 1], False),
    ],
)
def test_the_probe_compares_what_is_not_finite(mine, theirs, same, dtype):
    assert _agree(torch.tensor(mine, dtype=dtype), torch.tensor(theirs, dtype=dtype)) == same


def test_probe_leaves_dropout_off():
    model = BY_NAME["gpt2"].build().train()
    adapter = probe(model, "gpt2")
    assert not model.training and adapter.name == "gpt2"


@pytest.mark.parametrize(
    ("given", "ids"),
    [([5, 9], {5, 9}), (9, {9}), (None, {2}), ([5, [9], "9", None], {5}), ({}, set())],
)
def test_every_end_token_of_a_model_counts(given, ids):
    """Those that generation would stop at, or else the config's."""
    model = BY_NAME["gpt2"].build()
    model.generation_config.eos_token_id = given
    assert probe(model, "gpt2").eos_token_ids == ids


@pytest.mark.parametrize(
    ("cuda", "mps", "taken"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_cuda_then_mps_then_cpu(monkeypatch, cuda: bool, mps: bool, taken: str):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert resolve_device("auto").type == taken


def test_mps_runs_in_float32_and_has_no_float64():
    assert resolve_dtype("auto", torch.device("mps")) == torch.float32
    with pytest.raises(UnsupportedModel, match="MPS computes nothing in float64"):
        resolve_dtype("float64", torch.device("mps"))


# -- a model that is refused -----------------------------------------------------------------------


def _like_llama(auto, model_type="llama"):
    sizes = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    return auto.from_config(CONFIG_MAPPING[model_type](**sizes, pad_token_id=0)).train()


@pytest.mark.parametrize(
    ("auto", "model_type"),
    [
        (AutoModel, "llama"),
        (AutoModelForSequenceClassification, "llama"),
        (AutoModelForMaskedLM, "bert"),
    ],
)
def test_a_model_without_a_language_head_is_refused(auto, model_type):
    with pytest.raises(
        UnsupportedModel,
        match=r"^\w+ cannot be run in packed batches: it has no language-model head\.$",
    ):
        probe(_like_llama(auto, model_type))


def test_a_model_that_is_refused_is_left_as_it_was():
    model = BY_NAME["llama"].build().train()
    model.model.layers[0].eval()
    attention, breaks = (
        model.config._attn_implementation,
        model.model.layers[1].register_forward_hook(lambda *_: 1 / 0),
    )
    modes = [module.training for module in model.modules()]
    with pytest.raises(UnsupportedModel):
        probe(model)
    breaks.remove()
    assert [module.training for module in model.modules()] == modes
    assert model.config._attn_implementation == attention
    assert "warn_if_padding_and_no_attention_mask" not in {
        name for m in model.modules() for name in vars(m)
    }
    model.eval()
    assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_a_config_that_insists_on_a_pad_token_is_run():
    sizes = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    tokens = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    }
    model = AutoModelForCausalLM.from_config(
        CONFIG_MAPPING["modernbert-decoder"](**sizes, **tokens)
    )
    adapter = probe(model)
    assert (
        adapter.plug == "attention" and adapter.windows[1] == 64 and model.config.pad_token_id == 0
    )


# -- who watches -----------------------------------------------------------------------------------


@pytest.fixture
def bars():
    """transformers' bars are switched on, as they are for whoever imports it; the rest of the tests
    has them off.
    """
    were_on = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    yield
    (logging.enable_progress_bar if were_on else logging.disable_progress_bar)()


def test_a_bar_is_drawn_only_for_what_takes_long_and_only_while_it_does(bars, capsys):
    Engine.from_pretrained("shakespeare-char", device="cpu")
    # transformers draws one of its own for any model, into every notebook
    assert capsys.readouterr() == ("", "")

    def followed(after: float) -> str:
        with ProgressBar("somebody/model", after) as watch:
            for phase, total in (("fetch", 3_000_000), ("load", 4)):
                for done in range(0, total, total // 4):
                    watch(phase, done, total)
        return capsys.readouterr().err

    drawn = followed(0)
    assert (
        "somebody/model: fetch:   0%|" in drawn
        and "0.00/3.00M" in drawn
        and "somebody/model: load:" in drawn
    )
    assert not drawn.rstrip("\r").rpartition("\r")[2].strip()  # and taken away
    assert followed(3600) == ""
    logging.disable_progress_bar()
    assert followed(0) == ""
