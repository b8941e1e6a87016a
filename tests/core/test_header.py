"""The header of a trace: plain data in a file and a frozen record in memory, and nothing is lost or
believed on the way.
"""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import EngineConfig, Trace
from core.config import POLICIES
from core.errors import InvalidTrace
from core.trace.header import EngineFacts, ExecutionFacts, Header, ModelFacts
from worlds.small import memory_trace

INFERRED = {"lanes": "the lowest that is free", "waiting": "in order", "reasons": "by a rule"}


def header(**facts: Any) -> Header:
    """Of a simulated run of ours, with something on record in every field that such a one may have,
    but for what is given.
    """
    config = EngineConfig("continuous", num_blocks=9)
    full: dict[str, Any] = {
        "created": "2026-01-02T03:04:05+00:00",
        "source": "simulated",
        "model": ModelFacts(
            name="m",
            type="tiny",
            parameters=7,
            layers=2,
            vocab_size=50,
            context=9,
            eos_token_ids=(),
            windows=(None, 4),
            plug="attention",
            kv_bytes_per_token=8,
        ),
        "device": "cuda:0",
        "threads": 2,
        "dtype": "float32",
        "config": config,
        "num_blocks": 9,
        "workload": "small",
        "arrival_unit": "s",
        "versions": {"torch": "2.13.0", "triton": None},
        "tensor_parallel": 2,
        "leak": True,
        "cost": {"kind": "by hand", "base_s": 0.5},
        "execution": ExecutionFacts(attention="triton", cuda_graphs=False, asynchronous=True),
        "memory": {"weights": 1, "kv_pool": 2, "peak": 3},
        "notes": ("One thing.", "Another."),
    }
    return Header(**full | facts)


def test_a_run_tells_every_fact_of_its_model() -> None:
    """A key and a value of one number each are eight bytes of float32."""
    assert memory_trace((2, 1)).header.model == ModelFacts(
        name="memory",
        type="memory",
        parameters=0,
        layers=1,
        vocab_size=50,
        context=4096,
        eos_token_ids=(3,),
        windows=(None,),
        plug="none",
        kv_bytes_per_token=8,
    )


def of_another(**facts: Any) -> Header:
    """Of another engine's run, with something in every field that only such a one has, but for what
    is given.
    """
    full: dict[str, Any] = {
        "source": "recorded",
        "engine": EngineFacts(name="vLLM", version="0.32.0", async_=False, rank=1, ranks=2),
        "inferred": INFERRED,
        "absent": ("prepare",),
        "model": ModelFacts(name="m", layers=2, vocab_size=50),
    }
    return header(
        **dict.fromkeys(("threads", "cost", "execution", "memory")), leak=False, **full | facts
    )


def in_a_file(header: Header) -> dict[str, Any]:
    return json.loads(json.dumps(header.to_json()))


def test_what_is_written_is_read() -> None:
    full, other = header(), of_another()
    ours = header(source="recorded", execution=None, threads=None, cost=None, notes=())
    for one in (full, other, memory_trace((3, 2)).header, ours):
        assert (
            Header.from_json(in_a_file(one))
            == Header.from_json(one.to_json())
            == one
            == pickle.loads(pickle.dumps(one))
        )
    assert full.is_asynchronous and not full.has_one_clock and not full.counts_steps
    assert ours.has_one_clock and not replace(other, execution=None).has_one_clock
    assert full.engine is None and other.engine is not None
    assert (
        in_a_file(other)["engine"]["async"] is False
        and in_a_file(full)["model"]["eos_token_ids"] == []
    )


def test_what_is_not_on_record_is_not_written() -> None:
    plain = in_a_file(memory_trace((3, 2)).header)
    assert not plain.keys() & {
        "engine",
        "inferred",
        "absent",
        "tensor_parallel",
        "leak",
        "cost",
        "execution",
        "memory",
        "notes",
    }
    bare = {
        name: plain[name]
        for name in ("model", "policy", "batching", "config", "num_blocks", "workload")
    }
    assert Header.from_json({**bare, "notes": None, "engine": None}).to_json() == bare


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        header().source = "live"  # type: ignore[misc]


UNKNOWN = st.dictionaries(
    st.text(min_size=1, max_size=3).map(lambda name: f"x-{name}"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3
    ),
    max_size=3,
)


@settings(deadline=None)
@given(st.lists(UNKNOWN, min_size=4, max_size=4), st.randoms())
def test_what_nobody_knows_survives_in_its_object(unknown: list[dict[str, Any]], draw: Any) -> None:
    """In the header and in each object of it, whatever the order of the names in a file; what is
    saved has one order, the unknown last.
    """
    of = draw.choice((header, of_another))
    data = in_a_file(of())

    def shuffled(facts: dict[str, Any]) -> dict[str, Any]:
        items = list(facts.items())
        draw.shuffle(items)
        return dict(items)

    for name, more in zip(
        ("model", "engine" if "engine" in data else "execution"), unknown, strict=False
    ):
        data[name] = shuffled({**data[name], **more})
    data = shuffled({**data, **unknown[3]})
    read = Header.from_json(copy.deepcopy(data))
    again = read.to_json()
    assert again == data and json.dumps(Header.from_json(again).to_json()) == json.dumps(again)
    assert list(again) == [*in_a_file(of()), *(name for name in data if name.startswith("x-"))]
    assert read.more == unknown[3] and read.model.more == unknown[0]
    assert replace(read, source="live").to_json() == {**data, "source": "live"}


def test_unknown_facts_survive_in_a_trace() -> None:
    trace = memory_trace((3, 2))
    trace.header = replace(trace.header, more={"weather": ["fair"]})
    lines = list(trace.lines())
    assert list(Trace.from_lines(lines).lines()) == lines and '"weather":["fair"]' in lines[0]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("source", 5, "the header's source is of the wrong kind."),
        ("notes", "one", "the header's notes is of the wrong kind."),
        ("notes", ["one", 2], "the header's notes is of the wrong kind."),
        ("threads", True, "the header's threads is of the wrong kind."),
        ("memory", {"peak": "much"}, "the header's memory is of the wrong kind."),
        ("model", {"name": ["m"]}, "the model's name is of the wrong kind."),
        ("model", {"vocab_size": 0}, "the model's vocab_size is not a count."),
        ("model", {"windows": [0]}, "the model's windows are not lengths."),
        ("model", {"parameters": -1}, "the model's parameters is not a count."),
        ("model", {"kv_bytes_per_token": -4096}, "the model's kv_bytes_per_token is not a count."),
        ("model", {"layers": 2, "windows": [None]}, "the model has 2 layers but 1 windows."),
        ("model", {"layers": 2, "windows": []}, "the model has 2 layers but 0 windows."),
        ("model", {"eos_token_ids": [-1]}, "the model's eos_token_ids are not token ids."),
        ("model", None, "the header has no model."),
        ("inferred", INFERRED, "a run of this engine leaves nothing absent or to be inferred."),
        (
            "engine",
            {"name": "vLLM"},
            "the header does not say how the lanes of another engine's run were inferred.",
        ),
        ("source", "recorded", "a simulated run has a cost model, and no other has one."),
        ("cost", None, "a simulated run has a cost model, and no other has one."),
        (
            "cost",
            {"assumptions": 5},
            "the cost model's assumptions are not a list of sentences.",
        ),
        ("threads", 0, "the header's threads is not a count."),
        ("tensor_parallel", -8, "the header's tensor_parallel is not a count."),
        ("memory", {"peak": -1}, "the header's memory is not a number of bytes."),
        ("engine", "vLLM", "the header does not say which engine this was."),
        ("engine", {"name": "vLLM", "rank": "first"}, "the engine's rank is of the wrong kind."),
        ("execution", [1], "the header's execution is not an object."),
        ("kv_groups", 5, "the header's kv_groups are not a list."),
        *(
            ("kv_groups", [group], "the header's kv_groups have numbers that none can have.")
            for group in (
                {"window": 0},
                {"block_size": 0},
                {"units": 0},
                {"most_blocks": 0},
                {"layers": [1, -1]},
            )
        ),
        (
            "kv_groups",
            [{"window": 1, "block_size": 1, "units": 1, "most_blocks": 1, "layers": [0]}],
            "all layers of this engine share one block table.",
        ),
        *(
            ("batching", batching, "the header does not have the fields of a policy.")
            for batching in (None, {}, POLICIES["continuous"].to_json() | {"mood": "good"})
        ),
        (
            "batching",
            POLICIES["continuous"].to_json() | {"watermark": 1.1},
            "the fields of the policy are out of range.",
        ),
        (
            "batching",
            POLICIES["continuous"].to_json() | {"order_by": 81 * "x"},
            "the policy's words are longer than a sentence can hold.",
        ),
        ("policy", "static", "the policy is not that of the config."),
        (
            "batching",
            POLICIES["static"].to_json(),
            "the fields of the policy are not those of continuous.",
        ),
        ("num_blocks", 8, "the pool has 8 blocks and not the 9 of the config."),
        *(("num_blocks", odd, "the header has no num_blocks.") for odd in (None, 0, -1, 9.0)),
        ("config", {"policy": "continuous", "speed": 9}, "An engine has no limit called 'speed'."),
        (
            "workload",
            {"arrival_unit": "weeks"},
            'arrival_unit must be "step" or "s", not \'weeks\'.',
        ),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        Header.from_json({**in_a_file(header()), name: value})
    assert str(caught.value) == f"line 1: {sentence}"


def test_a_run_of_ours_cannot_be_told_as_another_engines_by_its_name_alone() -> None:
    """Every fact that no other engine's recording has gives it away, and so does each that its own
    always have.
    """
    ours, other = in_a_file(header()), in_a_file(of_another())
    for name in ("threads", "leak", "cost", "execution", "memory"):
        with pytest.raises(InvalidTrace, match=f"has a fact that only this engine records: {name}"):
            Header.from_json(
                {
                    **other,
                    "source": ours["source"] if name == "cost" else "recorded",
                    name: ours[name],
                }
            )
    for name in ("parameters", "eos_token_ids", "plug"):
        with pytest.raises(
            InvalidTrace, match=f"has a fact that only this engine records: the model's {name}"
        ):
            Header.from_json({**other, "model": {**other["model"], name: ours["model"][name]}})
    for name in INFERRED:
        with pytest.raises(
            InvalidTrace, match=f"does not say how the {name} of another engine's run were inferred"
        ):
            Header.from_json(
                {**other, "inferred": {k: v for k, v in INFERRED.items() if k != name}}
            )


def test_a_run_of_ours_has_every_fact_of_its_model() -> None:
    """Of what was deleted nothing could be compared when the model runs again."""
    ours = in_a_file(header(source="recorded", cost=None))
    for name in ours["model"].keys() - {"context"}:  # some models have none
        with pytest.raises(InvalidTrace, match=f"the header does not say the model's {name}"):
            Header.from_json(
                {**ours, "model": {k: v for k, v in ours["model"].items() if k != name}}
            )
