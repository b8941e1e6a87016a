"""Files of recordings that grow, be renamed, removed or begun anew while they are read: which there are, whose, and their lines as they become
whole. Nothing here waits for them. Knows no step.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from core.errors import InvalidTrace
from core.recorders.raw import MAX_LINE_BYTES, Recording, check_header, is_raw

STILL_S = 25.0  # without news, after which a recording counts as left: a recorder says every ten seconds that it is there
RawHeader = dict[str, Any]


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


def engine_of(header: RawHeader) -> str:
    """What all ranks of one engine, and no two engines, have in common, as far as a recording says so."""
    return str(header.get("instance") or f"{header.get('engine', 'vllm')} {header.get('model')}")


def is_written(path: Path) -> bool:
    """Whether its recorder was there a moment ago."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < STILL_S
    return False


class EngineThere(NamedTuple):
    """An engine that is on record in a folder. header: of the newest recording of its lowest rank. at: when something came last, by the wall's
    clock.
    """

    key: str
    header: RawHeader
    ranks: tuple[int, ...]
    at: float


def engines_in(folder: Path) -> list[EngineThere]:
    """By the time at which they were started."""
    found: dict[str, list[tuple[Path, RawHeader]]] = {}
    for path, header in _recordings(folder):
        found.setdefault(engine_of(header), []).append((path, header))
    there = []
    for key, mine in found.items():
        ranks = tuple(sorted({_rank(header) for _, header in mine}))
        latest = max((header for _, header in mine if _rank(header) == ranks[0]), key=_created)
        there.append(EngineThere(key, latest, ranks, max(_modified(path) for path, _ in mine)))
    return sorted(there, key=lambda engine: (_created(engine.header), engine.key))


def _created(header: RawHeader) -> str:
    return str(header.get("created", ""))


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def newest(place: Path, rank: int | None = None, engine: str | None = None) -> tuple[Path, RawHeader] | None:
    """The first file of the newest recording, if there are some of those that are still written, and its header: of this file or of those beside it that a recorder told of this name has
    written, or in this folder, where files that are none do not count.

    rank: whose; by default the lowest there is. engine: of which of several, as `engine_of` names it. None where nothing has been recorded. Raises InvalidTrace for a file that is none.
    """
    if place.is_dir():
        found = _recordings(place)
    else:
        header = header_of(place)
        found = [(place, header)] if header else []
        found += [(path, header) for path, header in _recordings(place.parent) if path != place and _is_of(path.name, place.name)]
    found = [pair for pair in found if engine in (None, engine_of(pair[1]))]
    if rank is None:
        rank = min((_rank(header) for _, header in found), default=0)
    mine = [(path, header) for path, header in found if _rank(header) == rank]
    if not mine:
        return None
    latest = recording_named(max(mine, key=lambda pair: (is_written(pair[0]), _created(pair[1])))[1])
    return min((pair for pair in mine if recording_named(pair[1]) == latest), key=lambda pair: part_of(pair[1]))


def _is_of(name: str, told: str) -> bool:
    """Whether a recorder that was told to write to one name would call a file by this one: see `Parts` of the recorder."""
    suffix = ".raw.jsonl" if told.endswith(".raw.jsonl") else ".jsonl" * told.endswith(".jsonl")
    stem, kind = re.escape(told.removesuffix(suffix)), re.escape(suffix.removesuffix(".jsonl"))
    return re.fullmatch(rf"{stem}(\.\d{{8}}-\d{{6}}(-\d+)?)?{kind}(\.\d+)?\.jsonl", name) is not None


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


def part_of(header: RawHeader) -> int:
    return Recording("", header).part


class Lines:
    """The lines of one recording after its header, as they become whole, over all its parts. path: of the part that is read."""

    def __init__(self, path: Path, header: RawHeader) -> None:
        self.header = header
        self._file: IO[bytes] | None = None
        self._rest = b""  # of a line that is still being written
        self._open(path, part_of(header))

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
            (path, part_of(header))
            for path, header in _recordings(self.path.parent)
            if part_of(header) > self._part and recording_named(header) == mine
        ]
        return min(later, key=lambda found: found[1], default=None)
