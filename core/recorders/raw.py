"""Reads raw recordings of other engines, damaged ones included: from JSON lines to plain records.
Independent of engines and traces.

A file begins with a header; each line after it is a step, a snapshot, an abort, or the end. A long
recording has several parts, and a data-parallel engine has a recording for each rank. Each defect
is reported in a sentence, and the rest still opens: a damaged line costs only that line.
"""

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.errors import InvalidTrace
from core.files import open_file, path_of, read_json
from core.trace.messages import english

# the version of the format that this module reads
RAW = 1
MAX_LINE_BYTES = 64 * 2**20
_TIMES = ("t_start", "t_scheduled", "t_output", "t_end")


@dataclass
class Recording:
    """The recording of one rank of an engine.

    steps: in the order in which they were scheduled. aborts: requests ended from outside. dropped:
    how many records the recorder dropped because it could not keep up. complete: whether the
    recorder was closed. faults: a sentence for each defect in spite of which the rest was read.
    snapshots: the state before a step, by the step's number. until: the number of the last part,
    and of the line that would follow it, if a collector counted them.
    """

    name: str
    header: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)
    aborts: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0
    complete: bool = False
    faults: list[str] = field(default_factory=list)
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    until: tuple[int, int | None] = field(default=(1, None), compare=False)

    @property
    def engine(self) -> str:
        """The engine that was recorded."""
        return self.header.get("engine", "vllm")

    @property
    def version(self) -> str | None:
        """The engine's version; None if it is not on record."""
        return self.header.get("version")

    @property
    def has_priorities(self) -> bool:
        """Whether the engine orders by priorities, and they are on record."""
        return self.header.get("policy") == "priority" and bool(self.header.get("priorities"))

    @property
    def is_hashed(self) -> bool:
        """Whether prompts were left out and only their digests recorded."""
        return self.header.get("prompts") == "hashed"

    @property
    def untried(self) -> list[str]:
        """A sentence if the recorder was never tested with this version of the engine."""
        if self.header.get("tested") is not False:
            return []
        version = self.version or "of a version that it does not say"
        return [
            f"The recorder was never tried with {self.engine} {version}: what it missed there is"
            " absent."
        ]

    @property
    def rank(self) -> int:
        """Which of a deployment's ranks recorded it, from 0."""
        return self.header.get("rank", 0)

    @property
    def part(self) -> int:
        """The number of the file among the parts of one recording, from 1."""
        part = self.header.get("part", 1)
        return part if type(part) is int else 1

    @property
    def ranks(self) -> int:
        """How many ranks the deployment has, as far as this one knows."""
        # the ranks of a dense model do not know how many there are
        return self.header.get("ranks") or self.rank + 1


def read_raw(paths: Iterable[str | os.PathLike[str]]) -> list[Recording]:
    """The recordings in these files, one for each rank, ordered by rank. Raises InvalidTrace for a
    file that is not a recording, and for two recordings of one rank.
    """
    return gathered((at.name, lines_of(at)) for at in map(path_of, paths))


def gathered(files: Iterable[tuple[str, Iterable[str]]]) -> list[Recording]:
    """Like `read_raw`, from the name and the lines (with line ends) of each file."""
    by_rank: dict[int, Recording] = {}
    for recording in sorted(
        (_read(Path(name).name, iter(lines)) for name, lines in files),
        key=lambda recording: recording.part,
    ):
        known = by_rank.setdefault(recording.rank, recording)
        if known is not recording:
            _join(known, recording)
    recordings = [by_rank[rank] for rank in sorted(by_rank)]
    if not recordings:
        raise InvalidTrace("there is no recording to open.")
    for recording in recordings:
        recording.header["ranks"] = recording.header.get("ranks", 1) or recordings[-1].rank + 1
        _sort(recording)
    return recordings


def header_in(first_line: str, name: str) -> dict[str, Any]:
    """The header that is the first line of a file; raises InvalidTrace for any other line."""
    if not is_raw(first_line):
        raise InvalidTrace(
            f"{name} is not a raw recording: its first line is not a header with the format's"
            " version."
        )
    header: dict[str, Any] = _said(first_line)
    check_header(header, name)
    return header


def is_raw(first_line: str) -> bool:
    """Whether a file with this first line is a raw recording: its header has no checksum."""
    try:
        data = _said(first_line)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(data, dict)
        and data.get("kind") == "header"
        and "crc" not in data
        and "raw" in data
    )


def _said(line: str) -> Any:
    """The JSON value of a line; ValueError also for lone surrogates, and where parsers differ."""
    data = read_json(line)
    json.dumps(data, ensure_ascii=False).encode()
    return data


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file, `.gz` or not. Raises InvalidTrace for a file that cannot be read, and
    for a line that is too long.
    """
    try:
        with open_file(path) as content:
            packed = gzip.GzipFile(fileobj=content) if path.suffix == ".gz" else content
            # bytes that are not text damage only their line
            file = io.TextIOWrapper(packed, encoding="utf-8", errors="replace")
            while line := file.readline(MAX_LINE_BYTES):
                if len(line) == MAX_LINE_BYTES:
                    raise InvalidTrace(
                        f"{path.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB."
                    )
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidTrace(
            f"{path.name} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None


def _read(name: str, lines: Iterator[str]) -> Recording:
    recording = Recording(name, header_in(next(lines, ""), name))
    recording.faults += recording.untried
    number, damaged = 1, list[int]()
    try:
        for number, line in enumerate(lines, 2):
            try:
                take(recording, _said(line))
            except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError):
                if line.endswith("\n"):
                    damaged.append(number)
                else:
                    recording.faults.append(
                        f"{name} breaks off in line {number}: the recorder had not written it to"
                        " its end."
                    )
    except InvalidTrace as error:  # a truncated .gz file, or a line that is too long
        recording.faults.append(f"After line {number} {error}")
    if damaged:
        more = english(f" So are {len(damaged) - 1} more [line|lines].") if damaged[1:] else ""
        recording.faults.append(f"{name}, line {damaged[0]}: this is no record.{more}")
    begins = recording.header.get("line")
    recording.until = recording.part, begins + number - 1 if type(begins) is int else None
    return recording


def take(recording: Recording, data: dict[str, Any]) -> None:
    """Add the record of one line. Raises KeyError, TypeError or ValueError if it is malformed."""
    kind = data["kind"]
    if kind in ("step", "snapshot") and (type(data["step"]) is not int or data["step"] < 0):
        raise ValueError("a step without a number")
    if kind == "step":
        times = [data[name] for name in _TIMES if name in data]
        if not all(type(t) in (int, float) and math.isfinite(t) for t in times):
            raise ValueError("a step without a time")
        if "t_start" not in data or not all(
            isinstance(data[name], list) for name in ("segments", "arrived")
        ):
            raise ValueError("a step without a start, segments or arrivals")
        if any(type(i) is not int for ids in data.get("sampled", {}).values() for i in ids):
            raise ValueError("a step with a token that has no id")
        recording.steps.append(data)
    elif kind == "snapshot":
        if not all(isinstance(data[name], list) for name in ("running", "waiting", "requests")):
            raise ValueError("a snapshot without requests")
        recording.snapshots[data["step"]] = data
    elif kind == "abort":
        recording.aborts.append({"t": float(data["t"]), "requests": list(data["requests"])})
    elif kind == "end":
        if type(data["dropped"]) is not int or data["dropped"] < 0:
            raise ValueError("an end without a count")
        recording.dropped, recording.complete = recording.dropped + data["dropped"], True
        if "why" in data:
            recording.faults.append(f"Its recorder stopped before its engine did: {data['why']}.")
    else:
        raise ValueError(kind)


def check_header(header: dict[str, Any], name: str) -> None:
    """Raises InvalidTrace for another version of the format, and for an impossible rank."""
    if header["raw"] != RAW:
        raise InvalidTrace(
            f"{name} is of version {header['raw']!r} of the raw format; this one reads version"
            f" {RAW}."
        )
    rank = header.get("rank", 0)
    if type(rank) is not int or rank < 0:
        raise InvalidTrace(f"{name} does not say which rank it is of.")


def recording_named(header: dict[str, Any]) -> dict[str, Any]:
    """What identifies a recording: its header without the facts that differ between its parts."""
    return {fact: value for fact, value in header.items() if fact not in ("part", "line")}


def _join(known: Recording, more: Recording) -> None:
    if recording_named(known.header) != recording_named(more.header):
        raise InvalidTrace(
            f"{known.name} and {more.name} are two recordings of rank {known.rank}; open one at a"
            " time."
        )
    part, line = known.until
    if more.part != part + 1 or (line is not None and more.header.get("line") != line):
        known.faults.append(
            f"Part {more.part} does not begin where part {part} ends: lines are missing between"
            " them, or they are of two recordings."
        )
    known.until = more.until
    known.steps += more.steps
    known.snapshots |= more.snapshots
    known.aborts += more.aborts
    known.dropped += more.dropped
    known.complete = more.complete
    known.faults += [fault for fault in more.faults if fault not in known.faults]


def lost(records: int) -> list[str]:
    """A sentence on the records that a recorder dropped, if there are any."""
    said = english(f"The recorder could not keep up and dropped {records:,} [record|records].")
    return [said] if records else []


def _sort(recording: Recording) -> None:
    """Sort by step, because a step is written once its output is back, maybe late."""
    recording.steps.sort(key=lambda step: step["step"])
    recording.faults += lost(recording.dropped)
    if any(earlier["step"] == later["step"] for earlier, later in pairwise(recording.steps)):
        recording.faults.append(
            "Some steps are there twice: these may be parts of two recordings. The first of each is"
            " shown."
        )
    times = [step["t_start"] for step in recording.steps]
    of_steps = ([step[name] for name in _TIMES if name in step] for step in recording.steps)
    if any(own != sorted(own) for own in (times, *of_steps)):
        recording.faults.append(
            "The clock of this recording runs backwards, so its times cannot be trusted."
        )


Raw = dict[str, Any]


class MissingSteps:
    """Steps that cannot be shown: from the first missing one until a snapshot gives the state.

    first: the number of that step. missing: how many so far are not on record. passed: how many are
    on record but not shown. reasons: the finish reasons recorded in those, by request.
    """

    def __init__(self, first: int) -> None:
        self.first, self.missing, self.passed = first, 0, 0
        self.reasons: dict[str, str] = {}
        self._expected = first  # the number of the next step
        self._prompts: dict[str, list[int]] = {}

    def reach(self, step: Raw) -> None:
        """Count the steps between the last one on record and this one."""
        self.missing += step["step"] - self._expected
        self._expected = step["step"]

    def with_prompts(self, snapshot: Raw, known: Mapping[str, list[int]]) -> Raw | None:
        """The snapshot with all prompts; a row may lack its prompt if an earlier snapshot had it.
        Returns None if a prompt is missing. known: prompts from before these steps.
        """
        rows = []
        for row in snapshot["requests"]:
            request = row["request"]
            if "prompt" in row:
                self._prompts[request] = row["prompt"]
            elif row.get("told"):
                prompt = self._prompts.get(request) or known.get(request)
                if prompt is None:
                    return None
                row = row | {"prompt": prompt}
            rows.append(row)
        return snapshot | {"requests": rows}

    def pass_over(self, step: Raw) -> None:
        """Note a step that is on record but cannot be shown."""
        self.passed, self._expected = self.passed + 1, step["step"] + 1
        self._prompts |= {a["request"]: a["prompt"] for a in step["arrived"] if "prompt" in a}
        self.reasons |= dict(step.get("finished", ()))

    def is_damaged(self, step: Raw) -> None:
        """Note a step that is on record but contradicts itself or the state."""
        self.missing, self._expected = self.missing + 1, step["step"] + 1
