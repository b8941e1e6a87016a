"""Converts raw recordings of other engines to traces, and opens recordings and saved traces alike.
`core.recorders.conversion` converts the steps; notes in the header say which are missing.
"""

import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace, malformed
from core.recorders.conversion import Conversion
from core.recorders.raw import Recording, gathered, is_raw, lines_of, read_raw
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.sequence import Contradiction, EventSequence
from core.recorders.texts import model_folder, tokenizer_of
from core.trace.events import StepEvent
from core.trace.messages import english
from core.trace.phrases import GOES_ON, not_shown
from core.trace.trace import Trace

_MOST_GAPS = 8  # described one by one; the others are counted
REST_IS_MISSING = (
    "steps are missing, and no snapshot after them gives the whole state: the rest is not shown."
)
"""The end of a note in a trace whose last steps are missing."""


def to_trace(recording: Recording, tokenizer: Any = None) -> Trace:
    """The trace of one rank. tokenizer: for its texts; by default the model's own, if it is on this
    machine. A sentence for everything that cannot be shown is added to `recording.faults`. Raises
    InvalidTrace for a recording that cannot be followed at all, and for one that lacks steps and
    has no snapshots.
    """
    check_facts(recording)
    try:
        return _converted(recording, tokenizer)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        if isinstance(error, InflightError):
            raise
        raise InvalidTrace(f"{recording.name} is damaged: {malformed(error)}.") from None


def _converted(recording: Recording, tokenizer: Any) -> Trace:
    # by step number; of duplicates the first counts
    steps = {step["step"]: step for step in reversed(recording.steps)}
    arrivals = [a["t"] for step in recording.steps for a in step["arrived"]]
    rows = [row for snapshot in recording.snapshots.values() for row in snapshot["requests"]]
    seen = [row["t"] for row in rows if row.get("t") is not None]
    start = min([*arrivals, *seen], default=recording.steps[0]["t_start"] if steps else 0.0)
    conversion, events, faults = _followed(recording, steps, start)
    if steps and not events:
        raise InvalidTrace(
            f"{recording.name} begins with missing steps, and no snapshot after them gives the"
            " whole state."
        )
    free = {number: step.get("blocks_free") for number, step in steps.items()}
    beyond = [e.kv.used + n - e.kv.total for e in events if (n := free[e.step]) is not None]
    # an older recording, which only counts the KV groups, does not say which blocks left a window
    if isinstance(recording.header.get("kv_groups"), int) and max(beyond, default=0) > 0:
        faults.append(
            "Some blocks left their requests unrecorded, so more blocks are drawn than were in use."
        )
    elif any(beyond):
        faults.append("In some steps it counts other blocks as free than its block tables leave.")
    if (without := conversion.num_without_prompt) and not recording.is_hashed:
        faults.append(
            english(
                f"Of {without:,} [request|requests] the prompt is not on record; token 0 stands for"
                " each of its tokens."
            )
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
    """The trace of one rank, checked as if it had been read from a file, so that its steps carry
    their warnings. tokenizer: see `to_trace`. Raises InvalidTrace.
    """
    lines = to_trace(recording, tokenizer).lines()
    try:
        return Trace.from_lines(lines)
    except InvalidTrace as error:  # its line would be the trace's, which nobody has seen
        raise InvalidTrace(f"{recording.name} is damaged: {error.message}") from None


def import_recording(*parts: str | os.PathLike[str]) -> Trace:
    """The trace of another engine's recording, given all files of a rank. Raises InvalidTrace."""
    recording, *others = read_raw(parts)
    if others:
        raise InvalidTrace("These are recordings of several ranks; import one at a time.")
    return checked_trace(recording)


def open_run(path: Path) -> Trace:
    """The trace in a file, ours or another engine's recording. Raises InvalidTrace."""
    return import_recording(path) if is_raw(next(lines_of(path), "")) else Trace.load(path)


@dataclass(frozen=True)
class Opened:
    """Opened traces, each with its file's name, and a sentence for each file refused."""

    traces: tuple[tuple[str, Trace], ...]
    refused: tuple[str, ...] = ()


def open_all(openings: Iterable[tuple[str, Callable[[], Trace]]]) -> Opened:
    """Open several files, each given by name and function. Raises the first error if all fail."""
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


def open_texts(files: Iterable[tuple[str, str]], tokenizer: Any = None) -> Opened:
    """The traces in these files, given as name and text. The content tells a saved trace from a raw
    recording; all files of a recording make one trace. tokenizer: for recordings, see `to_trace`.
    Raises InflightError if none can be opened, and InvalidTrace for two recordings of one rank.
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
        openings + [(one.name, partial(checked_trace, one, tokenizer)) for one in recordings]
    )


def _followed(
    recording: Recording, steps: dict[int, dict[str, Any]], start: float
) -> tuple[Conversion, list[StepEvent], list[str]]:
    """An event for every step that can be shown, and a sentence for each gap. steps: by number.
    Raises InvalidTrace where steps are missing or damaged and no snapshot allows to continue.
    """
    conversion, events, faults = Conversion(recording, start), list[StepEvent](), list[str]()
    sequence = EventSequence(conversion)
    taken = (sequence.take(steps[n], recording.snapshots.get(n)) for n in sorted(steps))
    for one in chain(chain.from_iterable(taken), sequence.settle()):
        if isinstance(one, StepEvent):
            events.append(one)
        elif isinstance(one, Contradiction):
            faults.append(one.sentence)
        elif not recording.snapshots:
            why = "" if one.error is None else f" ({malformed(one.error).rstrip('.')})"
            raise InvalidTrace(
                f"{one.in_words(recording.name)}{why}, and there is no snapshot to go on from."
            )
        elif one.error is not None:
            faults.append(f"Step {one.first} is damaged: {malformed(one.error)}.")
    gaps = [event.resumed for event in events if event.resumed is not None]
    faults += [english(f"{not_shown(resumed)}{GOES_ON}") for resumed in gaps[:_MOST_GAPS]]
    if len(gaps) > _MOST_GAPS:
        faults.append(english(f"So it is in {len(gaps) - _MOST_GAPS} more [place|places]."))
    if sequence.missing is not None:
        faults.append(f"After step {sequence.missing.first - 1} {REST_IS_MISSING}")
    return conversion, events, faults
