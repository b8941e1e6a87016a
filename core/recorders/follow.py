"""Follows an engine by the recording that it writes: what has happened since one last looked, in memory that does not grow.

    lines of a growing file ─→ steps in their order ─→ events that obey the rules of every run ─→ whoever looks

Files may be renamed, removed, begun anew or left unfinished while they are read: nothing here waits for them. Whatever happens to them is told in a
sentence, and what can be shown is. Knows no terminal and no page.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from core.errors import InflightError, InvalidTrace
from core.recorders.convert import DAMAGE, Conversion
from core.recorders.gaps import Gap
from core.recorders.raw import MAX_LINE_BYTES, Recording, check_header, is_raw, take
from core.recorders.recorded_header import check_facts, trace_header
from core.recorders.texts import LEFT_OUT, model_folder
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import english
from core.trace.rules import Checker
from core.workload.request import Request

MOST_LINES = 1024  # that one look takes in
_OPEN = 8  # steps of an asynchronous engine that may be written before one that was scheduled earlier; then that one is missing
_UNTIL = "what comes is shown from the next snapshot on, or once nobody from before is left."
_QUIET = 20  # looks without anything new after which nothing more is expected of a step
Step = dict[str, Any]
RawHeader = dict[str, Any]


@dataclass(frozen=True)
class Begun:
    """A recording begins, or is shown anew after a step that cannot be followed. header: a trace's. model: as the engine was told of it."""

    header: Header
    model: str


@dataclass(frozen=True)
class Met:
    """A request that arrives in the step to come. prompt: its token ids, LEFT_OUT where they were."""

    request: str
    prompt: list[int]
    max_new_tokens: int


News = Begun | Met | StepEvent


class Follower:
    """The newest recording at a place, a file or a folder, and whichever takes its place. rank: whose, in a folder; by default the lowest there.

    sentence: how things stand, where the steps do not say it. is_over: the recording has ended, and no other has begun.
    has_more: the last look left something that is there already.
    """

    def __init__(self, place: Path, rank: int | None = None) -> None:
        self.place, self.rank = place, rank
        self.is_over, self.has_more = False, False
        self._lines: Lines | None = None
        self._refused: RawHeader | None = None  # the recording that cannot be followed
        self._missing = self._said = ""  # what is wrong with the place, and with the recording
        self._quiet = 0  # looks without anything new

    @property
    def sentence(self) -> str:
        return self._missing or self._said

    @property
    def name(self) -> str:
        return (self._lines.path if self._lines else self.place).name

    def look(self) -> list[News]:
        """What has happened since the last call; a step once it is known who of it computes one more row."""
        news: list[News] = []
        for _ in range(MOST_LINES):
            try:
                line = self._lines.next() if self._lines else None
            except (InvalidTrace, OSError) as error:
                self._said = f"{self.name} cannot be read on: {error}"
                line = None
            if line is not None:
                self._read(line, news)
            elif not self._another(news):
                self.has_more = False
                break
        else:
            self.has_more = True
        self._quiet = 0 if news else self._quiet + 1
        if self._quiet == _QUIET and self._lines:
            self._settle(news)
        return news

    # -- which recording -----------------------------------------------------------------------------------------------

    def _another(self, news: list[News]) -> bool:
        """Go over to another recording, if one is there; else say how things stand."""
        self._missing = ""
        try:
            found = newest(self.place, self.rank)
        except InvalidTrace as error:
            self._missing = str(error)
            return False
        known = self._lines.header if self._lines else self._refused
        if found is not None and (known is None or recording_named(found[1]) != recording_named(known)):
            if self._lines:
                self._settle(news)
                self._lines.close()
            return self._begin(*found, news)
        if self._lines and not self._lines.path.exists():
            self._missing = (
                f"{self.name} has been removed: what its engine still writes is shown, and then whichever recording comes."
            )
        elif known is None and self.place.is_dir():
            self._missing = f"There is no recording in {self.place.name} yet: it is shown as soon as an engine writes one."
        elif known is None:
            self._missing = f"{self.name} is not there yet: it is shown as soon as an engine writes it."
        return False

    def _begin(self, path: Path, header: RawHeader, news: list[News]) -> bool:
        """Whether it can be followed."""
        recording = Recording(path.name, header)
        self._lines, self._refused, self.is_over, self._said = None, header, False, ""
        try:
            check_facts(recording)
            lines = Lines(path, header)
            self._anew(recording, recording.untried, news)
        except OSError as error:
            self._said = f"{path.name} cannot be read: {error.strerror}."
        except DAMAGE as error:
            self._said = str(error) if isinstance(error, InflightError) else f"{path.name} has a header that cannot be followed."
        else:
            self._lines, self._refused = lines, None
            is_whole = _part(header) == 1
            self._next: int | None = 0 if is_whole else None  # the number of the step that is expected
            self._early: dict[int, Step] = {}
            self._snapshots: dict[int, Step] = {}  # of steps to come
            self._last = -1  # the number of the step that was taken last
            if not is_whole:
                self._lose(Gap(0, recording), f"{path.name} is not the first part of its recording")
        return self._lines is not None

    def _anew(self, recording: Recording, notes: list[str], news: list[News]) -> None:
        """An engine of which nothing is known but its header."""
        self._conversion = Conversion(recording, 0.0)
        model = str(recording.header.get("model", ""))
        absent = ()  # nobody can say yet whether its steps have logprobs
        header = replace(trace_header(recording, model_folder(model), 0.0, absent, notes), workload="followed", arrival_unit="s")
        self._checker = Checker(header)
        self._pending: Step | None = None  # the step that waits for the one after it
        self._gap: Gap | None = None  # steps that cannot be shown, until the state is known again
        self._goes_on: Gap | None = None  # the gap that ends with the pending step
        news.append(Begun(header, model))

    # -- its steps -----------------------------------------------------------------------------------------------------

    def _read(self, line: str, news: list[News]) -> None:
        recording = Recording(self.name, {})
        try:
            take(recording, json.loads(line))
        except DAMAGE:
            self._said = f"{self.name} has a line that is no record."
            return
        self._conversion.abort(recording.aborts)
        self._snapshots |= recording.snapshots
        for step in recording.steps:
            self._sort(step, news)
        if recording.complete:
            self._settle(news)
            self.is_over = True
            dropped = f" Its recorder could not keep up and dropped {recording.dropped} records." if recording.dropped else ""
            why = " ".join(recording.faults) or "The recording has ended: its engine was shut down, or records no more."
            self._said = why + dropped

    def _sort(self, step: Step, news: list[News]) -> None:
        """Steps are written in their order when their outputs are back. With asynchronous scheduling one without a pass is written as soon as it is
        scheduled.
        """
        number = step["step"]
        if self._next is not None and number < self._next:
            self._said = f"{self.name} has step {number} after step {self._next - 1}."
            return
        self._next = number if self._next is None else self._next
        self._early[number] = step
        self._take_early(news)
        if len(self._early) > (_OPEN if self._is_asynchronous else 0):
            self._skip(news)

    @property
    def _is_asynchronous(self) -> bool:
        return self._lines is None or bool(self._lines.header.get("async_scheduling"))

    def _take_early(self, news: list[News]) -> None:
        while self._next in self._early:
            self._take(self._early.pop(self._next), news)
            self._next += 1

    def _skip(self, news: list[News]) -> None:
        """Give up on the step that is expected."""
        self._next = min(self._early)
        self._take_early(news)

    def _settle(self, news: list[News]) -> None:
        """Nothing more is expected: what waited is told."""
        while self._early:
            self._skip(news)
        if self._pending is not None:
            self._tell(frozenset(), news)

    def _take(self, step: Step, news: list[News]) -> None:
        number, expected = step["step"], self._last + 1
        snapshot, self._last = self._snapshots.get(number), number
        self._snapshots = {later: known for later, known in self._snapshots.items() if later > number}
        if self._pending is not None:
            self._tell(_computing(step) if number == expected else frozenset(), news)
        if self._gap is None and number != expected:
            missing = f"Step {expected} is" if number == expected + 1 else f"Steps {expected} to {number - 1} are"
            self._lose(Gap(expected, self._conversion.recording), f"{missing} missing in {self.name}")
        if self._gap is not None and not self._resume(self._gap, step, snapshot):
            return
        self._pending = step
        if not step.get("finished") or not self._is_asynchronous:
            self._tell(frozenset(), news)

    def _resume(self, gap: Gap, step: Step, snapshot: Step | None) -> bool:
        """Whether the state before this step is known: the run goes on with it."""
        try:
            if self._conversion.resume(gap, step, snapshot):
                self._gap, self._goes_on, self._said = None, gap, ""
                return True
        except DAMAGE:
            gap.is_damaged(step)
        self._say_passed(gap)
        return False

    def _tell(self, later: frozenset[str], news: list[News]) -> None:
        """The step that waited. later: who has rows in the one after it."""
        assert self._pending is not None
        step, gap = self._pending, self._goes_on or Gap(self._pending["step"], self._conversion.recording)
        self._pending = self._goes_on = None
        met: list[News] = []
        try:
            event = self._conversion.event(step, later)
        except DAMAGE as error:
            self._conversion.take_requests()
            gap.is_damaged(step)
            return self._lose(
                gap, str(error).rstrip(".") if isinstance(error, InflightError) else f"Step {step['step']} is damaged"
            )
        try:
            for asked in self._conversion.take_requests():
                request = Request.from_json(asked)
                prompt = asked["prompt_token_ids"]
                if fault := self._checker.fault_of_request(request, prompt):
                    raise InvalidTrace(fault)
                ids = [LEFT_OUT] * len(prompt) if self._conversion.recording.is_hashed else prompt
                met.append(Met(request.id, ids, request.sampling.max_new_tokens))
            if fault := self._checker.fault(event):
                raise InvalidTrace(fault)
        except DAMAGE as error:  # nobody knows what the checker has taken of it
            sentence = str(error).rstrip(".") if isinstance(error, InflightError) else f"Step {step['step']} is damaged"
            self._anew(self._conversion.recording, [f"{sentence}."], news)
            gap.is_damaged(step)
            return self._lose(gap, sentence)
        self._checker.forget_finished()
        self._conversion.forget_finished()
        news += [*met, event._replace(warnings=self._checker.warnings)]

    def _lose(self, gap: Gap, sentence: str) -> None:
        """What is known of the engine no longer holds. sentence: without a full stop."""
        self._gap, self._lost = gap, sentence
        self._said = f"{sentence}: {_UNTIL}"

    def _say_passed(self, gap: Gap) -> None:
        """Steps that cannot be shown are counted in round numbers, so that a long wait says little."""
        if str(gap.passed).rstrip("0") in ("1", "2", "5"):
            passed = english(f"At least {gap.passed:,} [step has|steps have] passed meanwhile.")
            self._said = f"{self._lost}: {_UNTIL} {passed}"


def _computing(step: Step) -> frozenset[str]:
    return frozenset(segment["request"] for segment in step["segments"])


# -- the files -------------------------------------------------------------------------------------------------------


def header_of(path: Path) -> RawHeader | None:
    """The header that a file begins with; None where there is no file yet, or its first line is still being written. Raises InvalidTrace
    for what is no raw recording, or cannot be read.
    """
    if not path.exists():
        return None
    if not path.is_file():
        raise InvalidTrace(f"{path.name} is no file.")
    try:
        with path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES)
    except OSError as error:
        raise InvalidTrace(f"{path.name} cannot be read: {error.strerror}.") from None
    if not first.endswith(b"\n") and len(first) < MAX_LINE_BYTES:
        return None
    text = first.decode("utf-8", "replace")
    if not is_raw(text):
        raise InvalidTrace(f"{path.name} is no raw recording: its first line is not the header of one.")
    header: RawHeader = json.loads(text)
    check_header(header, path.name)
    return header


def recording_named(header: RawHeader) -> RawHeader:
    """What tells a recording from every other: its header, which all its parts share."""
    return {fact: value for fact, value in header.items() if fact not in ("part", "line")}


def newest(place: Path, rank: int | None = None) -> tuple[Path, RawHeader] | None:
    """The first file of the newest recording, and its header: of this file or of those beside it that a recorder told of this name has
    written, or in this folder, where files that are none do not count.

    rank: whose; by default the lowest there is. None where nothing has been recorded. Raises InvalidTrace for a file that is none.
    """
    if place.is_dir():
        found = _recordings(place)
    else:
        header = header_of(place)
        found = [(place, header)] if header else []
        found += [(path, header) for path, header in _recordings(place.parent) if path != place and _is_of(path.name, place.name)]
    if rank is None:
        rank = min((_rank(header) for _, header in found), default=0)
    mine = [(path, header) for path, header in found if _rank(header) == rank]
    if not mine:
        return None
    latest = recording_named(max((header for _, header in mine), key=lambda header: str(header.get("created", ""))))
    return min((pair for pair in mine if recording_named(pair[1]) == latest), key=lambda pair: _part(pair[1]))


def _is_of(name: str, told: str) -> bool:
    """Whether a recorder that was told to write to one name would call a file by this one: see `Parts` of the recorder."""
    suffix = ".raw.jsonl" if told.endswith(".raw.jsonl") else ".jsonl" * told.endswith(".jsonl")
    stem, kind = re.escape(told.removesuffix(suffix)), re.escape(suffix.removesuffix(".jsonl"))
    return re.fullmatch(rf"{stem}(\.\d{{8}}-\d{{6}}(-\d+)?)?{kind}(\.\d+)?\.jsonl", name) is not None


def ranks_in(place: Path) -> list[int]:
    """The data-parallel ranks that are on record in a folder."""
    return sorted({_rank(header) for _, header in _recordings(place)}) if place.is_dir() else []


def _recordings(folder: Path) -> list[tuple[Path, RawHeader]]:
    found = []
    for path in folder.glob("*.jsonl"):
        with suppress(OSError):  # it may be gone by now
            now = path.stat()
            if (header := _header_then(path, now.st_ino, now.st_size, now.st_mtime_ns)) is not None:
                found.append((path, header))
    return found


@lru_cache(maxsize=4096)
def _header_then(path: Path, inode: int, size: int, modified: int) -> RawHeader | None:
    """The header of a file as it was then, read once: a folder is looked at again and again, and most files in it do not change."""
    try:
        return header_of(path)
    except InvalidTrace:
        return None


def _rank(header: RawHeader) -> int:
    rank = header.get("rank", 0)
    return rank if type(rank) is int else 0


def _part(header: RawHeader) -> int:
    return Recording("", header).part


class Lines:
    """The lines of one recording after its header, as they become whole, over all its parts. path: of the part that is read."""

    def __init__(self, path: Path, header: RawHeader) -> None:
        self.header = header
        self._file: IO[bytes] | None = None
        self._rest = b""  # of a line that is still being written
        self._open(path, _part(header))

    def next(self) -> str | None:
        """The next line with its end, if there is one yet; one that its part left unfinished comes without. Raises InvalidTrace for one without end."""
        assert self._file is not None
        read = self._file.readline(MAX_LINE_BYTES)
        following = None if read else self._following()
        if following is not None:
            read = self._file.readline(MAX_LINE_BYTES)  # the last of it may have come just before the next part was begun
        self._rest += read
        if len(self._rest) >= MAX_LINE_BYTES:
            raise InvalidTrace(f"{self.path.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB.")
        if not self._rest.endswith(b"\n") and (read or following is None):
            return None
        line, self._rest = self._rest, b""
        if not read and following is not None:
            self._open(*following)
            return line.decode("utf-8", "replace") if line else self.next()
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path, part: int) -> None:
        self.close()
        self.path, self._part, self._file = path, part, path.open("rb")
        self._file.readline()  # its header, which is known

    def _following(self) -> tuple[Path, int] | None:
        """The next part that is kept, whatever it is called, once it has begun."""
        mine = recording_named(self.header)
        later = [
            (path, _part(header))
            for path, header in _recordings(self.path.parent)
            if _part(header) > self._part and recording_named(header) == mine
        ]
        return min(later, key=lambda found: found[1], default=None)
