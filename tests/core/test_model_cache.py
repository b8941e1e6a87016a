"""Loaded models: one for each device, by whatever name it is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from core.errors import UnsupportedModel
from core.torch_engine.models import forecast, load, memory
from core.torch_engine.models.cache import ModelCache, device_key


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("cpu", "cpu"),
        ("cpu:1", "cpu"),
        ("cuda", "cuda"),
        ("cuda:0", "cuda"),
        ("cuda:1", "cuda:1"),
        ("mps:0", "mps"),
    ],
)
def test_a_device_has_one_name(asked, place):
    assert device_key(torch.device(asked)) == place


def test_no_name_of_a_device_loads_a_model_again():
    models = ModelCache()
    (first, tokenizer), (second, another) = (
        models.get("shakespeare-char", device) for device in ("cpu", "cpu:7")
    )
    assert first is second and tokenizer is not another, "weights are shared, tokenizers are not"


@pytest.mark.parametrize(
    ("most", "used", "files", "left"),
    [
        ("1000", "700", "anon 5\ninactive_file 200\nactive_file 9\n", 500),
        ("1000", "700", "active_file 9\n", 300),
        ("1000", "1300", "inactive_file 200\n", 0),
        ("max", "700", "inactive_file 200\n", None),
        ("none", "700", "inactive_file 200\n", None),
        ("1000", "700", None, None),
    ],
)
def test_free_is_what_both_the_machine_and_the_container_have(
    tmp_path, monkeypatch, most, used, files, left
):
    """The machine's 12 KiB are more than the container's few bytes. Files can be read again, so the
    room of those that nobody reads now is free.
    """
    told = {"max": most, "current": used, "stat": files}
    for name, text in told.items():
        if text is not None:
            (tmp_path / f"memory.{name}").write_text(text)
    (tmp_path / "meminfo").write_text("MemFree:        5 kB\nMemAvailable:  12 kB\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "Path", lambda name: tmp_path / name.removeprefix("/proc/"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    places = [torch.device(kind) for kind in ("cpu", "cuda", "meta")]
    assert [*map(memory.free_memory, places)] == [12 * 1024 if left is None else left, 7, None]
    (tmp_path / "meminfo").unlink()
    assert memory.free_memory(places[0]) == left


def test_models_give_way_to_a_new_one_on_their_device(monkeypatch):
    """The least recently used first, until a tenth more is free than the new one takes. Each
    device has 100 bytes; of "meta" it is not known.
    """
    sizes = {
        "a": 20,
        "b": 30,
        "c": 40,
        "d": 50,
        "e": 90,
        "f": 91,
        "shakespeare-char": 1,
        "shakespeare-bpe": 1,
    }
    models, others = ModelCache(), [("a", "cuda"), ("shakespeare-char", "cpu")]

    def kept() -> list[tuple[str, str]]:
        return [key[:2] for key in models._loaded]

    def get(name: str, place: str = "cpu") -> None:
        models.get(name, place, "float32")

    def free(device: torch.device) -> int | None:
        used = sum(sizes[name] for name, place in kept() if place == device.type)
        return None if device.type == "meta" else 100 - used

    def loaded(name: str, *_: object) -> tuple[SimpleNamespace, None]:
        return SimpleNamespace(weight_bytes=sizes[name]), None

    monkeypatch.setattr(memory, "free_memory", free)
    monkeypatch.setattr(load, "resolve_device", torch.device)
    monkeypatch.setattr(load, "load_adapter", loaded)
    monkeypatch.setattr(forecast, "forecast", lambda n, *_: SimpleNamespace(weights=sizes[n]))
    for name, place in (*others, ("a", "cpu"), ("b", "cpu"), ("a", "cpu")):
        get(name, place)
    get("d")  # needs 55 where 49 are free
    assert kept() == [*others, ("a", "cpu"), ("d", "cpu")]
    get("c")  # needs 44, and 49 are free without the first
    assert kept() == [*others, ("d", "cpu"), ("c", "cpu")]
    with pytest.raises(
        UnsupportedModel, match=r"^f takes 0\.0 GiB of memory in float32, and 0\.0 "
    ):
        get("f")  # needs 100, and 99 would be free
    assert kept() == [*others, ("d", "cpu"), ("c", "cpu")]
    get("e")  # needs 99
    assert kept() == [*others, ("e", "cpu")]
    monkeypatch.setattr(
        memory, "free_memory", lambda device: 32
    )  # a run goes on with what is dropped
    with pytest.raises(UnsupportedModel, match="^b takes"):
        get("b")
    monkeypatch.setattr(memory, "free_memory", free)
    assert kept() == others
    for name in "fbd":
        get(name, "meta")
    assert kept() == [others[1], ("f", "meta"), ("b", "meta"), ("d", "meta")], "three, and ours"
    monkeypatch.setattr(memory, "free_memory", lambda device: 0)
    get("shakespeare-bpe")  # ours are small: nobody asks for their room
    assert kept()[-1] == ("shakespeare-bpe", "cpu")
