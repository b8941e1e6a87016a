"""Converts raw recordings of other engines to traces, and opens them beside saved traces of ours. `core.recorders.conversion` converts their steps one
by one; the notes of the trace say which steps are missing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace, malformed
from core.recorders.conversion import DAMAGE, Conversion, still_there
from core.recorders.gaps import Gap
from core.recorders.groups import infer_windows
from core.recorders.raw import Recording, gathered, is_raw, lines_of, read_raw
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.texts import model_folder, tokenizer_of
from core.trace.events import (
    StepEvent,
)
from core.trace.messages import english
from core.trace.phrases import GOES_ON, not_shown
from core.trace.trace import Trace

_MOST_GAPS = 8  # described one by one


def to_trace(recording: Recording, tokenizer: Any = None) -> Trace:
    """The trace of one rank. tokenizer: for its texts; by default the model's own, if it is on this machine. What cannot be shown is added to
    `recording.faults`. Raises InvalidTrace for a recording that cannot be followed at all.
    """
    check_facts(recording)
    try:
        return _converted(recording, tokenizer)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InflightError):
            raise
        raise InvalidTrace(f"{recording.name} is damaged: {malformed(error)}.") from None


def _converted(recording: Recording, tokenizer: Any) -> Trace:
    steps = {
        step["step"]: step for step in reversed(recording.steps)
    }  # by number, the first of each
    arrivals = [a["t"] for step in recording.steps for a in step["arrived"]]
    seen = [
        row["t"]
        for snapshot in recording.snapshots.values()
        for row in snapshot["requests"]
        if row.get("t") is not None
    ]
    start = min([*arrivals, *seen], default=recording.steps[0]["t_start"] if steps else 0.0)
    conversion, events, faults = _followed(recording, steps, start)
    if steps and not events:
        raise InvalidTrace(
            f"{recording.name} begins with missing steps, and nothing after them gives the whole state."
        )
    shown = [steps[event.step] for event in events]
    is_silent = isinstance(recording.header.get("kv_groups"), int)  # on which blocks left a window
    if is_silent and any(
        e.kv.used > e.kv.total - step["blocks_free"] for e, step in zip(events, shown, strict=True)
    ):
        if not any(event.resumed for event in events) and infer_windows(
            recording.header, shown, events
        ):
            conversion, events, faults = _followed(recording, steps, start)
        else:
            faults.append(
                "Some blocks left their requests unrecorded, so more blocks are drawn than were in use."
            )
    recording.faults += faults
    model = model_folder(recording.header.get("model", ""))
    if tokenizer is None and model is not None:
        tokenizer = tokenizer_of(str(model))
    header = trace_header(recording, model, start, conversion.absent, recording.faults)
    trace = Trace(header, conversion.requests(), events, conversion.is_over, tokenizer)
    if tokenizer is None or recording.is_hashed:
        trace.recorded_texts = conversion.plain_texts()
    return trace


def checked_trace(recording: Recording, tokenizer: Any = None) -> Trace:
    """The trace of one rank, checked as if it were read from a file, so that its steps have their warnings. tokenizer: see `to_trace`. Raises
    InvalidTrace.
    """
    return Trace.from_lines(to_trace(recording, tokenizer).lines())


def open_recording(path: Path) -> Trace:
    """The trace of a recording of one rank in one file; raises InvalidTrace."""
    (recording,) = read_raw([path])
    return checked_trace(recording)


def open_run(path: Path) -> Trace:
    """The trace in a file: one of ours, or another engine's raw recording; its first line tells. Raises InvalidTrace."""
    return open_recording(path) if is_raw(next(lines_of(path), "")) else Trace.load(path)


@dataclass(frozen=True)
class Opened:
    """traces: each with its file's name. refused: a sentence for each of the files that cannot be opened."""

    traces: tuple[tuple[str, Trace], ...]
    refused: tuple[str, ...] = ()


def open_all(openings: Iterable[tuple[str, Callable[[], Trace]]]) -> Opened:
    """Open several files. openings: the name of each and how to open it. Raises the first error if none can be opened."""
    traces: list[tuple[str, Trace]] = []
    errors: list[tuple[str, InflightError]] = []
    for name, opening in openings:
        try:
            traces.append((name, opening()))
        except InflightError as error:
            errors.append((name, error))
    if errors and not traces:
        raise errors[0][1]
    return Opened(
        tuple(traces), tuple(f"{name} cannot be opened: {error}" for name, error in errors)
    )


def open_texts(files: Iterable[tuple[str, str]]) -> Opened:
    """The traces in these files, given as name and text; the content tells a saved trace of ours from another engine's raw recording. All parts of a
    recording make one trace. Raises InflightError if none can be opened, and InvalidTrace for two recordings of one rank.
    """
    raw: list[tuple[str, Iterable[str]]] = []
    openings: list[tuple[str, Callable[[], Trace]]] = []
    for name, text in files:
        if is_raw(text.partition("\n")[0]):
            raw.append((name, io.StringIO(text)))
        else:
            openings.append((name, partial(Trace.from_lines, text.removesuffix("\n").split("\n"))))
    recordings = gathered(raw) if raw else []
    return open_all(
        openings + [(recording.name, partial(checked_trace, recording)) for recording in recordings]
    )


def _followed(
    recording: Recording, steps: dict[int, dict[str, Any]], start: float
) -> tuple[Conversion, list[StepEvent], list[str]]:
    """An event for every step that can be shown, and a sentence for what cannot. steps: by number."""
    conversion, events, faults = Conversion(recording, start), list[StepEvent](), list[str]()
    gap, last = None, -1
    for number in sorted(steps):
        step, snapshot = steps[number], recording.snapshots.get(number)
        if gap is None and number != last + 1:
            gap = Gap(last + 1, recording)
        last = number
        try:
            if gap is not None and not conversion.resume(gap, step, snapshot):
                continue
            if (
                gap is None
                and snapshot is not None
                and (odd := conversion.contradiction(snapshot, step))
            ):
                faults.append(odd)
            later = steps.get(number + 1)
            events.append(
                conversion.event(step, still_there(step, later) if later else frozenset())
            )
            gap = None
        except DAMAGE as error:
            faults.append(f"Step {number} is damaged: {malformed(error)}.")
            gap = gap or Gap(number, recording)
            gap.is_damaged(step)
    gaps = [event.resumed for event in events if event.resumed is not None]
    faults += [
        english(f"{not_shown(resumed)}{GOES_ON[resumed.source]}") for resumed in gaps[:_MOST_GAPS]
    ]
    if len(gaps) > _MOST_GAPS:
        faults.append(english(f"So it is in {len(gaps) - _MOST_GAPS} more [place|places]."))
    if gap is not None:
        faults.append(
            f"After step {gap.first - 1} steps are missing, and nothing after them gives the whole state: the rest is not shown."
        )
    return conversion, events, faults
