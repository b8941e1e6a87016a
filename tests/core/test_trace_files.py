"""What a trace file may be: files of older schemas open and say as much, long ones are read in little memory, and files that no reader should
trust are refused in a sentence.
"""

from __future__ import annotations

import copy
import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import Request, StepEvent, Trace, Workload
from core.config import POLICIES
from core.errors import InvalidTrace
from core.measure.verify import verify
from core.scheduler.state import RequestState
from core.trace import file
from core.trace.upgrade import FromSchema1
from worlds.small import memory_engine, memory_trace, request

DATA = Path(__file__).parent / "data"
OLD = DATA / "schema-1.jsonl"


@pytest.fixture(scope="module")
def small() -> list[str]:
    return list(memory_trace((5, 3), (9, 2), max_num_seqs=1).lines())


# -- files of schema 1 ---------------------------------------------------------------------------------------------------


def test_a_file_of_schema_1_opens_and_is_saved_as_the_newest(tmp_path: Path) -> None:
    first = json.loads(OLD.read_text(encoding="utf-8").splitlines()[0])
    assert first["schema"] == 1 and "batching" not in first
    trace = Trace.load(OLD)
    assert trace.header.policy.layout == "padded" and trace.complete
    assert {left.request: (left.lane, left.when) for e in trace.events for left in e.left} == {
        r: (next(a.lane for e in trace.events for a in e.admitted if a.request == r), "after") for r in trace.prompts
    }
    trace.save(tmp_path / "new.jsonl")
    again = Trace.load(tmp_path / "new.jsonl")
    assert (again.header, again.asked, again.events, again.texts) == (trace.header, trace.asked, trace.events, trace.texts)
    assert json.loads((tmp_path / "new.jsonl").read_text(encoding="utf-8").splitlines()[0])["schema"] == file.SCHEMA


def test_a_file_of_schema_2_opens_and_its_requests_are_checked(tmp_path: Path) -> None:
    """All requests in the header, all texts at the end."""
    old = list(file.lines_of(DATA / "schema-2.jsonl"))
    trace = Trace.from_lines(old)
    trace.save(tmp_path / "new.jsonl")
    again = Trace.load(tmp_path / "new.jsonl")
    assert (again.header, again.asked, again.events, again.texts) == (trace.header, trace.asked, trace.events, trace.texts)
    rows = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in old]
    assert rows[0]["schema"] == 2 and trace.workload.to_json() == rows[0]["workload"] and trace.prompts == rows[0]["prompts"]
    assert verify(iter(old)).not_replayed is None
    name = next(iter(trace.prompts))
    for forged in (
        {"prompts": {**trace.prompts, name: [10**9]}},
        {"prompts": {**trace.prompts, "zz": [1]}},
        {"prompts": None},
        {"workload": {}},
    ):
        with pytest.raises(InvalidTrace, match="line 1"):
            verify(file.sealed([rows[0] | copy.deepcopy(forged), *rows[1:]]))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_schema_1_leaves_unsaid_is_inferred_as_the_scheduler_records_it(policy: str) -> None:
    engine = memory_engine(policy, max_num_seqs=3, max_num_batched_tokens=9, block_size=4, num_blocks=8)
    stream = engine.stream(Workload([request(f"r{i}", 6, 4 + i, i, ignore_eos=False) for i in range(7)]))
    for event in stream:
        if event.step in (2, 9):
            for running in {s.request for s in event.segments}:
                engine.cancel(running)  # the last of a wave among them
    trace, upgrade = engine.trace, FromSchema1()
    upgrade.header({name: value for name, value in trace.header.to_json().items() if name != "batching"})
    assert [upgrade.event(e._replace(left=())) for e in trace.events] == trace.events
    assert {left.when for e in trace.events for left in e.left} == {"before", "after"}


# -- long files ----------------------------------------------------------------------------------------------------------


def test_of_requests_that_are_over_nothing_but_ids_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    memory_trace(*[(3 + i % 5, 2 + i % 3, 2 * i) for i in range(200)], max_num_seqs=3, block_size=4).save(path)
    most = 0

    def watched() -> Iterator[str]:
        nonlocal most
        before = held()
        for line in file.lines_of(path):
            if '"kind":"texts"' in line:
                most = max(most, held() - before)
            yield line

    def held() -> int:
        """Requests, states of them and steps."""
        return sum(type(o) in (Request, RequestState, StepEvent) for o in gc.get_objects())

    gc.collect()
    gc.freeze()  # what is there already need not be looked through each time
    found = verify(watched())
    assert found.num_requests == 200 and found.not_replayed is None
    assert 0 < most <= 3 * 4, "three lanes, and who is about to come or go"


# -- files that are refused ----------------------------------------------------------------------------------------------


def with_seal(lines: list[str], number: int, body: str) -> list[str]:
    """The lines with one body replaced, its checksum made anew; those after it are left out."""
    crc = int(lines[number - 2][-10:-2], 16) if number > 1 else 0
    return [*lines[: number - 1], body + file._CRC % file.zlib.crc32(body.encode(), crc)]


def refusal(lines: list[str]) -> str:
    with pytest.raises(InvalidTrace) as caught:
        Trace.from_lines(lines)
    return str(caught.value)


def test_line_ends_of_windows_and_blank_lines(small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes("".join(line + "\r\n" for line in small).encode())
    with pytest.raises(InvalidTrace, match="line 1: this line ends with CR LF"):
        Trace.load(path)
    path.write_bytes("".join(line + "\n" for line in [*small, ""]).encode())
    with pytest.raises(InvalidTrace, match=f"line {len(small) + 1}: this line is empty"):
        Trace.load(path)
    assert "line 3: this line is empty" in refusal([*small[:2], "  ", *small[2:]])


def test_a_key_that_stands_twice(small: list[str]) -> None:
    number = next(n for n, line in enumerate(small, 1) if line.startswith('{"step"'))
    body = small[number - 1][: -file._CRC_LENGTH] + ',"step":0'
    assert refusal(with_seal(small, number, body)) == f"line {number}: the key 'step' stands twice in one object."


def test_a_number_that_json_does_not_have(small: list[str]) -> None:
    body = small[0][: -file._CRC_LENGTH].replace('"threads":', '"load":Infinity,"threads":')
    assert refusal(with_seal(small, 1, body)) == "line 1: Infinity is no number in JSON."


def test_a_huge_line_is_refused_before_it_is_read_whole(small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(small[0] + "\n", encoding="utf-8")
    os.truncate(path, 1 << 38)  # a line of 256 GiB, of which no byte is stored
    with pytest.raises(InvalidTrace, match="line 2: this line is longer than the 128 MiB"):
        Trace.load(path)


def test_texts_that_cannot_be_written(small: list[str]) -> None:
    data = json.loads(small[-2])
    del data["crc"]
    data["output"][0] = "\ud800"
    body = json.dumps(data, separators=(",", ":"))[:-1]
    assert refusal(with_seal(small, len(small) - 1, body)).endswith("are no text.")
