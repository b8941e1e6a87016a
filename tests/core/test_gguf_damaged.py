"""GGUF files with wrong bytes in their header: each is read, or refused in a sentence."""

from __future__ import annotations

import io
import struct
import tempfile
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.torch_engine.models import gguf
from core.torch_engine.models.gguf import GgufFile, _make, facts_of, reader
from core.torch_engine.models.gguf_for_tab import PackedGguf
from core.torch_engine.models.weight_files import BadWeights
from worlds.gguf_files import FITTING, TOKENS, write

LONG = [0, 1, 2**31, 2**32, 2**46, 2**62, 2**63, 2**64 - 1]
WRONG = st.binary(min_size=1, max_size=2) | st.sampled_from(LONG).map(
    lambda n: struct.pack("<Q", n)
)


GIVEN = {
    "llama": {"rope": FITTING},
    "qwen2": {"pre": "qwen2"},
    "qwen3": {"pre": "qwen2"},
    "smollm3": {"pre": "smaug-bpe", "layers": 4},
}


@cache
def whole(arch: str) -> tuple[bytes, int]:
    """A file, and where its header ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write(path, arch, **GIVEN[arch])
        content = path.read_bytes()
    return content, content.rfind(b"ffn_down.weight") + 50


def changed(content: bytes, at: int, wrong: bytes) -> bytes:
    return content[:at] + wrong + content[at + len(wrong) :]


def read(content: bytes, folder: Path) -> None:
    """Make the folder that torch loads, and what a tab computes. Raises BadWeights."""
    _make(GgufFile(reader(io.BytesIO(content))), folder, lambda done, total: None)
    for _ in PackedGguf(GgufFile(reader(io.BytesIO(content))), "tiny"):
        pass


@pytest.mark.parametrize("dimensions", [4, 5])
def test_a_tensor_has_at_most_four_dimensions(dimensions):
    sizes = [3, 2, *[1] * (dimensions - 2)]
    tensor = struct.pack(f"<Q1sI{dimensions}QIQ", 1, b"w", dimensions, *sizes, 0, 0)
    content = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + tensor + bytes(64)
    with nullcontext() if dimensions == 4 else pytest.raises(BadWeights):
        assert GgufFile(reader(io.BytesIO(content))).tensors["w"].shape == (3, 2, 1, 1)


def test_no_more_is_read_than_a_header_may_have(monkeypatch):
    """However long it says that a name is."""
    monkeypatch.setattr(gguf, "_MOST_HEADER", 2**21)
    begins = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 2**21)

    def read(at: int, size: int) -> bytes:
        assert size < 2**21
        return (begins + bytes(size))[at : at + size]

    with pytest.raises(BadWeights, match="no GGUF file, or not a whole one"):
        GgufFile(read)


def test_tensors_lie_where_the_files_own_alignment_has_them(tmp_path):
    files = [tmp_path / f"{unit}.gguf" for unit in (32, 4096)]
    for path, unit in zip(files, (32, 4096), strict=True):
        write(path, alignment=unit)
    usual, wide = (GgufFile(reader(io.BytesIO(path.read_bytes()))) for path in files)
    for name, tensor in usual.tensors.items():
        other = wide.tensors[name]
        assert other.at % 4096 == 0 and wide.content(other, 64) == usual.content(tensor, 64)


def placed(names: str, places: list[int], *facts: bytes) -> bytes:
    """A file whose tensors, four numbers each, begin at these places."""
    told = b"".join(struct.pack("<Q1sIB", 1, fact, 0, 7) for fact in facts)
    tensors = b"".join(
        struct.pack("<Q1sIQIQ", 1, name.encode(), 1, 4, 0, place)
        for name, place in zip(names, places, strict=True)
    )
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(names), len(facts)) + told + tensors
    return head + bytes(-len(head) % 32 + 64)


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        (placed("ab", [0, 32], b"x", b"y"), True),
        (placed("ab", [32, 16], b"x"), True),  # in another order, and side by side
        (placed("ab", [0, 12]), False),  # one begins in the other
        (placed("ab", [16, 16]), False),
        (placed("aa", [0, 32]), False),
        (placed("ab", [0, 32], b"x", b"x"), False),
    ],
)
def test_no_two_tensors_overlap_and_no_two_things_have_one_name(content, is_read):
    """A file of a kilobyte could become a model of any size, and two readers differ about it."""
    with nullcontext() if is_read else pytest.raises(BadWeights, match="no GGUF file"):
        assert len(GgufFile(reader(io.BytesIO(content))).tensors) == 2


def test_a_vocabulary_with_a_token_twice_is_refused(tmp_path):
    """The first of the two would have no text."""
    for tokens in (TOKENS, [*TOKENS, TOKENS[5]]):
        path = tmp_path / "tiny.gguf"
        write(path, tokens=tokens)
        file = GgufFile(reader(io.BytesIO(path.read_bytes())))
        with nullcontext() if tokens is TOKENS else pytest.raises(BadWeights, match="no sense"):
            facts_of(file)


@pytest.mark.parametrize("arch", GIVEN)
@given(share=st.floats(0, 1), wrong=WRONG)
@example(share=0.0, wrong=b"")
@example(share=0.53125, wrong=struct.pack("<Q", 0))  # a tensor without a name
def test_it_is_read_or_refused(arch, share, wrong):
    content, end = whole(arch)
    with tempfile.TemporaryDirectory() as folder:
        try:
            read(changed(content, round(share * end), wrong), Path(folder) / "made")
        except BadWeights as error:
            assert wrong and str(error)


@pytest.mark.parametrize(
    ("name", "skip", "number", "said"),
    [
        # a matrix' first dimension, and where its numbers begin; a vector's length; a head's size
        ("blk.0.ffn_down.weight", 4, struct.pack("<Q", 2**46), "no GGUF file, or not a whole one"),
        ("blk.0.ffn_down.weight", 24, struct.pack("<Q", 2**62), "no GGUF file, or not a whole one"),
        ("blk.0.attn_norm.weight", 4, struct.pack("<Q", 0), "no GGUF file, or not a whole one"),
        ("smollm3.attention.key_length", 4, struct.pack("<I", 70), "makes no sense"),
        ("smollm3.attention.key_length", 4, struct.pack("<I", 0), "makes no sense"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, name, skip, number, said):
    content, _ = whole("smollm3")
    at = content.find(name.encode()) + len(name) + skip
    with pytest.raises(BadWeights, match=said):
        read(changed(content, at, number), tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "kind", "value", "said"),
    [
        ("general.alignment", 6, float("nan"), "no GGUF file, or not a whole one"),
        ("llama.block_count", 6, 2.5, "block_count” is “2.5” is not read here"),
        ("llama.rope.freq_base", 6, float("inf"), "freq_base” is “inf” is not read here"),
        ("llama.attention.key_length", 4, 2**31, "positions scaled unlike those of Llama 3"),
        ("tokenizer.ggml.eos_token_id", 6, 0.5, ""),
    ],
)
def test_a_value_of_another_kind_is_refused_or_passed_over(tmp_path, name, kind, value, said):
    """They were errors of Python; a head of so many numbers was counted through first."""
    path = tmp_path / "tiny.gguf"
    write(path, rope=FITTING, alignment=64)
    content = path.read_bytes()
    at = content.find(name.encode()) + len(name)
    wrong = changed(content, at, struct.pack("<If" if kind == 6 else "<II", kind, value))
    with pytest.raises(BadWeights, match=said) if said else nullcontext():
        read(wrong, tmp_path / "made")
