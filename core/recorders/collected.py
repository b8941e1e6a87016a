"""The recordings that engines send, kept as files in a folder in the form that `inflight-vllm`
writes: one recording for each start and rank. Independent of the network.

All that a collector has to remember is in the files: the header of a part says at which line of the
recording it begins, so a collector that was killed continues where its files end.
"""

import errno
import hashlib
import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InflightError, InvalidTrace
from core.recorders.growing import modified
from core.recorders.raw import check_header, is_raw, lost
from core.trace.messages import english

_OURS = re.compile(r".*-[0-9a-f]{12}(\.rank\d+)?\.raw(\.\d+)?\.jsonl")
_MOST_KNOWN = 1024  # recordings kept in memory; the files of others are read again
# seconds without lines after which even the newest part of a recording may be deleted
_AT_WORK = 60.0
_LOCK = ".collected.lock"


class Full(InflightError):
    """The folder cannot be written at present; the sender should try again later."""


@dataclass
class _CollectedStream:
    """One recording. path, size: of its newest part, in bytes. taken: how many lines of the
    recording are in the files or lost for good, which can be read from the files too. is_new_part:
    its newest part has no lines yet, and is not the first.
    """

    header: dict[str, Any]
    name: str  # of its files, without their end
    path: Path
    part: int
    size: int
    taken: int
    is_new_part: bool = False
    at: float = 0.0  # when something came last


class Collection:
    """The folder, used by one process at a time. part_bytes: size at which a new part begins.
    most_bytes: of all recordings together; beyond it, the oldest parts are deleted. tell: called
    with each line for the log. Raises InflightError if the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        part_bytes: int = 2**28,
        most_bytes: int = 2**36,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.folder = folder
        self._part_bytes = part_bytes
        self._most_bytes = most_bytes
        self._tell = tell
        self._streams: OrderedDict[str, _CollectedStream] = OrderedDict()
        self._lock = threading.Lock()
        self._trouble = ""
        try:
            self._open()
        except OSError as error:
            raise InflightError(
                f"Nothing can be collected in {folder}: {error.strerror}."
            ) from None

    def _open(self) -> None:
        """Make the folder if it is not there, and lock it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._held = _held(self.folder / _LOCK)
        self._bytes = sum(_size(path) for path in self._files())

    def take(self, header_line: bytes, first: int, lines: Sequence[bytes]) -> bool:
        """Add lines, each with its line end, to the recording with this header. first: the number
        of the first line; lines that are already there are skipped.

        Returns whether the recorder should soon send a snapshot, because lines are missing or
        because a new part has begun, which has to be readable by itself. Raises InvalidTrace for an
        invalid header, and Full.
        """
        with self._lock:
            try:
                wants_snapshot = self._take(header_line, first, lines)
            except OSError as error:
                said = f"{self.folder} cannot be written: {error.strerror}"
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    said = "The disk is full"
                if self._trouble != said:
                    self._tell(f"{said}: engines keep what finds room, and send it later.")
                self._trouble = said
                raise Full(f"{said}.") from None
            if self._trouble:
                self._trouble = ""
                self._tell(f"{self.folder} can be written again.")
            return wants_snapshot

    @property
    def at_work(self) -> int:
        """How many recordings have received something within the last minute."""
        now = time.monotonic()
        return sum(now - stream.at < _AT_WORK for stream in self._streams.values() if stream.at)

    def _take(self, header_line: bytes, first: int, lines: Sequence[bytes]) -> bool:
        key = hashlib.blake2b(header_line.strip(), digest_size=6).hexdigest()
        stream = self._streams.get(key)
        if stream is None or not stream.path.exists():  # it may have been deleted meanwhile
            stream = self._stream(key, header_line)
        if (gap := first - stream.taken) > 0:
            self._tell(english(f"{stream.path.name}: {gap:,} [line is|lines are] missing."))
        news = lines[max(0, stream.taken - first) :]
        # lines that follow a gap need a part of their own, whose header says which they are
        if gap > 0 or (stream.size >= self._part_bytes and news):
            self._begin(stream, first + len(lines) - len(news))
        content = b"".join(news)
        _append(stream.path, content)
        # only now: the disk may have been full for the lines, and not for the header before them
        wants_snapshot, stream.is_new_part = stream.is_new_part, False
        stream.taken = max(stream.taken, first + len(lines))
        stream.size += len(content)
        stream.at = time.monotonic()
        self._bytes += len(content)
        self._streams.move_to_end(key)
        if news and news[-1].startswith(b'{"kind":"end"'):
            self._tell(f"{stream.path.name}: the recording has ended.{_dropped(news[-1])}")
        if self._bytes > self._most_bytes:
            self._make_room()
        return wants_snapshot

    # -- a recording and its files -----------------------------------------------------------------

    def _stream(self, key: str, header_line: bytes) -> _CollectedStream:
        """A recording that is new to this process, or whose newest part is gone: continues its
        files, or begins.
        """
        if not self.folder.is_dir():
            self._open()
        text = header_line.decode("utf-8", "replace")
        if not is_raw(text):
            raise InvalidTrace("The first line is not the header of a recording.")
        header = json.loads(text)
        check_header(header, "What was sent")
        for fact in ("part", "line"):
            header.pop(fact, None)
        ranks = "" if header.get("ranks", 1) == 1 else f".rank{header.get('rank', 0)}"
        digits = re.sub("[^0-9]", "", str(header.get("created")))
        name = (
            f"{_safe(header.get('model')) or 'engine'}-{digits[:8]}-{digits[8:14]}-{key}{ranks}.raw"
        )
        stream = _CollectedStream(header, name, self.folder / f"{name}.jsonl", 0, 0, 0)
        known = sorted((part, path) for path in self._files() if (part := _part_of(path, name)))
        while known and not self._resume(stream, *known[-1]):
            known.pop()
        if not known:
            self._begin(stream, 0)
        self._tell(f"{stream.path.name}: {_who(header)} {'goes on sending' if known else 'sends'}.")
        self._streams[key] = stream
        while len(self._streams) > _MOST_KNOWN:
            self._streams.popitem(last=False)
        return stream

    def _resume(self, stream: _CollectedStream, part: int, path: Path) -> bool:
        """Continue the newest part, cut to whole lines; one without a header is deleted."""
        with path.open("r+b") as file:
            header = file.readline()
            if not header.endswith(b"\n"):
                path.unlink()
                return False
            count, end = 0, file.tell()
            for line in file:
                if line.endswith(b"\n"):
                    count, end = count + 1, end + len(line)
            file.truncate(end)
        stream.taken = json.loads(header)["line"] + count
        stream.path, stream.part, stream.size = path, part, end
        stream.is_new_part = part > 1 and not count
        return True

    def _begin(self, stream: _CollectedStream, line: int) -> None:
        """Begin the next part of a recording. line: the number of the first line in it."""
        part = stream.part + 1
        path = self.folder / (f"{stream.name}.{part}.jsonl" if part > 1 else f"{stream.name}.jsonl")
        header = (json.dumps({**stream.header, "part": part, "line": line}) + "\n").encode()
        path.unlink(missing_ok=True)
        _append(path, header, anew=True)
        stream.path, stream.part, stream.size, stream.taken = path, part, len(header), line
        stream.is_new_part = part > 1
        self._bytes += len(header)

    def _files(self) -> list[Path]:
        return [self.folder / name for name in os.listdir(self.folder) if _OURS.fullmatch(name)]

    def _make_room(self) -> None:
        """Delete the parts that were written longest ago, unless they are still growing."""
        now = time.monotonic()
        used = {stream.path for stream in self._streams.values() if now - stream.at < _AT_WORK}
        files = sorted((path for path in self._files() if path not in used), key=modified)
        self._bytes = sum(map(_size, files)) + sum(map(_size, used))
        for path in files:
            if self._bytes <= self._most_bytes:
                break
            self._bytes -= _size(path)
            with suppress(FileNotFoundError):
                path.unlink()


def _append(path: Path, content: bytes, anew: bool = False) -> None:
    """Append all or nothing. The file's new time shows that the engine is alive."""
    with path.open("xb" if anew else "ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
            os.utime(file.fileno())
        except OSError:
            file.truncate(before)
            if anew:
                path.unlink(missing_ok=True)
            raise


def _held(path: Path) -> Any:
    """Lock the folder. Raises InflightError if another process has locked it."""
    file = path.open("w", encoding="utf-8")
    with suppress(ImportError):
        import fcntl  # missing on Windows

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InflightError(
                f"Another process collects in {path.parent}: name another folder, or stop that one."
            ) from None
    return file


def _safe(of: object) -> str:
    """A safe piece of a file name, from a value that came over the network."""
    return re.sub(r"[^A-Za-z0-9._-]+", "", str(of)[:64]).strip("._-")[:40]


def _part_of(path: Path, name: str) -> int:
    """The number of the part of this recording that a file is; 0 if it is not one."""
    found = re.fullmatch(rf"{re.escape(name)}(?:\.(\d+))?\.jsonl", path.name)
    return int(found[1] or 1) if found else 0


def _who(header: dict[str, Any]) -> str:
    place = f" on {_safe(header['host'])}" if header.get("host") else ""
    return (
        f"{_safe(header.get('engine', 'vllm'))} {_safe(header.get('version'))}{place}, process"
        f" {_safe(header.get('pid'))},"
    )


def _dropped(line: bytes) -> str:
    with suppress(ValueError, TypeError, KeyError):
        return " ".join(["", *lost(int(json.loads(line)["dropped"]))])
    return ""


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
