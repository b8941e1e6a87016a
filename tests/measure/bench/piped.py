"""A program of another Python that is kept alive and asked over a pipe: a line of JSON each way."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from core.errors import InflightError


class PipedProcess:
    """A process that reads questions from stdin and writes each answer to stdout. Use it in a
    `with`.

    name: what errors call it. command: its arguments, the Python first. environment: what it has
    beside ours, and over it. folder: its own, empty, removed when it is closed.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._name = name
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env={**os.environ, **environment},
                cwd=self.folder,
            )
        except OSError as error:
            self._complaints.close()
            self._folder.cleanup()
            raise InflightError(f"{command[0]} cannot be run: {error.strerror}.") from None

    def __enter__(self) -> PipedProcess:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def ask(self, question: Any, seconds: float) -> dict[str, Any]:
        """Its answer to plain data; raises InflightError if it has ended, or has not answered
        within so many seconds.
        """
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        try:
            to.write(json.dumps(question).encode() + b"\n")
            to.flush()
        except BrokenPipeError:
            raise InflightError(f"{self._name} ended: {self._last_words()}") from None
        ready, _, _ = select.select([back], [], [], seconds)
        if not ready:
            raise InflightError(f"{self._name} did not answer within {seconds:.0f} s.")
        line = back.readline()
        if not line:
            raise InflightError(f"{self._name} ended: {self._last_words()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process and remove its folder."""
        self._process.kill()
        self._process.communicate()
        self._complaints.close()
        self._folder.cleanup()

    def _last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing."
