"""Recordings followed while they are written: the same events as of the whole file, in memory that
does not grow, whatever becomes of the files.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from core import Trace
from core.errors import InvalidTrace
from core.recorders.convert import to_trace
from core.recorders.follow import Follower, RecordingBegun, RequestSeen
from core.recorders.growing import engines_in, newest
from core.recorders.raw import read_raw
from core.trace.detokenize import LEFT_OUT
from core.trace.events import StepEvent, Timings

DATA = Path(__file__).resolve().parents[1] / "data"
VLLM, SPECULATION = (DATA / f"vllm-0.32{kind}.raw.jsonl.gz" for kind in ("", "-speculation"))
END = '{"kind":"end","dropped":0}\n'


def lines_of(path: Path) -> list[str]:
    return [f"{line}\n" for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [line for line in lines_of(VLLM) if '"end"' not in line[:20]]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return to_trace(read_raw([VLLM])[0])


def named(header: str, **facts: object) -> str:
    return json.dumps({**json.loads(header), **facts}) + "\n"


def poll(follower: Follower) -> list:
    """All there is by now."""
    updates = follower.poll()
    while follower.has_more:
        updates += follower.poll()
    return updates


def events(updates: list) -> list[StepEvent]:
    return [event for event in updates if isinstance(event, StepEvent)]


def bare(events: list[StepEvent]) -> list[StepEvent]:
    """Without times, which count from the first arrival in a trace, from the recording's start
    here.
    """
    return [
        e._replace(
            t_start=0,
            t_end=0,
            timings=Timings(0, None, 0, None),
            arrived=tuple(a._replace(t=0) for a in e.arrived),
            passes=tuple(p._replace(t_start=0, t_end=0) for p in e.passes),
        )
        for e in events
    ]


@pytest.mark.parametrize("recording", [VLLM, SPECULATION])
def test_a_recording_is_followed_while_it_grows(tmp_path, recording):
    """In pieces that end anywhere, over two parts: the same events, every request before its
    arrival, nothing kept of those that are over.
    """
    first, second = tmp_path / "run.raw.jsonl", tmp_path / "run.raw.2.jsonl"
    header, *records = (line for line in lines_of(recording) if '"end"' not in line[:20])
    whole, half = to_trace(read_raw([recording])[0]), len(records) // 2
    follower, updates = Follower(first), []
    assert (
        not poll(follower)
        and follower.sentence
        == "run.raw.jsonl is not there yet: it is shown as soon as an engine writes it."
    )
    for path, content in (
        (first, header + "".join(records[:half])),
        (second, named(header, part=2) + "".join(records[half:]) + END),
    ):
        with path.open("w") as file:
            # an empty file is none yet
            assert not poll(follower) and "not a raw recording" not in follower.sentence
            for start in range(0, len(content), 7_001):
                file.write(content[start : start + 7_001])
                file.flush()
                updates += poll(follower)
    assert isinstance(updates[0], RecordingBegun) and updates[0].header.engine.name == "vLLM"
    assert (
        follower.is_over
        and follower.sentence.startswith("The recording has ended")
        and bare(events(updates)) == bare(whole.events)
    )
    met = [n for n in updates if isinstance(n, RequestSeen)]
    assert {m.request: m.prompt for m in met} == whole.prompts
    assert all(
        updates.index(m)
        < next(i for i, n in enumerate(updates) if isinstance(n, StepEvent) and m.request in str(n))
        for m in met
    )
    assert (
        not follower._sequence.conversion._known
        and not follower._sequence.conversion._requests
        and not follower._checker._requests
    )


def test_a_folder_is_followed_from_one_start_of_the_engine_to_the_next(tmp_path, lines, trace):
    """The newest recording there, whatever else lies there; parts that an engine before left behind
    are no part of it.
    """
    header, *steps = lines
    follower = Follower(tmp_path)
    assert not poll(follower) and follower.sentence.startswith(
        f"There is no recording in {tmp_path.name} yet"
    )
    (tmp_path / "notes.jsonl").write_text("no recording\n")
    (tmp_path / "b.raw.jsonl").write_text(named(header, created="1", pid=1) + "".join(steps[:4]))
    (tmp_path / "b.raw.2.jsonl").write_text(
        named(header, created="0", pid=1, part=2) + "".join(steps[4:])
    )
    assert (
        len(events(poll(follower))) == 4
        and follower.name == "b.raw.jsonl"
        and not follower.sentence
    )
    (tmp_path / "a.raw.jsonl").write_text(named(header, created="2", pid=1)[:-9])
    assert not poll(follower)  # its header is still being written
    (tmp_path / "a.raw.jsonl").write_text(named(header, created="2", pid=1) + "".join(steps))
    begun, *updates = poll(follower)
    assert (
        isinstance(begun, RecordingBegun)
        and follower.name == "a.raw.jsonl"
        and len(events(updates)) == len(trace.events)
    )
    for part, some in ((2, steps[30:]), (1, steps[:30])):
        (tmp_path / f"c.raw.{part}.jsonl").write_text(
            named(header, created="3", part=part) + "".join(some)
        )
    # whoever comes late begins with its first part
    assert len(events(poll(Follower(tmp_path)))) == len(trace.events)


def test_a_file_that_is_begun_anew_or_removed_is_followed_on(tmp_path, lines, trace):
    """The same name, the same place on the disk or another: the engine has been started again."""
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    follower = Follower(path)
    path.write_text(header + "".join(steps[:9]))
    assert len(events(poll(follower))) == 9
    with path.open("w") as file:  # shorter than it was
        file.write(named(header, created="later") + "".join(steps[:3]))
    updates = poll(follower)
    assert isinstance(updates[0], RecordingBegun) and len(events(updates)) == 3
    path.rename(tmp_path / "old.raw.jsonl")
    assert not poll(follower) and follower.sentence.startswith(
        "run.raw.jsonl has been removed: what its engine still writes is shown"
    )
    with (tmp_path / "old.raw.jsonl").open("a") as file:
        file.write(steps[3])
    assert len(events(poll(follower))) == 1
    path.write_text(named(header, created="last") + "".join(steps))
    updates = poll(follower)
    assert (
        isinstance(updates[0], RecordingBegun)
        and len(events(updates)) == len(trace.events)
        and not follower.sentence
    )


def test_parts_are_found_by_their_headers_whatever_they_are_called(tmp_path, lines, trace):
    """The one that was named may be gone already; those of another start lie beside."""
    header, *steps = lines
    follower, updates = Follower(tmp_path / "run.log"), []
    (tmp_path / "run.log").write_text(named(header, part=1) + "".join(steps[:30]))
    (tmp_path / "other.jsonl").write_text(named(header, part=2, created="0"))
    updates += poll(follower)
    for part, name, some in ((2, "run.log.2.jsonl", steps[30:60]), (3, "moved.jsonl", steps[60:])):
        (tmp_path / name).write_text(named(header, part=part) + "".join(some))
    (tmp_path / "run.log").unlink()
    updates += poll(follower)
    assert (
        bare(events(updates))[:-1] == bare(trace.events)[: len(events(updates)) - 1]
        and len(events(updates)) >= len(trace.events) - 1
    )


@pytest.mark.parametrize(
    ("told", "called"),
    [
        ("run.raw.jsonl", "run.20261122-170501.raw.jsonl"),
        ("run.raw.jsonl", "run.raw.17.jsonl"),
        ("run.jsonl", "run.20261122-170501-4711.3.jsonl"),
        ("run.log", "run.log.2.jsonl"),
    ],
)
def test_whoever_follows_a_name_finds_what_a_recorder_made_of_it(tmp_path, lines, told, called):
    """And nothing else: a later start has a name of its own, and of a long recording the first part
    is gone.
    """
    header, *steps = lines
    for name in (called, "another.raw.jsonl", "run.rank1.raw.jsonl"):
        (tmp_path / name).write_text(
            named(header, created="9" if name != called else "2") + "".join(steps[:5])
        )
    follower = Follower(tmp_path / told)
    poll(follower)
    assert follower.name == called


def later(step: str, by: int, name: str) -> str:
    """A step again, so many steps and seconds later, of other requests."""
    data = json.loads(re.sub(r'"(\d+-[0-9a-f]{8})"', rf'"\1-{name}"', step))
    data["step"] += by
    for moment in (*data["arrived"], data):
        moment |= {
            at: t + by
            for at, t in moment.items()
            if at in ("t", "t_start", "t_scheduled", "t_output", "t_end")
        }
    return json.dumps(data) + "\n"


UNTIL = ": steps are shown again from the next snapshot on."
WRONG = {
    "dropped": (
        lambda steps: [*steps[:6], *steps[9:]],
        "Steps 6 to 8 are missing in run.raw.jsonl",
    ),
    "no record": (
        lambda steps: [*steps[:6], "\0\0{]\n", *steps[7:]],
        "Step 6 is missing in run.raw.jsonl",
    ),
    "forged": (
        lambda steps: [
            *steps[:6],
            json.dumps(json.loads(steps[6]) | {"blocks": [["nobody", [[1]], "table"]]}) + "\n",
            *steps[7:],
        ],
        "Step 6 is damaged in run.raw.jsonl",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_guessed_without_a_snapshot(
    tmp_path, lines, kind, trace
):
    """Not even once nobody from before is left; the file, which is whole, is refused."""
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    spoil, sentence = WRONG[kind]
    path.write_text(header + "".join(spoil(steps)))
    follower = Follower(path)
    updates = poll(follower)
    assert isinstance(updates[0], RecordingBegun) and bare(events(updates)) == bare(
        trace.events[:6]
    )
    for _ in range(2):
        assert follower.sentence.startswith(f"{sentence}{UNTIL}") and follower.sentence.endswith(
            "steps have passed meanwhile."
        )
        with path.open("a") as file:
            file.write("".join(later(step, len(steps), "again") for step in steps))
        assert not poll(follower)
    with pytest.raises(InvalidTrace, match=f"{sentence}.*, and there is no snapshot to go on from"):
        to_trace(read_raw([path])[0])


def test_a_step_that_is_there_twice_is_shown_once(tmp_path, lines, trace):
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    path.write_text(header + "".join([*steps[:6], *steps[2:]]))
    assert bare(events(poll(Follower(path)))) == bare(trace.events)


@pytest.mark.parametrize("facts", [{"async_scheduling": True}, {"pipeline_parallel_size": 2}])
def test_steps_of_an_asynchronous_engine_are_put_in_order_and_wait_for_who_lingers(
    tmp_path, lines, trace, facts
):
    """A step is written when its output is back; the last one waits for nobody for long."""
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    for at in range(0, len(steps) - 1, 7):
        steps[at], steps[at + 1] = steps[at + 1], steps[at]
    path.write_text(named(header, **facts) + "".join(steps))
    follower = Follower(path)
    updates = events(poll(follower))
    assert len(updates) == len(trace.events) - 1
    while len(updates) < len(trace.events):
        updates += events(poll(follower))
    assert bare(updates) == bare(trace.events)


def test_a_clock_that_runs_backwards_stands_still(tmp_path, lines, trace):
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    back = json.loads(steps[5])
    back |= {at: t - 1000 for at, t in back.items() if at.startswith("t_")}
    path.write_text(header + "".join([*steps[:5], json.dumps(back) + "\n", *steps[6:]]))
    follower = Follower(path)
    found = events(poll(follower))
    assert len(found) == len(trace.events) and all(a.t_end <= b.t_start for a, b in pairwise(found))


def test_time_0_stays_where_it_is_once_a_step_is_shown(tmp_path, lines, trace):
    """A request that is said to have come before it counts as come then."""
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    at = next(i for i, event in enumerate(trace.events) if i and event.arrived)
    early = json.loads(steps[at])
    early["arrived"][0]["t"] -= 1000
    path.write_text(header + "".join([*steps[:at], json.dumps(early) + "\n", *steps[at + 1 :]]))
    updates = poll(Follower(path))
    found = events(updates)
    assert sum(isinstance(one, RecordingBegun) for one in updates) == 1
    assert len(found) == len(trace.events) and found[at].arrived[0].t == 0.0
    assert found[at].t_start == pytest.approx(trace.events[at].t_start, abs=2e-6)


def test_what_is_compressed_does_not_grow(tmp_path, lines):
    path = tmp_path / "run.raw.jsonl.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    follower = Follower(path)
    assert not poll(follower)
    assert follower.sentence == "run.raw.jsonl.gz is compressed and cannot grow: import opens it."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "hello\n",
            "run.raw.jsonl is not a raw recording: its first line is not a header with the format's"
            " version.",
        ),
        (
            '{"kind":"header","raw":9,"vllm":"1"}\n',
            "run.raw.jsonl is of version 9 of the raw format; this one reads version 1.",
        ),
        (
            '{"kind":"header","raw":1,"vllm":"1"}\n',
            "run.raw.jsonl does not say its max_num_seqs, without which its steps cannot be drawn.",
        ),
    ],
)
def test_what_cannot_be_followed_is_said_and_another_one_is(tmp_path, content, sentence, lines):
    path = tmp_path / "run.raw.jsonl"
    path.write_text(content)
    follower = Follower(path)
    assert not poll(follower) and follower.sentence == sentence and not poll(follower)
    path.write_text("".join(lines[:3]))
    assert len(events(poll(follower))) == 2 and not follower.sentence


def test_another_version_and_left_out_prompts_are_said(tmp_path, lines):
    path = tmp_path / "run.raw.jsonl"
    header, first, *_ = lines
    arrived = [
        {k: v for k, v in a.items() if k != "prompt"} | {"num_prompt": len(a["prompt"])}
        for a in json.loads(first)["arrived"]
    ]
    path.write_text(
        named(header, tested=False, version="0.33.0", prompts="hashed")
        + json.dumps(json.loads(first) | {"arrived": arrived})
        + "\n"
    )
    begun, met, *_ = poll(Follower(path))
    assert begun.header.notes == (
        "The recorder was never tried with vllm 0.33.0: what it missed there is absent.",
    )
    assert "prompts" in begun.header.absent and set(met.prompt) == {LEFT_OUT}


def test_of_a_recording_without_its_first_part_nothing_is_shown_and_it_is_said_why(tmp_path, lines):
    """From the beginning, and again as steps pass; no snapshot comes from which to go on."""
    header, *records = lines
    (tmp_path / "run.raw.2.jsonl").write_text(named(header, part=2) + "".join(records[:1]))
    follower = Follower(tmp_path)
    assert [type(update) for update in poll(follower)] == [RecordingBegun]
    until = (
        "run.raw.2.jsonl is not the first part of its recording: steps are shown again from the"
        " next snapshot on."
    )
    assert follower.sentence.startswith(until)
    with (tmp_path / "run.raw.2.jsonl").open("a") as file:
        file.write("".join(records[1:]))
    assert not events(poll(follower))
    assert follower.sentence.startswith(f"{until} At least ")


def test_each_rank_of_a_folder_is_followed_by_itself(tmp_path):
    for rank in (0, 1):
        content = gzip.decompress(
            (DATA / f"vllm-0.32-two-ranks.rank{rank}.raw.jsonl.gz").read_bytes()
        )
        (tmp_path / f"run.rank{rank}.raw.jsonl").write_bytes(content)
    assert [engine.ranks for engine in engines_in(tmp_path)] == [(0, 1)]
    first, second = (len(recording.steps) for recording in read_raw(tmp_path.glob("*.jsonl")))
    assert [len(events(poll(Follower(tmp_path, rank)))) for rank in (None, 0, 1)] == [
        first,
        first,
        second,
    ]


def weight(thing: object) -> int:
    """Bytes of all that is reachable from a thing, code apart."""
    seen, left, total = {id(thing)}, [thing], 0
    while left:
        here = left.pop()
        total += sys.getsizeof(here)
        for other in gc.get_referents(here):
            if id(other) not in seen and not isinstance(
                other, type | ModuleType | FunctionType | BuiltinFunctionType
            ):
                seen.add(id(other))
                left.append(other)
    return total


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hours_of_steps_take_no_memory(tmp_path, lines):
    """A recording written again and again to 16,000 steps, followed as it grows: what is kept after
    each turn is what was kept after the first.
    """
    path = tmp_path / "run.raw.jsonl"
    header, *steps = lines
    numbered = [(step["step"], json.dumps(step)) for step in map(json.loads, steps)]
    follower, count, weights = Follower(path), 0, []
    with path.open("w") as file:
        file.write(header)
        for turn in range(16_000 // len(steps) + 1):
            for number, text in numbered:
                again = re.sub(r'"(\d+-[0-9a-f]{8})"', rf'"\1-{turn}"', text)
                file.write(
                    again.replace(f'"step": {number},', f'"step": {number + turn * len(steps)},', 1)
                    + "\n"
                )
            file.flush()
            count += len(events(poll(follower)))
            if turn % 4 == 0:
                weights.append(weight(follower))
    assert count >= 16_000 and not follower.sentence
    assert max(weights) < weights[1] + 2**16, weights


def test_a_recording_that_is_still_written_comes_before_a_newer_one(tmp_path, lines):
    for name, created in (("older", "1"), ("newer", "2")):
        (tmp_path / f"{name}.raw.jsonl").write_text(named(lines[0], created=created))

    def followed() -> str:
        found = newest(tmp_path)
        assert found is not None
        return found[0].name

    assert followed() == "newer.raw.jsonl"
    os.utime(tmp_path / "newer.raw.jsonl", (0, 0))
    assert followed() == "older.raw.jsonl"


def test_another_engine_is_followed_once_the_one_before_has_ended(tmp_path, lines):
    old, new = (tmp_path / f"{name}.raw.jsonl" for name in ("old", "new"))
    old.write_text(named(lines[0], created="1", instance="first") + lines[1])
    follower = Follower(tmp_path)
    assert len(events(poll(follower))) == 1
    new.write_text(named(lines[0], created="2", instance="second") + "".join(lines[1:3]))
    assert not poll(follower) and follower.name == old.name  # both are still written
    before = follower._lines._file
    with old.open("a") as file:
        file.write(END)
    assert len(events(poll(follower))) == 2 and follower.name == new.name
    assert before.closed and not follower._lines._file.closed
