"""Raw recordings by hand: parts, clocks, steps that are missing; and what a header becomes."""

from __future__ import annotations

import gzip
import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.config import ASSETS
from core.errors import InvalidTrace
from core.recorders.convert import checked_trace
from core.recorders.raw import MissingSteps, Recording, gathered, header_in, is_raw, read_raw
from core.recorders.recorded_header import recorded_config, trace_header
from core.trace.trace import Trace
from worlds.by_hand import HEADER


def step(number: int, t: float, **more: Any) -> dict[str, Any]:
    return {"kind": "step", "step": number, "t_start": t, "segments": [], "arrived": [], **more}


def read(*parts: list[dict[str, Any]], **header: Any) -> Recording:
    """The one recording in these parts."""
    files = [
        (
            f"{number}.raw.jsonl",
            [json.dumps(row) + "\n" for row in ({**HEADER, "part": number, **header}, *rows)],
        )
        for number, rows in enumerate(parts, 1)
    ]
    (recording,) = gathered(files)
    return recording


def test_what_was_dropped_is_counted_over_all_parts_and_all_ends():
    ends = [{"kind": "end", "dropped": n} for n in (2, 3, 4)]
    recording = read([step(0, 0.0), ends[0], ends[1]], [step(1, 1.0), ends[2]])
    assert recording.dropped == 9 and recording.complete
    assert recording.faults == ["The recorder could not keep up and dropped 9 records."]


@pytest.mark.parametrize("seed", range(3))
def test_in_parts_a_recording_is_what_it_is_in_one_file(seed):
    """Wherever one part ends and the next begins, whichever is named first: steps, snapshots and
    requests that were ended from outside are all there.
    """
    data = Path(__file__).resolve().parents[1] / "data" / "vllm-0.32-snapshots.raw.jsonl.gz"
    header, *records = gzip.decompress(data.read_bytes()).decode().splitlines()
    records.append('{"kind": "end", "dropped": 3}')
    (whole,) = gathered([("run", [header, *records])])
    assert whole.steps and whole.aborts and whole.snapshots and whole.complete and whole.dropped
    chance = random.Random(seed)
    cuts = [0, *sorted(chance.sample(range(len(records)), 3)), len(records)]
    parts = [
        ("run", [json.dumps(json.loads(header) | {"part": n}), *records[first:last]])
        for n, (first, last) in enumerate(pairwise(cuts), 1)
    ]
    chance.shuffle(parts)
    (joined,) = gathered(parts)
    assert replace(joined, header=whole.header) == whole


SEAM = (
    "Part {} does not begin where part {} ends: lines are missing between them, or they are of two"
    " recordings."
)


@pytest.mark.parametrize(
    ("parts", "lines", "said"),
    [
        ((1, 2, 3), (0, 1, 2), []),
        ((3, 4, 5), (7, 8, 9), []),  # those before were deleted, to make room
        ((1, 2, 3), (None, None, None), []),  # a recorder's own, which are not counted
        ((1, 2, 4), (None, None, None), [(4, 2)]),
        ((1, 1, 2), (None, None, None), [(1, 1)]),
        ((1, 2, 3), (0, 3, 4), [(2, 1)]),
        ((1, 2, 3), (0, 1, 1), [(3, 2)]),
        ((1, 2, 3), (0, 1, None), [(3, 2)]),
    ],
)
def test_parts_follow_each_other_line_by_line(parts, lines, said):
    """Of a line that was lost, no number of a step need tell: it may have been a request's end."""
    files = []
    for number, (part, line) in enumerate(zip(parts, lines, strict=True)):
        header = {**HEADER, "part": part} | ({} if line is None else {"line": line})
        rows = (header, step(number, float(number)))
        files.append((f"{number}.raw.jsonl", [json.dumps(row) + "\n" for row in rows]))
    (recording,) = gathered(files)
    assert recording.faults == [SEAM.format(*pair) for pair in said] and len(recording.steps) == 3


def test_one_record_that_was_dropped_is_one():
    recording = read([step(0, 0.0), {"kind": "end", "dropped": 1}])
    assert recording.faults == ["The recorder could not keep up and dropped 1 record."]


def test_a_clock_may_stand_but_not_run_backwards():
    assert read([step(0, 1.0), step(1, 1.0)]).faults == []
    (fault,) = read([step(0, 1.0), step(1, 0.9)]).faults
    assert fault.startswith("The clock of this recording runs backwards")


def test_a_recording_has_a_header_with_the_version_of_its_format_and_no_checksum():
    trace = json.loads(next(iter(Trace.load(ASSETS / "traces" / "one-request.jsonl").lines())))
    assert "crc" in trace and not is_raw(json.dumps(trace | {"kind": "header", "raw": 1}))
    assert is_raw(json.dumps({"kind": "header", "raw": 1}))
    assert not is_raw(json.dumps({"kind": "header", "vllm": "0.9"})) and not is_raw("[1]")


@pytest.mark.parametrize(
    "more",
    [
        {"waiting": math.nan},
        {"budget": math.inf},
        {"sampled": {"a": ["\ud800"]}},
        {"sampled": {"a": [[]]}},
        {"note": "\ud800"},
    ],
    ids=str,
)
def test_a_step_that_no_trace_can_hold_is_a_damaged_line(more):
    assert read([step(0, 0.0), step(1, 1.0, **more)]).faults == [
        "1.raw.jsonl, line 3: this is no record."
    ]


WHOLE: list[dict[str, Any]] = [
    step(1, 1.0),
    {"kind": "snapshot", "step": 1, "t": 1.0, "running": [], "waiting": [], "requests": []},
    {"kind": "abort", "t": 1.0, "requests": []},
    {"kind": "end", "dropped": 0},
]


def test_a_record_of_each_kind_is_read_and_one_that_says_less_is_a_damaged_line():
    whole = read([step(0, 0.0), *WHOLE])
    assert (whole.faults, len(whole.steps), len(whole.aborts)) == ([], 2, 1)
    assert (list(whole.snapshots), whole.complete) == ([1], True)
    unread = [{"kind": "another"}, {}, [1]]
    for record in WHOLE:
        for name in record.keys() - ({"t"} if record["kind"] == "snapshot" else set()):
            unread.append({key: value for key, value in record.items() if key != name})
            unread.append(record | {name: None})
    for number in (-1, 1.0, True):
        unread += [record | {"step": number} for record in WHOLE[:2]]
    unread += [WHOLE[0] | more for more in ({"t_start": "1"}, {"t_end": True}, {"segments": {}})]
    for record in unread:
        assert read([step(0, 0.0), record]).faults == ["1.raw.jsonl, line 3: this is no record."]
    said = ["1.raw.jsonl, line 2: this is no record. So are 2 more lines."]
    assert read(unread[:3]).faults == said


def test_a_file_that_cannot_be_read_on_has_what_was_read(tmp_path, monkeypatch):
    rows = [HEADER, *(step(number, float(number)) for number in range(3))]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (path := tmp_path / "run.raw.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    (recording,) = read_raw([path])
    (fault,) = recording.faults
    assert fault.startswith("After line ") and " run.raw.jsonl.gz cannot be read: " in fault
    monkeypatch.setattr("core.recorders.raw.MAX_LINE_BYTES", 500)
    (path := tmp_path / "run.raw.jsonl").write_bytes(content + b" " * 500)
    (recording,) = read_raw([path])
    assert len(recording.steps) == 3 and recording.faults == [
        "After line 4 run.raw.jsonl has a line of more than 0 MiB."
    ]
    (path := tmp_path / "run.raw.jsonl").write_bytes(content[:-3])
    (recording,) = read_raw([path])
    assert len(recording.steps) == 2 and recording.faults == [
        "run.raw.jsonl breaks off in line 4: the recorder had not written it to its end."
    ]
    with pytest.raises(InvalidTrace, match="nowhere.jsonl cannot be read: No such file"):
        read_raw([tmp_path / "nowhere.jsonl"])


def test_a_recorder_that_stopped_before_its_engine_says_why():
    recording = read([step(0, 0.0), {"kind": "end", "dropped": 0, "why": "the disk is full"}])
    assert recording.complete and recording.faults == [
        "Its recorder stopped before its engine did: the disk is full."
    ]
    with pytest.raises(InvalidTrace, match="there is no recording to open"):
        gathered([])


@pytest.mark.parametrize("more", [{"model": "\ud800"}, {"tested": math.nan}], ids=str)
def test_a_header_that_no_trace_can_hold_is_none(more):
    with pytest.raises(InvalidTrace, match="not a header with the format's version"):
        read([step(0, 0.0)], **more)


def test_a_header_from_before_the_first_format_is_told_what_it_lacks():
    with pytest.raises(InvalidTrace, match="^a is not .* not a header with the format's version.$"):
        header_in('{"kind": "header", "vllm": "0.32.0", "max_num_seqs": 4}', "a")


def test_prompts_and_ends_of_steps_that_are_passed_over_are_kept():
    missing = MissingSteps(3)
    missing.reach(step(5, 0.0))
    arrived = [{"request": "a", "prompt": [1, 2]}, {"request": "b"}]
    missing.pass_over(step(5, 0.0, arrived=arrived, finished=[["c", "stop"]]))
    missing.reach(step(8, 0.0))
    assert (missing.missing, missing.passed, missing.reasons) == (4, 1, {"c": "stop"})
    known = {"a": [9], "d": [3]}
    told = [{"request": r, "told": True} for r in ("a", "d")]
    rows = missing.with_prompts({"requests": told}, known)
    assert rows == {"requests": [told[0] | {"prompt": [1, 2]}, told[1] | {"prompt": [3]}]}
    # one that lacks a prompt is of no use, but the prompts in it are known from then on
    first = {"requests": [{"request": "e", "prompt": [5]}, {"request": "b", "told": True}]}
    assert missing.with_prompts(first, known) is None
    again = missing.with_prompts({"requests": [{"request": "e", "told": True}]}, known)
    assert again == {"requests": [{"request": "e", "told": True, "prompt": [5]}]}


def config(**facts: Any) -> Any:
    return recorded_config(Recording("x", {**HEADER, **facts}))


def test_a_policy_claims_what_is_on_record_and_no_more():
    plain = config()
    assert plain.policy.name == "continuous" and plain.chunked_prefill
    assert not config(chunked=False).chunked_prefill
    whole, chunk = config(reserve_full_isl=True, watermark=0.25), config(reserve_full_isl=False)
    assert (whole.policy.reserve, whole.policy.watermark) == ("prompt", 0.25)
    assert (chunk.policy.reserve, chunk.policy.watermark) == ("chunk", 0.0)
    assert config(policy="priority", priorities=True).policy.name == "priority-first"
    unknown = config(policy="priority").policy
    assert unknown.name == unknown.order_by == "priority"
    assert unknown.victim == "lowest priority"
    theirs = config(engine="transformers").policy
    assert (theirs.requeue, theirs.victim, theirs.reserve) == (True, "blocked", "chunk")


@pytest.mark.parametrize(("dtype", "each"), [("torch.bfloat16", 2), ("float32", 4)])
def test_what_the_models_own_config_adds(tmp_path, dtype, each):
    sizes = {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50}
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"max_position_embeddings": 64}))
    recording = Recording("x", {**HEADER, "dtype": dtype})
    model = trace_header(recording, tmp_path, 0.0, (), ()).model
    assert model.kv_bytes_per_token == 2 * 3 * 2 * 8 * each  # keys and values
    assert (model.layers, model.context) == (3, 64)
    recording.header["max_model_len"] = 32
    assert trace_header(recording, tmp_path, 0.0, (), ()).model.context == 32
    assert trace_header(recording, None, 0.0, (), ()).model.kv_bytes_per_token is None


def test_a_request_asks_for_no_more_than_the_context_holds():
    asked = {"request": "a", "t": 0.0, "prompt": [4, 5, 6], "max_tokens": 90}
    row = {"request": "a", "start": 0, "length": 3, "num_tokens": 3, "draft": 0}
    first = step(0, 0.0, arrived=[asked], segments=[row], budget=16, waiting=0)
    first |= {"t_scheduled": 0.1, "t_output": 0.2, "t_end": 0.3, "preempted": [], "finished": []}
    first |= {"admitted": [{"request": "a", "cached": 0}], "blocks": [["a", [[1]], "table"]]}
    for limit, most in ((10, 7), (None, 90), (2, 1)):
        trace = checked_trace(Recording("x", {**HEADER, "max_model_len": limit}, [dict(first)]))
        assert trace.asked["a"].request.sampling.max_new_tokens == most
