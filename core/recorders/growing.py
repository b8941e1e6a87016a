"""Raw recordings that are still written: where the newest one is, its whole lines, and the parts that come after. Knows no steps.

Files may be renamed, removed, begun anew or left unfinished while they are read; nothing here waits for them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from core.errors import InvalidTrace
from core.recorders.raw import MAX_LINE_BYTES, check_header, is_raw, next_part

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
    return {fact: value for fact, value in header.items() if fact != "part"}


def newest(place: Path, rank: int | None = None) -> tuple[Path, RawHeader] | None:
    """The first file of the newest recording, and its header: of this file, or in this folder, where files that are none do not count.

    rank: whose; by default the lowest there is. None where nothing has been recorded. Raises InvalidTrace for a file that is none.
    """
    if not place.is_dir():
        header = header_of(place)
        return None if header is None else (place, header)
    found = list(_recordings(place))
    if rank is None:
        rank = min((_rank(header) for _, header in found), default=0)
    mine = [(path, header) for path, header in found if _rank(header) == rank]
    if not mine:
        return None
    latest = recording_named(max((header for _, header in mine), key=lambda header: str(header.get("created", ""))))
    return min((pair for pair in mine if recording_named(pair[1]) == latest), key=lambda pair: pair[1].get("part", 1))


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


@lru_cache(maxsize=256)
def _header_then(path: Path, inode: int, size: int, modified: int) -> RawHeader | None:
    """The header of a file as it was then, read once: a folder is looked at again and again, and most files in it do not change."""
    try:
        return header_of(path)
    except InvalidTrace:
        return None


def _rank(header: RawHeader) -> int:
    rank = header.get("rank", 0)
    return rank if type(rank) is int else 0


class Lines:
    """The lines of one recording after its header, as they become whole, over all its parts. path: of the part that is read."""

    def __init__(self, path: Path, header: RawHeader) -> None:
        self.header = header
        self._file: IO[bytes] | None = None
        self._rest = b""  # of a line that is still being written
        self._open(path)

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
            self._open(following)
            return line.decode("utf-8", "replace") if line else self.next()
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path) -> None:
        self.close()
        self.path, self._file = path, path.open("rb")
        self._file.readline()  # its header, which is known

    def _following(self) -> Path | None:
        """The next part, once it has begun; one of another recording was left there by an engine that ran before."""
        with suppress(InvalidTrace):
            path = next_part(self.path)
            header = header_of(path)
            if header is not None and recording_named(header) == recording_named(self.header):
                return path
        return None
