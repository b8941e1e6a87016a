"""No shipped run of ours holds a step that something outside the run held up; a recording that does
is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InflightError
from core.recorders.raw import lines_of
from core.trace.events import StepEvent
from core.trace.trace import Trace
from measure import record as recording
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from worlds.hiccups import FAR, far_steps

SHIPPED = [*sorted(TRACES.rglob("*.jsonl")), *sorted(RECORDED.glob("*/*.jsonl.gz"))]
STILL_HELD_UP = {"engines-poisson-32/1-continuous.jsonl.gz": 81}
"""Ours, measured in turns with vLLM: by file the step, until a quiet machine with vLLM measures it
again.
"""


@pytest.fixture
def trace() -> Trace:
    """A run of decodes and chunks of prompts, in which every pass has others of its size."""
    return Trace.load(TRACES / "long-prompt-chunked.jsonl")


def held_up(trace: Trace, at: int, seconds: float, during_pass: bool = True) -> list[StepEvent]:
    """The events of a run in which the machine did something else during a step, in its pass or
    after it.
    """
    events = list(trace.events)
    event = events[at]
    late = (
        [forward._replace(t_end=forward.t_end + seconds) for forward in event.passes]
        if during_pass
        else event.passes
    )
    events[at] = event._replace(passes=tuple(late), t_end=event.t_end + seconds)
    return events


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_shipped_run_of_ours_was_held_up(path: Path):
    trace = Trace.from_lines(map(str.rstrip, lines_of(path)), trusted=True)
    far = [step for step, _ in far_steps(trace.events)]
    if trace.header.engine is not None:
        pytest.skip(
            f"{trace.header.engine.name} recorded it" + (f", with far steps {far}" if far else "")
        )
    known = STILL_HELD_UP.get(f"{path.parent.name}/{path.name}")
    assert far == ([] if known is None else [known])


@pytest.mark.parametrize("during_pass", (True, False))
def test_a_step_far_from_its_kind_is_found_and_told_in_times(trace: Trace, during_pass: bool):
    assert far_steps(trace.events) == []
    [(step, times)] = far_steps(held_up(trace, 20, 0.2, during_pass))
    assert step == trace.events[20].step and times > FAR


def test_a_size_that_a_run_has_once_is_known_from_its_other_rounds(trace: Trace):
    lone = Trace.load(TRACES / "one-request.jsonl")
    slow = held_up(lone, 0, 2.0)
    assert far_steps(slow) == []  # its only prompt: nothing to compare it with
    assert [step for step, _ in far_steps(slow, [lone.events, lone.events])] == [0]


@pytest.mark.slow
def test_a_run_that_was_held_up_is_refused_and_the_others_are_written(tmp_path, monkeypatch):
    length = len(Trace.load(TRACES / "nanogpt-chunked-2.jsonl").events)
    monkeypatch.setattr(
        recording, "far_steps", lambda events, like=(): [(3, 71.6)] if len(events) == length else []
    )
    names = ("nanogpt-chunked-2", "one-joins-two")
    written = []
    with pytest.raises(
        InflightError,
        match=(
            r"^Step 3 of nanogpt-chunked-2 took 71.6 times as long as others of its kind: record it"
            r" again.$"
        ),
    ):
        for name, path in recording.record(tmp_path, names=names, repeats=2):
            written.append((name, path))
    assert written == [("one-joins-two", tmp_path / "one-joins-two.jsonl")] and [
        p for _, p in written
    ] == list(tmp_path.iterdir())


def test_an_unknown_run_is_refused_before_any_is_recorded(tmp_path):
    with pytest.raises(InflightError, match="There is no run 'gpt2-seven' to record"):
        next(recording.record(tmp_path, names=("chunk-7-by-4", "gpt2-seven")))
    assert not list(tmp_path.iterdir())
