"""Follows an engine through the recording that it writes: `Follower.poll` returns what has happened since the last call. Memory stays bounded.

    lines of a growing file ─→ steps in order ─→ events, checked by the rules of every run ─→ the caller

Files may be renamed, removed, replaced or left unfinished while they are read; nothing here waits for them. `Follower.sentence` says what is wrong
with them, and whatever can be shown is still returned. Independent of terminal and page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace
from core.recorders.conversion import DAMAGE, Conversion, still_there
from core.recorders.gaps import Gap
from core.recorders.growing import (
    Lines,
    RawHeader,
    engine_of,
    is_written,
    newest,
    part_of,
    recording_named,
)
from core.recorders.raw import Recording, take
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.texts import model_folder
from core.trace.detokenize import LEFT_OUT
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import english
from core.trace.rules import Checker
from core.workload.request import Request

MOST_LINES = 1024  # read in one poll
_OPEN = 8  # with asynchronous scheduling, a step counts as missing once so many later ones have been written
_UNTIL = "steps are shown again from the next snapshot on, or once all earlier requests have ended."
_QUIET = 20  # polls without anything new, after which the pending step is taken as it is
Step = dict[str, Any]


@dataclass(frozen=True)
class RecordingBegun:
    """A recording begins, or begins again after a step that cannot be followed. header: as in a trace. model: its name as the engine was given it."""

    header: Header
    model: str


@dataclass(frozen=True)
class RequestSeen:
    """A request that arrives in the next step. prompt: its token ids; LEFT_OUT for each where prompts were not recorded."""

    request: str
    prompt: list[int]
    max_new_tokens: int


Update = RecordingBegun | RequestSeen | StepEvent


class Follower:
    """Follows the newest recording at a place (a file or a folder), and each newer one that replaces it.

    rank, engine: which recordings count, see `newest`. By default it switches to another engine only after the current one has ended or stopped writing.
    sentence: the state of the recording where the steps do not show it, or an empty text. is_over: the recording has ended, and no other has begun.
    is_refused: its place is a file that is no recording. has_more: the last poll left lines that are already there.
    """

    def __init__(self, place: Path, rank: int | None = None, engine: str | None = None) -> None:
        self.place, self.rank, self.engine = place, rank, engine
        self.is_over, self.has_more, self.is_refused = False, False, False
        self._lines: Lines | None = None
        self._refused: RawHeader | None = None  # the recording that cannot be followed
        self._missing = self._said = ""  # what is wrong with the place, and with the recording
        self._quiet = 0  # polls in a row without anything new

    @property
    def sentence(self) -> str:
        """What is to be told of the recording now: that it is not there, or what was said last; empty if nothing."""
        return self._missing or self._said

    @property
    def facts(self) -> RawHeader:
        """The header of the recording; empty where there is none."""
        return self._lines.header if self._lines else self._refused or {}

    @property
    def name(self) -> str:
        """The file that is read, or the place where one is expected."""
        return (self._lines.path if self._lines else self.place).name

    def poll(self) -> list[Update]:
        """What has happened since the last call. A step is returned only once it is known which of its requests compute another row in the next one."""
        updates: list[Update] = []
        for _ in range(MOST_LINES):
            try:
                line = self._lines.next() if self._lines else None
            except (InvalidTrace, OSError) as error:
                self._said = f"{self.name} cannot be read on: {error}"
                line = None
            if line is not None:
                self._read(line, updates)
            elif not self._another(updates):
                self.has_more = False
                break
        else:
            self.has_more = True
        self._quiet = 0 if updates else self._quiet + 1
        if self._quiet == _QUIET and self._lines:
            self._settle(updates)
        return updates

    # -- which recording -----------------------------------------------------------------------------------------------

    def _another(self, updates: list[Update]) -> bool:
        """Switch to another recording, if there is one; otherwise note what is missing. Returns whether another one is followed now."""
        self._missing, self.is_refused = "", False
        try:
            found = newest(self.place, self.rank, self.engine)
        except InvalidTrace as error:
            self._missing, self.is_refused = str(error), True
            return False
        known = self._lines.header if self._lines else self._refused
        if found is not None and (
            known is None or recording_named(found[1]) != recording_named(known)
        ):
            if self._lines:
                if (
                    engine_of(found[1]) != engine_of(self._lines.header)
                    and not self.is_over
                    and is_written(self._lines.path)
                ):
                    return False
                self._settle(updates)
                self._lines.close()
            return self._begin(*found, updates)
        if self._lines and not self._lines.path.exists():
            self._missing = f"{self.name} has been removed: what its engine still writes is shown, and then whichever recording comes."
        elif known is None and self.place.is_dir():
            self._missing = f"There is no recording in {self.place.name} yet: it is shown as soon as an engine writes one."
        elif known is None:
            lacking = "has no recording yet" if self.place.exists() else "is not there yet"
            self._missing = f"{self.name} {lacking}: it is shown as soon as an engine writes it."
        return False

    def _begin(self, path: Path, header: RawHeader, updates: list[Update]) -> bool:
        """Start on this recording. Returns whether it can be followed."""
        recording = Recording(path.name, header)
        self._lines, self._refused, self.is_over, self._said = None, header, False, ""
        try:
            check_facts(recording)
            lines = Lines(path, header)
            self._anew(recording, recording.untried, updates)
        except OSError as error:
            self._said = f"{path.name} cannot be read: {error.strerror}."
        except DAMAGE as error:
            self._said = (
                str(error)
                if isinstance(error, InflightError)
                else f"{path.name} has a header that cannot be followed."
            )
        else:
            self._lines, self._refused = lines, None
            is_whole = part_of(header) == 1
            self._next: int | None = (
                0 if is_whole else None
            )  # the number of the step that is expected
            self._early: dict[int, Step] = {}
            self._snapshots: dict[int, Step] = {}  # of steps to come
            self._last = -1  # the number of the step that was taken last
            if not is_whole:
                self._lose(Gap(0, recording), f"{path.name} is not the first part of its recording")
        return self._lines is not None

    def _anew(self, recording: Recording, notes: list[str], updates: list[Update]) -> None:
        """Start with nothing but the header of an engine."""
        self._conversion = Conversion(recording, 0.0)
        model = str(recording.header.get("model", ""))
        absent = ()  # whether its steps have logprobs is not known yet
        header = replace(
            trace_header(recording, model_folder(model), 0.0, absent, notes),
            workload="followed",
            arrival_unit="s",
        )
        self._checker = Checker(header)
        self._pending: Step | None = None  # the latest step, which waits for the next one
        self._gap: Gap | None = None  # steps that cannot be shown, until the state is known again
        self._goes_on: Gap | None = None  # the gap that ends with the pending step
        updates.append(RecordingBegun(header, model))

    # -- its steps -----------------------------------------------------------------------------------------------------

    def _read(self, line: str, updates: list[Update]) -> None:
        recording = Recording(self.name, {})
        try:
            take(recording, json.loads(line))
        except DAMAGE:
            self._said = f"{self.name} has a line that is no record."
            return
        self._conversion.abort(recording.aborts)
        self._snapshots |= recording.snapshots
        for step in recording.steps:
            self._sort(step, updates)
        if recording.complete:
            self._settle(updates)
            self.is_over = True
            dropped = (
                f" Its recorder could not keep up and dropped {recording.dropped} records."
                if recording.dropped
                else ""
            )
            why = (
                " ".join(recording.faults)
                or "The recording has ended: its engine was shut down, or records no more."
            )
            self._said = why + dropped

    def _sort(self, step: Step, updates: list[Update]) -> None:
        """Take steps in order. Each is written when its output is back; with asynchronous scheduling, one without a pass is written at once, and so may
        stand before earlier ones.
        """
        number = step["step"]
        if self._next is not None and number < self._next:
            self._said = f"{self.name} has step {number} after step {self._next - 1}."
            return
        self._next = number if self._next is None else self._next
        self._early[number] = step
        self._take_early(updates)
        if len(self._early) > (_OPEN if self._is_asynchronous else 0):
            self._skip(updates)

    @property
    def _is_asynchronous(self) -> bool:
        if self._lines is None:
            return True
        header = self._lines.header
        return (
            bool(header.get("async_scheduling")) or (header.get("pipeline_parallel_size") or 1) > 1
        )

    def _take_early(self, updates: list[Update]) -> None:
        while self._next in self._early:
            self._take(self._early.pop(self._next), updates)
            self._next += 1

    def _skip(self, updates: list[Update]) -> None:
        """Stop waiting for the next step, which is missing."""
        self._next = min(self._early)
        self._take_early(updates)

    def _settle(self, updates: list[Update]) -> None:
        """Nothing more is expected: emit every step that waits."""
        while self._early:
            self._skip(updates)
        if self._pending is not None:
            self._emit(frozenset(), updates)

    def _take(self, step: Step, updates: list[Update]) -> None:
        number, expected = step["step"], self._last + 1
        snapshot, self._last = self._snapshots.get(number), number
        self._snapshots = {
            later: known for later, known in self._snapshots.items() if later > number
        }
        if self._pending is not None:
            self._emit(
                still_there(self._pending, step) if number == expected else frozenset(), updates
            )
        if self._gap is None and number != expected:
            missing = (
                f"Step {expected} is"
                if number == expected + 1
                else f"Steps {expected} to {number - 1} are"
            )
            self._lose(
                Gap(expected, self._conversion.recording), f"{missing} missing in {self.name}"
            )
        if self._gap is not None and not self._resume(self._gap, step, snapshot):
            return
        self._pending = step
        if not step.get("finished") or not self._is_asynchronous:
            self._emit(frozenset(), updates)

    def _resume(self, gap: Gap, step: Step, snapshot: Step | None) -> bool:
        """Whether the state before this step is known, so that the run goes on from it."""
        try:
            if self._conversion.resume(gap, step, snapshot):
                self._gap, self._goes_on, self._said = None, gap, ""
                return True
        except DAMAGE:
            gap.is_damaged(step)
        self._say_passed(gap)
        return False

    def _emit(self, later: frozenset[str], updates: list[Update]) -> None:
        """Emit the pending step. later: the requests that are `still_there` in the step after it."""
        assert self._pending is not None
        step, gap = (
            self._pending,
            self._goes_on or Gap(self._pending["step"], self._conversion.recording),
        )
        self._pending = self._goes_on = None
        requests_seen: list[Update] = []
        try:
            event = self._conversion.event(step, later)
        except DAMAGE as error:
            self._conversion.take_requests()
            gap.is_damaged(step)
            return self._lose(
                gap,
                str(error).rstrip(".")
                if isinstance(error, InflightError)
                else f"Step {step['step']} is damaged",
            )
        try:
            for asked in self._conversion.take_requests():
                request = Request.from_json(asked)
                prompt = asked["prompt_token_ids"]
                if fault := self._checker.fault_of_request(request, prompt):
                    raise InvalidTrace(fault)
                ids = [LEFT_OUT] * len(prompt) if self._conversion.recording.is_hashed else prompt
                requests_seen.append(RequestSeen(request.id, ids, request.sampling.max_new_tokens))
            if fault := self._checker.fault(event):
                raise InvalidTrace(fault)
        except DAMAGE as error:  # the checker may have taken part of it
            sentence = (
                str(error).rstrip(".")
                if isinstance(error, InflightError)
                else f"Step {step['step']} is damaged"
            )
            self._anew(self._conversion.recording, [f"{sentence}."], updates)
            gap.is_damaged(step)
            return self._lose(gap, sentence)
        self._checker.forget_finished()
        self._conversion.forget_finished()
        updates += [*requests_seen, event._replace(warnings=self._checker.warnings)]

    def _lose(self, gap: Gap, sentence: str) -> None:
        """The engine's state is unknown from here on. sentence: why, without a full stop."""
        self._gap, self._lost = gap, sentence
        self._said = f"{sentence}: {_UNTIL}"

    def _say_passed(self, gap: Gap) -> None:
        """Count steps that cannot be shown in round numbers, so that the sentence rarely changes."""
        if str(gap.passed).rstrip("0") in ("1", "2", "5"):
            passed = english(f"At least {gap.passed:,} [step has|steps have] passed meanwhile.")
            self._said = f"{self._lost}: {_UNTIL} {passed}"
