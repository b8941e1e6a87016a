"""Follows a recording while its engine works: the steps of a growing file as events, in memory that does not grow.

An event is handed out once the step after it is known, since an engine that schedules ahead may compute one more row for a request that
has just ended. Knows no terminal and no page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from core.errors import InvalidTrace
from core.recorders.convert import Conversion
from core.recorders.raw import MAX_LINE_BYTES, Recording, is_raw, next_part, take
from core.trace.events import StepEvent


class Follower:
    """One growing recording, and the parts that come after it. Raises InvalidTrace for a file that is not a recording."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] | None = None  # once it has been written
        self.is_over = False
        self._file: IO[str] | None = None
        self._rest = ""  # of a line that is still being written
        self._conversion: Conversion | None = None
        self._pending: dict[str, Any] | None = None  # the step that waits for the one after it

    def events(self) -> list[StepEvent]:
        """The steps that have come since the last call. Raises InvalidTrace for a malformed line."""
        found: list[StepEvent] = []
        while (line := self._line()) is not None:
            if self._conversion is None:
                self._open(line)
                continue
            recording = Recording(self.path.name, {})
            try:
                take(recording, json.loads(line))
            except (ValueError, RecursionError, KeyError, TypeError):
                raise InvalidTrace(f"{self.path.name} has a line that is no record.") from None
            self._conversion.abort(recording.aborts)
            for step in recording.steps:
                self._step(step, found)
            if recording.complete:
                self._step(None, found)
                self.is_over = True
        return found

    def _open(self, line: str) -> None:
        """The header: of the first part, or of one that follows."""
        if not is_raw(line):
            raise InvalidTrace(f"{self.path.name} is no raw recording: its first line is not the header of one.")
        self.header = json.loads(line)
        self._conversion = Conversion(Recording(self.path.name, self.header), 0.0)

    def _step(self, step: dict[str, Any] | None, found: list[StepEvent]) -> None:
        assert self._conversion is not None
        if self._pending is not None:
            later = frozenset(s["request"] for s in step["segments"]) if step else frozenset()
            found.append(self._conversion.event(self._pending, later))
            self._conversion.forget_finished()
        self._pending = step

    def _line(self) -> str | None:
        """The next whole line, if there is one; goes on with the next part once that exists."""
        if self._file is None:
            if not self.path.exists():
                return None
            self._file = self.path.open(encoding="utf-8")
        read = self._file.readline(MAX_LINE_BYTES)
        self._rest += read
        if len(self._rest) >= MAX_LINE_BYTES:
            raise InvalidTrace(f"{self.path.name} has a line of more than {MAX_LINE_BYTES >> 20} MiB.")
        if self._rest.endswith("\n"):
            line, self._rest = self._rest, ""
            return line
        following = next_part(self.path)
        if not read and not self._rest and following.exists():
            self._file.close()
            self.path, self._file = following, following.open(encoding="utf-8")
            self._file.readline()  # its header, which is known
            return self._line()
        return None
