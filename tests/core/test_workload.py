"""Workloads: JSON there and back, and one sentence for whatever is none."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import InflightError, Request, SamplingParams, Workload
from core.errors import InvalidRequest, InvalidWorkload
from core.workload.presets import PRESETS, preset
from core.workload.workload import SavedWorkload
from worlds.examples import examples
from worlds.small import request

GOOD = {
    "requests": [{"id": "a", "prompt": "text", "sampling": {"max_new_tokens": 3}, "arrival": 1.5}],
    "arrival_unit": "s",
    "name": "w",
}


def test_there_and_back(tmp_path: Path) -> None:
    sampling = SamplingParams(
        5, temperature=0.5, top_k=3, top_p=0.9, seed=7, stop=("é", "\n"), ignore_eos=True
    )
    workload = Workload(
        [Request("a", prompt="O Romeo 😀", sampling=sampling), request("b", 3, 2, 4)],
        "mine",
        "step",
    )
    workload.save(tmp_path / "w.json")
    assert Workload.load(tmp_path / "w.json") == workload == Workload.from_json(workload.to_json())
    assert [r.id for r in workload] == ["a", "b"] and len(workload) == 2


def test_a_file_is_read_whole_or_request_by_request(tmp_path: Path) -> None:
    """A request a line: ids took a line each, and a file that was written was then refused."""
    requests = [
        Request(f"r{n}", prompt_token_ids=(1, 2, n), arrival=(n + 1) // 2) for n in range(20)
    ]
    workload = Workload(requests, arrival_unit="s")
    workload.save(path := tmp_path / "w.json")
    lines = path.read_text().splitlines()
    assert len(lines) == 22 and json.loads(lines[1].rstrip(","))["id"] == "r0"
    assert Workload.load(path) == workload and [*Workload.stream(path)] == requests
    with pytest.raises(InvalidWorkload, match="breaks off"):
        path.write_text("\n".join(lines[:9]))
        drawn = Workload.stream(path)
        assert [next(drawn).id for _ in range(8)] == [f"r{n}" for n in range(8)]
        next(drawn)
    for changed, fault in (
        ([lines[0], lines[2], lines[1], "]}"], "line 3: it arrives before the one above it"),
        ([lines[0].replace('"s"', '"step"'), "]}"], "the arrivals of a stream are in seconds"),
        ([lines[0], '{"id": 5},', "]}"], "line 2: A request id"),
        (['{"requests":', "[", "]}"], "not read request by request"),
        (["\xff"], "not read request by request"),
        ([], "not read request by request"),
    ):
        path.write_text("\n".join(changed))
        with pytest.raises(InvalidWorkload, match=fault):
            [*Workload.stream(path)]
    Workload([]).save(path)
    assert not Workload.load(path).requests


def test_a_byte_order_mark_belongs_to_no_workload(tmp_path: Path) -> None:
    workload = Workload([request("a", 3, 2, 4)], arrival_unit="s")
    workload.save(path := tmp_path / "w.json")
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert Workload.load(path) == workload and [*Workload.stream(path)] == [*workload]


def test_no_more_of_a_line_is_read_than_of_a_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("core.workload.workload.MAX_FILE_BYTES", 2000)
    (path := tmp_path / "w.json").write_text("{" + " " * 10**7)
    tracemalloc.start()
    with pytest.raises(InvalidWorkload, match="not read request by request"):
        next(Workload.stream(path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10**6


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_go_there_and_back(name: str) -> None:
    assert (
        Workload.from_json(json.loads(json.dumps(PRESETS[name].workload.to_json())))
        == preset(name).workload
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no",
        b"[1",
        b"\xff\xfe{}",
        b"[" * 200_000,
        b"3",
        b"[]",
        b"null",
        b'{"requests": 3}',
        b"{}",
        b'{"requests": [3]}',
        b'{"requests": [], "mood": 1}',
        b'{"requests": [], "schema": 9}',
        b'{"requests": [], "schema": true}',
        b'{"requests": [], "schema": 1.0}',
        b'{"requests": [], "requests": []}',
        b'{"requests": [], "arrival_unit": ["step"]}',
        b'{"requests": [], "name": 3}',
        b'{"requests": [{"id": "a"}]}',
        b'{"requests": [{"prompt": "a"}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "arrival": NaN}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "arrival": 1000000000000001}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "arrival": 1e308}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "arrival": -Infinity}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "speed": 1}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "sampling": {"heat": 1}}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "sampling": [1]}]}',
        b'{"requests": [{"id": "\\ud800", "prompt": "a"}]}',
        b'{"requests": [{"id": "a", "prompt": "a"}, {"id": "a", "prompt": "b"}]}',
        b'{"requests": [{"id": "a", "prompt": "a", "arrival": 1' + b"0" * 5000 + b"}]}",
    ],
)
def test_files_that_are_no_workload(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_bytes(content)
    with pytest.raises(InvalidWorkload, match=r"^w\.json") as caught:
        Workload.load(path)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_file_of_a_gigabyte(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(InvalidWorkload, match="larger than the 64 MiB"):
        Workload.load(path)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.json", tmp_path):
        with pytest.raises(InvalidWorkload, match="cannot be read"):
            Workload.load(path)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "id",
        "prompt",
        "prompt_token_ids",
        "sampling",
        "arrival",
        "max_new_tokens",
        "stop",
        "name",
        "schema",
        "x",
    ]
)
shaped = st.dictionaries(fields, values | st.dictionaries(fields, values, max_size=3), max_size=4)


@given(
    values
    | shaped
    | st.fixed_dictionaries(
        {"requests": st.lists(shaped | st.just(GOOD["requests"][0]), max_size=3)}
    )
)
@examples(100)
def test_only_an_inflight_error_ever_escapes(data: object) -> None:
    try:
        made = Workload.from_json(data)
    except InflightError as error:
        assert str(error)
        return
    assert Workload.from_json(json.loads(json.dumps(made.to_json()))) == made


@given(field=fields, value=values, where=st.sampled_from(["top", "request", "sampling"]))
@examples(100)
def test_one_field_of_another_kind(field: str, value: object, where: str) -> None:
    data = json.loads(json.dumps(GOOD))
    target = {
        "top": data,
        "request": data["requests"][0],
        "sampling": data["requests"][0]["sampling"],
    }[where]
    target[field] = value
    with suppress(InflightError):
        Workload.from_json(data)


@given(
    settings=st.fixed_dictionaries(
        {},
        optional={
            "config": (
                values
                | st.dictionaries(
                    st.sampled_from(["policy", "max_num_seqs", "num_blocks", "prefill_first", "x"]),
                    values,
                )
            ),
            "model": values,
            "device": values,
            "x": values,
        },
    )
)
@examples(100)
def test_what_the_editor_saves_with_settings_of_another_kind(settings: dict[str, object]) -> None:
    try:
        saved = SavedWorkload.from_json({"workload": GOOD, **settings})
    except InflightError as error:
        assert str(error)
        return
    assert saved.workload == Workload.from_json(GOOD) and "x" not in settings
    assert (saved.model, saved.device) == (settings.get("model"), settings.get("device"))
    assert all(
        getattr(saved.config, name) == value for name, value in settings.get("config", {}).items()
    )


def test_requests_alone_leave_every_setting_open(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(json.dumps(GOOD))
    assert SavedWorkload.load(tmp_path / "w.json") == SavedWorkload(Workload.from_json(GOOD))
    (tmp_path / "w.json").write_text(json.dumps({"workload": GOOD, "config": {"max_num_seqs": 0}}))
    with pytest.raises(InvalidWorkload, match=r"^w\.json: max_num_seqs"):
        SavedWorkload.load(tmp_path / "w.json")


def test_greedy_requests_come_when_they_would_have() -> None:
    asked = Request("a", "Hark", sampling=SamplingParams(3, temperature=0.5), arrival=0.5)
    drawn = Workload([asked], "mine", "s")
    found = drawn.greedy()
    assert found.heading() == drawn.heading() and found.requests == (
        replace(asked, sampling=SamplingParams(3)),
    )
    ran = Workload([asked], "mine", "s", {"a": (1, 2)})
    assert ran.greedy().prompts == {"a": (1, 2)}  # so an engine without a tokenizer takes it


def test_requests_without_texts_have_no_stop_strings_and_messages_end() -> None:
    sampling = SamplingParams(4, stop=("x",), ignore_eos=True)
    text = Workload([Request("r0", "a b", sampling=sampling)], prompts={"r0": (1, 2)})
    (tokens,), (said,) = text.without_texts(), text.as_messages()
    assert tokens.prompt_token_ids == (1, 2) and tokens.sampling.stop == ()
    assert said.messages and not said.sampling.ignore_eos and said.sampling.stop == ("x",)


ASKED = {"role": "user", "content": "Why?"}


def test_messages_are_kept_as_they_were_whatever_becomes_of_the_callers() -> None:
    mine = [dict(ASKED)]
    kept = Request("r0", messages=mine).messages
    mine[0]["content"] = "What?"
    assert kept == (ASKED,)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("Why?", "messages must be a list."),
        *(
            ([ASKED, odd], "a message has a role (system, user, assistant) and a content")
            for odd in (
                5,
                {"role": "user"},
                ASKED | {"role": "pirate"},
                ASKED | {"name": "Ann"},
            )
        ),
        *(([ASKED, ASKED | {"content": no}], "it has an empty message.") for no in ("", 5, None)),
    ],
)
def test_messages_that_are_none_are_refused(messages: object, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Request("r0", messages=messages)  # type: ignore[arg-type]
    assert says in str(caught.value) and caught.value.param == "messages"
