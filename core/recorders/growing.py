"""Files of recordings that may grow, be renamed, removed or replaced while they are read: which
files there are, which engine each is of, and their lines as they become complete. Nothing here
waits for them.
"""

import errno
import os
import re
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from core.errors import InflightError, InvalidTrace
from core.recorders.raw import MAX_LINE_BYTES, Recording, header_in, recording_named

# seconds without a change after which a recording counts as abandoned; a recorder touches its file
# every ten seconds
STILL_S = 25.0
_AHEAD_S = 600.0
RawHeader = dict[str, Any]


def require_followable(place: Path) -> None:
    """Raises InflightError for a place that can never be followed: neither a file nor a folder, or
    not readable. A place that does not exist yet may still appear.
    """
    try:
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise InflightError(f"{place} cannot be followed: it is neither a file nor a folder.")
        if place.exists() and not os.access(place, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InflightError(f"{place} cannot be followed: {error.strerror}.") from None


def header_of(path: Path) -> RawHeader | None:
    """The header at the start of a file; None if there is no file yet, or if its first line may
    still be being written. Raises InvalidTrace if it is not a raw recording or cannot be read.
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
    if first.startswith(b"\x1f\x8b"):
        raise InvalidTrace(f"{path.name} is compressed and cannot grow: import opens it.")
    begins = not first or (first.startswith(b"{") and is_written(path))
    if not first.endswith(b"\n") and len(first) < MAX_LINE_BYTES and begins:
        return None
    return header_in(first.decode("utf-8", "replace"), path.name)


def engine_of(header: RawHeader) -> str:
    """A key for an engine, shared by all its ranks, as far as recordings tell."""
    return str(header.get("instance") or f"{header.get('engine', 'vllm')} {header.get('model')}")


def is_written(path: Path) -> bool:
    """Whether the file's recorder was still writing a moment ago."""
    with suppress(OSError):
        # written in the future: before a clock was set back, if not by a server's that is ahead
        return -_AHEAD_S < time.time() - path.stat().st_mtime < STILL_S
    return False


class EngineThere(NamedTuple):
    """An engine with recordings in a folder. header: of the newest recording of its lowest rank.
    at: when one of its files was last written, by the wall clock.
    """

    key: str
    header: RawHeader
    ranks: tuple[int, ...]
    at: float


def engines_in(folder: Path) -> list[EngineThere]:
    """The engines with recordings in this folder, ordered by the time of their start."""
    found: dict[str, list[tuple[Path, RawHeader]]] = {}
    for path, header in _recordings(folder):
        found.setdefault(engine_of(header), []).append((path, header))
    there = []
    for key, mine in found.items():
        ranks = tuple(sorted({_rank(header) for _, header in mine}))
        latest = max((header for _, header in mine if _rank(header) == ranks[0]), key=_created)
        there.append(EngineThere(key, latest, ranks, max(modified(path) for path, _ in mine)))
    return sorted(there, key=lambda engine: (_created(engine.header), engine.key))


def _created(header: RawHeader) -> str:
    return str(header.get("created", ""))


def modified(path: Path) -> float:
    """When a file was last written, by the wall clock; 0 if it is gone."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def newest(
    place: Path, rank: int | None = None, engine: str | None = None
) -> tuple[Path, RawHeader] | None:
    """The first file of the newest recording at a place, and its header. Recordings that are still
    being written come before all others.

    place: a folder, whose other files are ignored; or a file, together with the files beside it
    that a recorder given this name writes. rank: only of this rank; by default the lowest one
    there. engine: only of this one, as `engine_of` names it. Returns None if nothing has been
    recorded. Raises InvalidTrace for a file that is not a recording.
    """
    if place.is_dir():
        found = _recordings(place)
    else:
        header = header_of(place)
        found = [(place, header)] if header else []
        found += [
            (path, header)
            for path, header in _recordings(place.parent)
            if path != place and _is_of(path.name, place.name)
        ]
    found = [pair for pair in found if engine in (None, engine_of(pair[1]))]
    if rank is None:
        rank = min((_rank(header) for _, header in found), default=0)
    mine = [(path, header) for path, header in found if _rank(header) == rank]
    if not mine:
        return None
    latest = recording_named(
        max(mine, key=lambda pair: (is_written(pair[0]), _created(pair[1])))[1]
    )
    return min(
        (pair for pair in mine if recording_named(pair[1]) == latest),
        key=lambda pair: part_of(pair[1]),
    )


def _is_of(name: str, given: str) -> bool:
    """Whether a recorder that was given one name may write a file of this name; see its `Parts`."""
    suffix = ".raw.jsonl" if given.endswith(".raw.jsonl") else ".jsonl" * given.endswith(".jsonl")
    stem, kind = re.escape(given.removesuffix(suffix)), re.escape(suffix.removesuffix(".jsonl"))
    return (
        re.fullmatch(rf"{stem}(\.\d{{8}}-\d{{6}}(-\d+)?)?{kind}(\.\d+)?\.jsonl", name) is not None
    )


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
    """The header of a file with this state, cached because a folder is searched again and again."""
    try:
        return header_of(path)
    except InvalidTrace:
        return None


def _rank(header: RawHeader) -> int:
    rank = header.get("rank", 0)
    return rank if type(rank) is int else 0


def part_of(header: RawHeader) -> int:
    """The number of a part, from 1, read from its header."""
    return Recording("", header).part


class Lines:
    """The lines of one recording after its header, through all its parts, as they become complete.
    path: of the part that is being read.
    """

    def __init__(self, path: Path, header: RawHeader) -> None:
        self.header = header
        self._file: IO[bytes] | None = None
        self._rest = b""  # of a line that is still being written
        self._open(path, part_of(header))

    def next(self) -> str | None:
        """The next line with its line end, or None if it is not complete yet. The last line of an
        unfinished part has no line end. Raises InvalidTrace for a line that is too long.
        """
        assert self._file is not None
        read = self._file.readline(MAX_LINE_BYTES)
        following = None if read else self._following()
        if following is not None:
            # more may have come just before the next part began
            read = self._file.readline(MAX_LINE_BYTES)
        self._rest += read
        if len(self._rest) >= MAX_LINE_BYTES:
            raise InvalidTrace(
                f"{self.path.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB."
            )
        if not self._rest.endswith(b"\n") and (read or following is None):
            return None
        line, self._rest = self._rest, b""
        if not read and following is not None:
            self._open(*following)
            return line.decode("utf-8", "replace") if line else self.next()
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path, part: int) -> None:
        self.close()
        self.path, self._part, self._file = path, part, path.open("rb")
        self._file.readline()  # skip the header, which is known

    def _following(self) -> tuple[Path, int] | None:
        """The next part that exists, whatever its file is called; None if there is none yet."""
        mine = recording_named(self.header)
        later = [
            (path, part_of(header))
            for path, header in _recordings(self.path.parent)
            if part_of(header) > self._part and recording_named(header) == mine
        ]
        return min(later, key=lambda found: found[1], default=None)
