"""What a trace file may be: files of another schema are refused, long ones are read in little
memory, and files that no reader should trust are refused in a sentence.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import Request, StepEvent, Trace
from core.errors import InvalidTrace
from core.files import read_json
from core.proof.verify import verify
from core.scheduler.state import RequestState
from core.trace import file
from worlds.commands import call
from worlds.forging import sealed
from worlds.small import memory_trace

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def small() -> list[str]:
    return list(memory_trace((5, 3), (9, 2), max_num_seqs=1).lines())


@pytest.mark.parametrize(
    "schema", [1, 3, file.SCHEMA + 1, float(file.SCHEMA), True, str(file.SCHEMA), None]
)
def test_a_file_of_another_schema_is_refused_in_a_sentence(
    small: list[str], schema: object
) -> None:
    header, *rest = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in small]
    with pytest.raises(
        InvalidTrace,
        match=f"line 1.*has schema {schema!r}; this version reads schema {file.SCHEMA}",
    ):
        Trace.from_lines(sealed([{**header, "schema": schema}, *rest]))
    assert Trace.from_lines(sealed([header, *rest])).complete


# -- long files ------------------------------------------------------------------------------------


def test_of_requests_that_are_over_nothing_but_ids_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    memory_trace(
        *[(3 + i % 5, 2 + i % 3, 2 * i) for i in range(200)], max_num_seqs=3, block_size=4
    ).save(path)
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


# -- files that are refused ------------------------------------------------------------------------


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
    assert "this is no trace" in refusal(["\x89PNG\r", "\x1a"])  # a picture has such ends, too


def test_a_recording_of_another_engine_is_called_that_and_not_damaged() -> None:
    said = refusal(
        gzip.decompress((DATA / "vllm-0.32.raw.jsonl.gz").read_bytes()).decode().splitlines()
    )
    assert said == (
        "line 1: this is another engine's recording: `python -m inflight import` makes a trace of"
        " it."
    )
    for line in ('["raw"]', '"raw"', '{"kind": "header"}'):
        assert "this is no trace" in refusal([line])


def test_a_line_of_json_without_a_line_end_is_no_trace(tmp_path: Path) -> None:
    """It is not taken for a trace whose last line was not written to its end."""
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(InvalidTrace, match="this is no trace"):
        verify(file.lines_of(path))


def test_a_last_line_that_is_whole_needs_no_line_end(small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for text, is_whole in (("\n".join(small), True), ("\n".join(small)[:-1], False)):
        path.write_text(text, "utf-8")
        assert Trace.load(path).complete is is_whole


def test_what_was_begun_after_the_end_of_a_trace_is_not_passed_over(
    small: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line + "\n" for line in small) + '{"kind":"step","for', "utf-8")
    with pytest.raises(InvalidTrace, match=f"line {len(small) + 1}: this is not a line"):
        verify(file.lines_of(path))


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_comes_through_a_pipe(small: list[str], packed: bool) -> None:
    content = "".join(line + "\n" for line in small).encode()
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as out:
        out.write(gzip.compress(content) if packed else content)
    try:
        assert list(file.lines_of(Path(f"/dev/fd/{reading}"))) == small
    finally:
        os.close(reading)


def test_half_of_a_character_in_a_header(small: list[str]) -> None:
    body = small[0][: -file._CRC_LENGTH].replace('"threads":', '"notes":["\\ud800"],"threads":')
    assert "line 1: the header holds half of a character" in refusal(with_seal(small, 1, body))


@pytest.mark.parametrize("number", ["1e999", "-1E+400", f"{10**310}.0", "9" * 250 + "e90"])
def test_a_fraction_that_no_computer_holds(small: list[str], number: str) -> None:
    body = small[0][: -file._CRC_LENGTH].replace('"threads":', f'"load":[{number}],"threads":')
    assert re.fullmatch(r"line 1: \S+ has more than 64 bits\.", refusal(with_seal(small, 1, body)))


def test_a_key_that_stands_twice(small: list[str]) -> None:
    number = next(n for n, line in enumerate(small, 1) if line.startswith('{"step"'))
    body = small[number - 1][: -file._CRC_LENGTH] + ',"step":0'
    assert (
        refusal(with_seal(small, number, body))
        == f"line {number}: the key 'step' stands twice in one object."
    )


@pytest.mark.parametrize("instead", [{}, "", {"r0": 0}])
@pytest.mark.parametrize("field", ["preempted", "finished", "waiting"])
def test_only_a_list_stands_for_a_list(small: list[str], field: str, instead: object) -> None:
    """An object or a text could be unpacked, too."""
    rows = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in small]
    next(row for row in rows if "step" in row)[field] = instead
    with pytest.raises(InvalidTrace, match=f"{type(instead).__name__} in place of a list"):
        verify(sealed(rows))


@pytest.mark.parametrize("count", [float, str])
def test_steps_are_counted_in_whole_numbers(small: list[str], count: type) -> None:
    rows = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in small]
    steps = rows[-1]["events"]
    rows[-1]["events"] = count(steps)
    with pytest.raises(InvalidTrace, match=f"says it has {count(steps)!r} steps but holds {steps}"):
        verify(sealed(rows))


def test_a_number_that_json_does_not_have(small: list[str]) -> None:
    body = small[0][: -file._CRC_LENGTH].replace('"threads":', '"load":Infinity,"threads":')
    assert refusal(with_seal(small, 1, body)) == "line 1: Infinity is no number in JSON."


@pytest.mark.parametrize("number", [10**400, -(2**63) - 1, 2**64], ids=("huge", "least", "most"))
def test_a_number_of_more_than_64_bits(small: list[str], number: int) -> None:
    """It was an `OverflowError` among the times, and sentences of 400 digits elsewhere."""
    rows = [json.loads(line) for line in small]
    step = next(row for row in rows if "step" in row)
    for name in ("t_end", "step", "timings"):
        forged = [
            row | {name: [number] * 4 if name == "timings" else number} if row is step else row
            for row in rows
        ]
        for row in forged:
            row.pop("crc", None)
        with pytest.raises(InvalidTrace, match=f"line 4: {str(number)[:20]}…? has more than 64"):
            verify(sealed(forged))
    assert read_json(str(2**64 - 1)) == 2**64 - 1


def test_a_step_that_ends_after_any_clock(small: list[str]) -> None:
    rows = [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in small]
    last = max(index for index, row in enumerate(rows) if "step" in row)
    rows[last]["t_end"] = 1e308
    with pytest.raises(InvalidTrace, match="it ends later than any clock shows"):
        verify(sealed(rows))


@pytest.mark.slow
def test_a_huge_line_is_refused_before_it_is_read_whole(small: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(small[0] + "\n", encoding="utf-8")
    os.truncate(path, 1 << 38)  # a line of 256 GiB, of which no byte is stored
    with pytest.raises(InvalidTrace, match="line 2: this line is longer than the 128 MiB"):
        Trace.load(path)


def test_a_compressed_file_that_breaks_off_or_is_damaged(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named once, on the console too."""
    whole = gzip.compress("".join(line + "\n" for line in small).encode())
    path = tmp_path / "t.jsonl.gz"
    for content, says in (
        (whole[:10], "t.jsonl.gz, line 1: the file breaks off before the end of this line."),
        (whole[:40], "t.jsonl.gz, line 1: the file breaks off before the end of this line."),
        (gzip.compress(b""), "t.jsonl.gz, line 1: the file is empty."),
        (
            whole[:20] + b"\xff" * 9 + whole[29:],
            "t.jsonl.gz: it cannot be read: what is compressed in it is damaged.",
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidTrace) as found:
            Trace.load(path)
        assert str(found.value) == says
        assert call("check", str(path)) == 1
        assert capsys.readouterr() == ("", f"{says}\n")


def test_texts_that_cannot_be_written(small: list[str]) -> None:
    data = json.loads(small[-2])
    del data["crc"]
    data["output"][0] = "\ud800"
    body = json.dumps(data, separators=(",", ":"))[:-1]
    assert refusal(with_seal(small, len(small) - 1, body)).endswith("are no text.")
