"""Writes records in a thread of its own, so that an engine never waits for a disk."""

import atexit
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from importlib import util
from pathlib import Path
from typing import Any, Protocol

QUEUED_RECORDS = 4096  # if more wait, the writer has fallen behind and steps are dropped
# how many times a snapshot's bytes other records must take before the next snapshot, so that
# snapshots are at most a fifth of a recording
SNAPSHOT_SHARE = 4
log = logging.getLogger(
    "vllm.inflight" if util.find_spec("vllm") else "inflight"
)  # under vLLM's logger, for its handler and level

Record = Callable[[], "dict[str, Any]"]
"""Makes the data of one line; called on the writer's thread."""


class Sink(Protocol):
    """Takes lines on the writer's thread; any exception but `Oversized` ends the recording."""

    period: float  # seconds for which lines are gathered; 0 to write each at once
    idle: float  # seconds without records after which it is flushed again

    @property
    def name(self) -> str:
        """The name that the log shows."""
        ...

    def open(self, closing: threading.Event) -> None:
        """Prepare for writing. closing: is set once the recording is to end."""
        ...

    def write(self, line: str) -> bool:
        """Write a line. Returns whether a snapshot is wanted, since a new part has begun that must
        be readable by itself. Raises Oversized for a line that is too long; later lines may fit.
        """
        ...

    def flush(self) -> bool:
        """Write what has been gathered; returns the same as `write`."""
        ...

    def close(self) -> None:
        """Close: no more lines come."""


class Oversized(Exception):
    """A line is longer than the sink takes."""


class RawWriter:
    """A thread that turns records into JSON lines. The last line of a closed recording says how
    many records were dropped.

    sink: takes the lines. queued: how many records may wait. wants_snapshot: whether a snapshot
    should follow as soon as possible, because a new part has begun or records were dropped and what
    follows must be readable by itself; the recorder resets it when it puts one.
    """

    def __init__(self, sink: Sink, queued: int = QUEUED_RECORDS) -> None:
        self.dropped = 0
        self.failure: str | None = None  # why nothing more is written
        self.wants_snapshot = False
        self._sink, self._queued = sink, queued
        # bytes of the latest snapshot, and of all that was written after it
        self._snapshot_bytes = self._bytes_since = 0
        self._records: deque[Record] = deque()
        self._news, self._closing = threading.Event(), threading.Event()
        self._begun = threading.Event()  # set once the sink is open, or has failed
        self._thread = threading.Thread(target=self._run, name="inflight-recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, record: Record) -> None:
        """Queue a record without waiting; drop it if too many are queued or writing has failed."""
        if len(self._records) >= self._queued or self.failure is not None:
            self.dropped += 1
            self.wants_snapshot = True
            return
        self._records.append(record)
        if not self._news.is_set():
            self._news.set()

    @property
    def has_room_for_snapshot(self) -> bool:
        """Whether the writer keeps up, and a snapshot is wanted or not too large."""
        is_small = self.wants_snapshot or self._bytes_since >= SNAPSHOT_SHARE * self._snapshot_bytes
        return is_small and len(self._records) < self._queued // 2

    def end(self) -> None:
        """Let the queued records and the last line be written, without waiting for it."""
        self._closing.set()
        self._news.set()

    def close(self) -> None:
        """Like `end`, but wait until it is done, or briefly if the sink never opened."""
        self.end()
        if self._begun.wait(2):
            self._thread.join(10)
        atexit.unregister(self.close)

    def _run(self) -> None:
        try:
            self._sink.open(self._closing)
            self._begun.set()
            log.info("Inflight records every step of this engine to %s.", self._sink.name)
            while not self._closing.is_set():
                if self._news.wait(self._sink.idle) and self._sink.period:
                    self._closing.wait(self._sink.period)
                self._news.clear()
                self._write_waiting()
            self._write_waiting()
            self._sink.write(_line({"kind": "end", "dropped": self.dropped}))
            self._sink.flush()
            self._sink.close()
        except Exception as error:
            # a full disk, say: the recording ends here, and the engine continues
            self.failure = f"{type(error).__name__}: {error}"
            log.error(
                "Inflight stopped recording to %s: %s. The engine goes on.",
                self._sink.name,
                self.failure,
            )
            with suppress(Exception):
                self._sink.close()
        self._begun.set()
        self._records.clear()

    def _write_waiting(self) -> None:
        while self._records:
            line = _line(self._records.popleft()())
            is_snapshot = line.startswith('{"kind":"snapshot"')
            if is_snapshot:
                self._snapshot_bytes, self._bytes_since = len(line), 0
            else:
                self._bytes_since += len(line)
            try:
                if self._sink.write(line):
                    self.wants_snapshot = True
            except Oversized:
                self.dropped += 1
                # after an oversized snapshot another would be as large
                self.wants_snapshot = self.wants_snapshot or not is_snapshot
        if self._sink.flush():
            self.wants_snapshot = True


def _line(data: dict[str, Any]) -> str:
    if data["kind"] != "snapshot":
        return json.dumps(data, separators=(",", ":")) + "\n"
    rows = []
    # one by one: encoding all at once would block the engine's thread meanwhile
    for row in data.pop("requests"):
        rows.append(json.dumps(row, separators=(",", ":")))
        time.sleep(0)
    return f'{json.dumps(data, separators=(",", ":"))[:-1]},"requests":[{",".join(rows)}]}}\n'


class Parts:
    """A recording in files of bounded size: `run.raw.jsonl`, `run.raw.2.jsonl`, …, of which the
    newest are kept. Each begins with the header, which has the number of the part.

    An earlier recording is never touched: if the file exists already, the new one is
    `run.20261122-170501.raw.jsonl` beside it. A pipe or a device gets a single part.

    max_bytes: size at which the next file begins; 0 for a single file. max_files: how many are
    kept; 0 keeps all.
    """

    period, idle = 0.0, 10.0

    def __init__(
        self, path: Path, header: dict[str, Any], max_bytes: int = 0, max_files: int = 0
    ) -> None:
        self.path, self._header = path, header
        self._max_bytes, self._max_files = max_bytes, max_files
        self._part = self._size = 0
        self._kept: deque[Path] = deque()
        self._file: Any = None

    @property
    def name(self) -> str:
        """The path of the current part."""
        return str(self.path)

    def open(self, closing: threading.Event) -> None:
        """Begin the first file. Raises OSError if it cannot be written."""
        if self.path.exists() and not stat.S_ISREG(os.stat(self.path).st_mode):
            self._max_bytes = 0
            self._begin(self.path, "w")
            return
        for path in _names(self.path):
            with suppress(FileExistsError):
                if not _has_parts(path):
                    self._begin(path, "x")
                    self.path = path
                    return
        raise FileExistsError(f"{self.path} and the names beside it are taken")

    def write(self, line: str) -> bool:
        """Write a line, and begin a new part if this one is full; returns whether it did."""
        self._file.write(line)
        self._size += len(line)  # which is ASCII
        if not self._max_bytes or self._size < self._max_bytes or line.startswith('{"kind":"end"'):
            return False
        self._file.close()
        while self._max_files and len(self._kept) >= self._max_files:
            self._kept.popleft().unlink(missing_ok=True)
        self._begin(self.path.with_name(f"{_stem(self.path)}.{self._part + 1}.jsonl"), "x")
        return True

    def flush(self) -> bool:
        """Flush the file; returns False, since no new part begins."""
        self._file.flush()
        if self._max_bytes:
            # the file's time shows that an idle engine is still alive
            os.utime(self._file.fileno())
        return False

    def close(self) -> None:
        """Close the current part."""
        if self._file is not None:
            self._file.close()

    def _begin(self, path: Path, mode: str) -> None:
        self._file = path.open(mode, encoding="utf-8")
        self._part += 1
        self._kept.append(path)
        self._size = self._file.write(json.dumps({**self._header, "part": self._part}) + "\n")
        self._file.flush()


def _stem(path: Path) -> str:
    return path.name.removesuffix(".jsonl")


def _has_parts(path: Path) -> bool:
    """Whether an earlier recording with this name has later parts; its first may be gone."""
    before = f"{_stem(path)}."
    numbers = (
        name[len(before) :].removesuffix(".jsonl")
        for name in os.listdir(path.parent)
        if name.startswith(before)
    )
    return any(number.isdigit() for number in numbers)


def _names(path: Path) -> Iterator[Path]:
    """The names that a recording may have, in order of preference."""
    yield path
    suffix = ".raw.jsonl" if path.name.endswith(".raw.jsonl") else path.suffix
    stem, now = path.name.removesuffix(suffix), f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    yield path.with_name(f"{stem}.{now}{suffix}")
    yield path.with_name(f"{stem}.{now}-{os.getpid()}{suffix}")
