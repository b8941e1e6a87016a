"""What a model will take, said before its weights are read: equal to what it takes once it is
loaded, for every family; and loading that is stopped or cannot begin.
"""

from __future__ import annotations

import json
import threading

import pytest
import torch

from core.errors import UnsupportedModel
from core.torch_engine.models import memory
from core.torch_engine.models.cache import ModelCache
from core.torch_engine.models.forecast import forecast
from core.torch_engine.models.probe import probe
from core.torch_engine.models.watch import Stopped
from worlds.families import FAMILIES
from worlds.own_models import save


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_foreseen_exactly(family, tmp_path):
    model = family.build()
    model.save_pretrained(tmp_path)
    foreseen, adapter = forecast(str(tmp_path), "cpu", "float32"), probe(model)
    assert (
        foreseen.parameters,
        foreseen.kv_bytes_per_token,
        foreseen.context,
        foreseen.vocab_size,
        foreseen.layers,
    ) == (
        adapter.num_parameters,
        adapter.kv_bytes_per_token,
        adapter.max_model_len,
        adapter.vocab_size,
        len(adapter.shapes),
    )
    assert abs(foreseen.weights - adapter.weight_bytes) <= 64 and foreseen.stored == ("float32",)
    assert torch.get_default_dtype() == torch.float32


def test_a_chat_template_is_one_in_a_file_of_its_own_too(tmp_path):
    folder = save(tmp_path / "own", "llama")
    for said, has in (("{}", False), ("[]", False), ("{", False), ('{"chat_template": "a"}', True)):
        (folder / "tokenizer_config.json").write_text(said)
        assert forecast(str(folder)).has_chat_template is has
    (folder / "tokenizer_config.json").unlink()
    assert not forecast(str(folder)).has_chat_template
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert forecast(str(folder)).has_chat_template


def test_an_architecture_is_the_class_that_was_made(tmp_path):
    config = save(tmp_path / "own", "llama") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": True}))
    assert forecast(str(config.parent)).architecture == "LlamaForCausalLM"


def test_a_loading_that_is_stopped_leaves_nothing_and_the_next_one_loads(tmp_path):
    models, name = ModelCache(), str(save(tmp_path / "own", "qwen3"))
    seen = []

    def watch(phase: str, done: int, total: int) -> None:
        seen.append((phase, done, total))
        if done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        models.get(name, "cpu", "bfloat16", watch)
    assert (
        seen[-1] == ("load", 3, seen[0][2])
        and not models.has(name)
        and torch.get_default_dtype() == torch.float32
    )
    assert models.get(name, "cpu", "bfloat16")[0].dtype == torch.bfloat16 and models.has(
        name, "cpu", "bfloat16"
    )


def test_models_asked_for_at_once_are_loaded_one_after_the_other(tmp_path):
    models, names = ModelCache(), [str(save(tmp_path / f"m{n}", "llama")) for n in range(4)]
    threads = [
        threading.Thread(target=models.get, args=(name, "cpu", dtype))
        for name in names
        for dtype in ("float32", "bfloat16")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        sum(models.has(name, "cpu", dtype) for name in names for dtype in ("float32", "bfloat16"))
        == 3
    ), "the last few are kept"
    assert torch.get_default_dtype() == torch.float32


def test_a_model_that_does_not_fit_is_refused_before_others_are_let_go(tmp_path, monkeypatch):
    models, small, large = (
        ModelCache(),
        str(save(tmp_path / "small", "llama")),
        str(save(tmp_path / "large", "qwen3")),
    )
    models.get(small, "cpu")
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.raises(
        UnsupportedModel,
        match=r"^.*large takes 0.0 GiB of memory in float32, and 0.0 GiB are free here\.$",
    ):
        models.get(large, "cpu")
    assert models.has(small) and not models.has(large)
