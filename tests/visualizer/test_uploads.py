"""Saved traces that visitors open, and files made to stall or to break whoever reads them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import BUILTIN_FOLDER, EngineConfig
from core.errors import InflightError
from visualizer.jobs.files import REQUESTS, SEPARATOR, Wanted, answer_to, check_lines
from visualizer.jobs.limits import HERE
from visualizer.server import uploads
from visualizer.server.limits import SPACE
from visualizer.server.store import Store
from visualizer.server.uploads import open_upload
from worlds.ranks import ranks
from worlds.ranks import text as rank_text
from worlds.visual import record, request


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path, 2**24)


def text() -> str:
    return (
        "\n".join(
            record(
                EngineConfig(max_num_seqs=2, max_num_batched_tokens=8), request("r0", 5, 6)
            ).lines()
        )
        + "\n"
    )


def test_a_saved_trace_is_put_into_the_store(store):
    opened = open_upload(text().encode(), store, HERE)
    assert store.trace(opened["id"]).complete and opened["url"].endswith(f"{opened['id']}.json")


def test_a_name_may_have_any_character(store):
    opened = open_upload(text().encode(), store, HERE, ["a\0b\ud800.jsonl"])
    assert store.trace(opened["id"]).complete


def test_a_recording_of_another_engine_is_put_there_as_a_trace(store):
    """With the texts of its tokens, for which a reader imports the tokenizers before its memory is
    bounded.
    """
    raw = gzip.decompress(
        (Path(__file__).parents[1] / "data" / "vllm-0.32.raw.jsonl.gz").read_bytes()
    )
    trace = store.trace(open_upload(raw, store, HERE)["id"])
    assert trace.header.engine.name == "vLLM" and not any(
        "⟨" in t for ts in trace.texts.prompt.values() for t in ts
    )


@pytest.mark.slow
def test_the_owners_tokenizer_is_for_recordings_that_visitors_open_too(store):
    """Of a model that is not on this machine under the name that the engine was given."""
    raw = gzip.decompress(
        (Path(__file__).parents[1] / "data" / "vllm-0.32.raw.jsonl.gz").read_bytes()
    )
    raw = raw.replace(b'"model": "shakespeare-bpe"', b'"model": "elsewhere"', 1)
    assert b"elsewhere" in raw[:2000]
    plain, read = (
        store.trace(open_upload(raw, store, replace(HERE, tokenizer=name))["id"]).texts.prompt
        for name in ("", str(BUILTIN_FOLDER / "shakespeare-bpe"))
    )
    assert all(piece.startswith("⟨") for pieces in plain.values() for piece in pieces)
    assert not any("⟨" in piece for pieces in read.values() for piece in pieces)


def test_ranks_that_are_opened_together_are_runs_of_their_own(store):
    """Their saved traces: each under its id, with its place on one clock; and one that is no rank
    is refused by its name.
    """
    recorded = ranks(rank_text(0), rank_text(1))
    saved = ["\n".join(rank.trace.lines()) + "\n" for rank in recorded.ranks]
    answer = open_upload(
        SEPARATOR.join(reversed(saved)).encode(), store, HERE, ["b.jsonl", "a.jsonl"]
    )
    doc = json.loads((store.folder / f"{answer['id']}.json").read_text())
    assert [(r["rank"], r["offset"]) for r in doc["ranks"]] == [
        (r.number, r.offset) for r in recorded.ranks
    ]
    assert doc["count"] == 2 and len(doc["says"]) == 1
    for put, rank in zip(doc["ranks"], recorded.ranks, strict=True):
        assert store.trace(put["id"]).events == rank.trace.events
        assert put["replay"]["letters"].keys() == rank.trace.prompts.keys()
        assert put["replay"]["header"]["source"] == "uploaded"
    with pytest.raises(InflightError, match=r"b\.jsonl is a run of this engine"):
        open_upload(
            SEPARATOR.join((saved[0], text())).encode(), store, HERE, ["a.jsonl", "b.jsonl"]
        )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[],[]," * 2**20 + "[]]", "at most 2 MiB"),
        ("[" * 100, "nested too deeply"),
        (SEPARATOR * 256, "257 files are too many; 256 are the most"),
        ("x" * (9 * 2**20), "at most 8 MiB"),
        ("\ud800", "line 1"),
        (text().replace('"complete":true', '"complete":false'), "line"),
    ],
    ids=["long", "deep", "many", "large", "surrogate", "changed"],
)
def test_what_is_no_trace_is_refused_in_words(store, content, words):
    with pytest.raises(InflightError, match=words):
        open_upload(content.encode("utf-8", "surrogatepass"), store, SPACE)
    assert not list(store.folder.iterdir())


def test_of_a_published_workload_as_many_requests_are_read_as_one_can_follow():
    wanted = Wanted.within(HERE, "azure.csv", "shakespeare-bpe")
    assert wanted.requests == REQUESTS < HERE.requests
    few = Wanted.within(replace(HERE, requests=3), "", "shakespeare-bpe")
    assert (few.requests, few.name) == (3, "This file")


def test_what_is_no_text_is_called_that(store):
    with pytest.raises(InflightError, match="this is not text"):
        open_upload(b"\x89PNG\r\n\x1a\n", store, SPACE)
    assert not list(store.folder.iterdir())


@pytest.mark.slow
def test_a_reader_that_takes_too_long_is_ended_and_the_next_one_works(store, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(uploads, "_LONGEST", 0.01)
        with pytest.raises(InflightError, match="takes longer than"):
            open_upload(text().encode(), store, HERE)
    with pytest.raises(InflightError, match="takes longer than"):
        uploads.read_sandboxed("tests.worlds.endless_reader", b"1")  # which is given a second
    with pytest.raises(InflightError, match="more memory"):
        uploads.read_sandboxed("tests.worlds.endless_reader", b"9")
    assert open_upload(text().encode(), store, HERE)["id"]


@pytest.mark.slow
def test_a_reader_with_too_little_memory_says_so(store):
    """2 MiB of lists are 100 MiB of objects; many such lines are beyond what a reader is given."""
    line = "[" + "[]," * 600_000 + "[]]"
    with pytest.raises(InflightError, match="line 1|more memory"):
        open_upload("\n".join([line] * 4).encode(), store, SPACE)


@pytest.mark.parametrize(
    "file, why",
    [("[" * 100_000, "nested too deeply"), ("", "contradicts itself")],
    ids=["deep", "no JSON"],
)
def test_what_breaks_a_reader_is_not_said_to_be_too_large(file, why):
    assert why in answer_to(lambda: json.loads(file))["error"]


def test_depth_is_that_of_brackets():
    check_lines("[]" * 1000)
    check_lines('{"prompt": "' + "[{" * 100 + '\\" [[[["}')  # words
    with pytest.raises(InflightError, match="line 2"):
        check_lines("[]\n" + "[" * 30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", ["arrived_at,num_prefill_tokens,num_decode_tokens", "y"], ids=["honest", "consents"]
)
def test_a_file_does_not_consent_to_code_that_comes_with_a_model(tmp_path, first):
    """transformers asks on standard input, which is where a reader finds the file."""
    folder, proof = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    code = f"open({str(proof)!r}, 'w')\nfrom transformers import LlamaConfig as C\n"
    (folder / "configuration_mine.py").write_text(code)
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InflightError, match="cannot be read"):
        uploads.open_dataset(f"{first}\n0.0,10,2\n".encode(), "a.csv", str(folder), HERE)
    assert not proof.exists()
