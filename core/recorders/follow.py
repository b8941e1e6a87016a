"""Follows an engine through the recording that it writes: `Follower.poll` returns what has happened
since the last call. Memory stays bounded.

    lines of a growing file ─→ steps in order ─→ events, checked by the rules of every run ─→ the
        caller

Files may be renamed, removed, replaced or left unfinished while they are read; nothing here waits
for them. `Follower.sentence` says what is wrong with them, and whatever can be shown is returned.
Independent of terminal and page.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace
from core.recorders.conversion import Conversion
from core.recorders.growing import (
    Lines,
    RawHeader,
    engine_of,
    is_written,
    newest,
    part_of,
    recording_named,
)
from core.recorders.raw import MissingSteps, Recording, lost, take
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.sequence import DAMAGE, Contradiction, EventSequence, Lost
from core.recorders.texts import model_folder
from core.trace.detokenize import LEFT_OUT
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import english
from core.trace.rules.checker import Checker
from core.workload.request import Request

MOST_LINES = 1024  # read in one poll
# with asynchronous scheduling, a step counts as missing once this many later ones have been written
_OPEN = 8
_UNTIL = "steps are shown again from the next snapshot on."
_QUIET = 20  # polls without anything new, after which the pending step is taken as it is
Step = dict[str, Any]


@dataclass(frozen=True)
class RecordingBegun:
    """A recording begins, or begins again after a step that cannot be followed. header: as in a
    trace. model: its name as given to the engine.
    """

    header: Header
    model: str


@dataclass(frozen=True)
class RequestSeen:
    """A request that arrives in the next step. prompt: token ids, LEFT_OUT if unknown."""

    request: str
    prompt: list[int]
    max_new_tokens: int


Update = RecordingBegun | RequestSeen | StepEvent


class Follower:
    """Follows the newest recording at a place (a file or a folder), and newer ones that replace it.

    rank, engine: which recordings to consider, see `newest`. By default it switches to another
    engine only after the current one has ended or stopped writing. sentence: the state of the
    recording if the steps do not show it, or an empty text. is_over: the recording has ended, and
    no other has begun. is_refused: the place is a file that is not a recording. has_more: the last
    poll left lines that are already there.
    """

    def __init__(self, place: Path, rank: int | None = None, engine: str | None = None) -> None:
        self.place, self.rank, self.engine = place, rank, engine
        self.is_over, self.has_more, self.is_refused = False, False, False
        self._lines: Lines | None = None
        self._refused: RawHeader | None = None  # the recording that cannot be followed
        self._missing = self._said = ""  # what is wrong with the place, and with the recording
        self._quiet = 0  # polls in a row without anything new
        self._begun: RecordingBegun | None = None  # not returned yet

    @property
    def sentence(self) -> str:
        """What to say about the recording now: that it is missing, or the latest sentence."""
        return self._missing or self._said

    @property
    def facts(self) -> RawHeader:
        """The header of the recording; empty if there is none."""
        return self._lines.header if self._lines else self._refused or {}

    @property
    def name(self) -> str:
        """The file that is read, or the place where one is expected."""
        return (self._lines.path if self._lines else self.place).name

    def poll(self) -> list[Update]:
        """What has happened since the last call. A step is returned only once it is known which of
        its requests compute another row in the next one.
        """
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
        self._announce(updates)
        self._quiet = 0 if updates else self._quiet + 1
        if self._quiet == _QUIET and self._lines:
            self._settle(updates)
        return updates

    # -- which recording ---------------------------------------------------------------------------

    def _another(self, updates: list[Update]) -> bool:
        """Switch to another recording, or note what is missing; returns whether it switched."""
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
            self._missing = (
                f"{self.name} has been removed: what its engine still writes is shown, and then"
                " whichever recording comes."
            )
        elif known is None and self.place.is_dir():
            self._missing = (
                f"There is no recording in {self.place.name} yet: it is shown as soon as an engine"
                " writes one."
            )
        elif known is None:
            lacking = "has no recording yet" if self.place.exists() else "is not there yet"
            self._missing = f"{self.name} {lacking}: it is shown as soon as an engine writes it."
        return False

    def _begin(self, path: Path, header: RawHeader, updates: list[Update]) -> bool:
        """Start on this recording. Returns whether it can be followed."""
        recording = Recording(path.name, header)
        self._lines, self._refused, self.is_over, self._said = None, header, False, ""
        self._start: float | None = None  # time 0: the earliest arrival, as in an import
        self._has_shown = False  # any step
        try:
            check_facts(recording)
            lines = Lines(path, header)
            conversion = self._anew(recording, recording.untried)
        except OSError as error:
            self._said = f"{path.name} cannot be read: {error.strerror}."
        except DAMAGE as error:
            self._said = f"{path.name} has a header that cannot be followed."
            if isinstance(error, InflightError):
                self._said = str(error)
        else:
            self._lines, self._refused = lines, None
            self._sequence = EventSequence(conversion)
            is_whole = part_of(header) == 1
            # the number of the step that is expected
            self._next: int | None = 0 if is_whole else None
            self._early: dict[int, Step] = {}
            self._snapshots: dict[int, Step] = {}  # of steps to come
            if not is_whole:
                self._sequence.missing = MissingSteps(0)
                self._lose(f"{path.name} is not the first part of its recording")
        return self._lines is not None

    def _anew(self, recording: Recording, notes: list[str]) -> Conversion:
        """Start again with nothing but the header of the recording."""
        self._notes = notes
        self._prepare(recording)
        return Conversion(recording, self._start or 0.0)

    def _prepare(self, recording: Recording) -> None:
        """Make the header and its rules; they are announced before the first step."""
        model = str(recording.header.get("model", ""))
        absent = ()  # whether its steps have logprobs is not known yet
        header = replace(
            trace_header(recording, model_folder(model), self._start or 0.0, absent, self._notes),
            workload="followed",
            arrival_unit="s",
        )
        self._checker = Checker(header)
        self._begun = RecordingBegun(header, model)

    def _announce(self, updates: list[Update]) -> None:
        if self._begun is not None:
            updates.append(self._begun)
        self._begun = None

    def _set_clock(self, step: Step, snapshot: Step | None) -> None:
        """Before the first step that is shown, set time 0 to the earliest arrival so far."""
        rows = [*step["arrived"], *(snapshot["requests"] if snapshot else ())]
        times = [row["t"] for row in rows if row.get("t") is not None]
        known = [] if self._start is None else [self._start]
        start = min([*known, *times], default=None)
        if start is not None and start != self._start:
            self._start = start
            conversion = self._sequence.conversion
            conversion.begin_at(start)
            self._prepare(conversion.recording)

    # -- its steps ---------------------------------------------------------------------------------

    def _read(self, line: str, updates: list[Update]) -> None:
        recording = Recording(self.name, {})
        try:
            take(recording, json.loads(line))
        except DAMAGE:
            self._said = f"{self.name} has a line that is no record."
            return
        self._sequence.conversion.abort(recording.aborts)
        self._snapshots |= recording.snapshots
        for step in recording.steps:
            self._sort(step, updates)
        if recording.complete:
            self._settle(updates)
            self.is_over = True
            ended = "The recording has ended: its engine was shut down, or records no more."
            self._said = " ".join([*(recording.faults or [ended]), *lost(recording.dropped)])

    def _sort(self, step: Step, updates: list[Update]) -> None:
        """Take steps in order. A step is written when its output is back; with asynchronous
        scheduling, a step without a pass is written at once, and so may come before earlier ones.
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
        stages = self.facts.get("pipeline_parallel_size") or 1
        return bool(self.facts.get("async_scheduling")) or stages > 1

    def _take_early(self, updates: list[Update]) -> None:
        while self._next in self._early:
            self._take(self._early.pop(self._next), updates)
            self._next += 1

    def _skip(self, updates: list[Update]) -> None:
        """Stop waiting for the next step, which is missing."""
        self._next = min(self._early)
        self._take_early(updates)

    def _settle(self, updates: list[Update]) -> None:
        """Show every step that waits, because nothing more is expected."""
        while self._early:
            self._skip(updates)
        self._show(self._sequence.settle(), updates)

    def _take(self, step: Step, updates: list[Update]) -> None:
        number = step["step"]
        snapshot = self._snapshots.get(number)
        self._snapshots = {n: known for n, known in self._snapshots.items() if n > number}
        if not self._has_shown:
            with suppress(*DAMAGE):  # damage of this step is reported below
                self._set_clock(step, snapshot)
        self._show(self._sequence.take(step, snapshot), updates)
        if self._sequence.missing is not None:
            self._say_passed(self._sequence.missing)
        elif not step.get("finished") or not self._is_asynchronous:
            self._show(self._sequence.settle(), updates)

    def _show(
        self, taken: Iterable[StepEvent | Lost | Contradiction], updates: list[Update]
    ) -> None:
        for one in taken:
            if isinstance(one, StepEvent):
                self._check(one, updates)
            elif isinstance(one, Contradiction):
                self._said = one.sentence
            else:
                self._lose(_sentence(one, self.name))

    def _check(self, event: StepEvent, updates: list[Update]) -> None:
        """Show a step with its requests if they obey the rules of every run."""
        conversion, requests_seen = self._sequence.conversion, list[Update]()
        if event.resumed is not None:
            self._said = ""
        try:
            for asked in conversion.take_requests():
                request = Request.from_json(asked)
                prompt = asked["prompt_token_ids"]
                if fault := self._checker.fault_of_request(request, prompt):
                    raise InvalidTrace(fault)
                ids = [LEFT_OUT] * len(prompt) if conversion.recording.is_hashed else prompt
                requests_seen.append(RequestSeen(request.id, ids, request.sampling.max_new_tokens))
            if fault := self._checker.fault(event):
                raise InvalidTrace(fault)
        except DAMAGE as error:  # the checker may have taken part of it
            sentence = _sentence(Lost(event.step, event.step, error), self.name)
            anew = self._anew(conversion.recording, [f"{sentence}."])
            self._sequence.restart(anew, event.step, error)
            return self._lose(sentence)
        self._checker.forget_finished()
        conversion.forget_finished()
        self._has_shown = True
        self._announce(updates)
        updates += [*requests_seen, event._replace(warnings=self._checker.warnings)]

    def _lose(self, sentence: str) -> None:
        """Note that the engine's state is unknown from here on. sentence: the reason."""
        self._lost = sentence
        self._said = f"{sentence}: {_UNTIL}"

    def _say_passed(self, missing: MissingSteps) -> None:
        """Report steps that cannot be shown, in round numbers, so that it rarely changes."""
        if str(missing.passed).rstrip("0") in ("1", "2", "5"):
            passed = english(f"At least {missing.passed:,} [step has|steps have] passed meanwhile.")
            self._said = f"{self._lost}: {_UNTIL} {passed}"


def _sentence(lost: Lost, name: str) -> str:
    """What is wrong in a recording, without a full stop."""
    if isinstance(lost.error, InflightError):
        return str(lost.error).rstrip(".")
    return lost.in_words(name)
