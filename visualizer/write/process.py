"""Runs a learner's file in a Python process of its own, which answers cases within a time limit.

The answers come over a pipe that its prints do not reach, and are judged here. The process is
killed, with the processes of its group, when its time is up and when it is no longer needed. It is
not a sandbox: it may read and write whatever its user may.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

from core.errors import InflightError
from visualizer.write.cases import Reply
from visualizer.write.code import Fault

SECONDS = 5.0  # for all cases of a task; the solutions take tenths
READING = 30.0  # seconds to execute the file once, with its imports
_START = 60.0  # seconds for Python to start on a busy machine
_GRACE = 2.0  # seconds for the process to report its line, which a long call into C prevents
_MOST = 8_000_000  # bytes of an answer
_SCRIPT = Path(__file__).with_name("answers.py")
_ROOT = __file__.removesuffix(os.path.join(*__name__.split(".")) + ".py")


class Process:
    """source: of the file. module: runs the code in an engine, see `policy_answers.py`; None for
    code that must not import anything of ours. Raises InflightError if Python does not start.
    """

    def __init__(self, source: bytes, module: str | None = None) -> None:
        self.seconds = 0.0  # for which it has computed
        self._count, self._told = 0, Queue[bytes](maxsize=4)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # so that sets have the same order each time
            start_new_session=True,
        )
        Thread(target=self._hear, daemon=True).start()
        if self._next(_START) is None:
            self.end()
            raise InflightError("Python did not start to check this file.")
        limits = {"reading": READING, "seconds": SECONDS}
        self._say({"source": source.decode("latin-1"), "module": module, "root": _ROOT, **limits})
        self._limit = READING
        self._last: Reply | None = None
        read = self.ask([])
        if read.ended or read.raised:
            self._last = read
        self._limit, self.seconds = SECONDS, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, lines: Sequence[str]) -> Reply:
        """The reply to lines; the same for any, if the file is unreadable. `ended`: the last."""
        if self._last is not None:
            return self._last
        self._count += 1
        began = time.perf_counter()
        self._say({"id": self._count, "lines": list(lines)})
        told = self._answer(began)
        took = time.perf_counter() - began
        self.seconds += took
        return told if isinstance(told, Reply) else Reply(ended=self._why(told, took))

    def _answer(self, began: float) -> Reply | dict[str, Any]:
        """The reply to the last question, or why there is none: `{"overdue": line}`, `{"left": exit
        code}`, or `{}` for an invalid reply.
        """
        while True:
            line = self._next(self._limit - self.seconds + _GRACE - (time.perf_counter() - began))
            if line is None:
                return {"overdue": None}
            if not line:
                return {"left": self._process.wait(_START)}
            try:
                told = json.loads(line)
                if "overdue" in told:
                    at = told["overdue"]
                    return {"overdue": at if isinstance(at, int) else None}
                if told.get("id") == self._count:
                    return Reply.of(line)
            except (ValueError, TypeError, AttributeError, RecursionError):
                return {}

    def _why(self, told: dict[str, Any], took: float) -> Fault:
        if "left" in told:
            return Fault("It ended the Python that ran it (exit code {code}).", code=told["left"])
        is_early = took < self._limit / 2
        if "overdue" not in told or (is_early and self._count < 3):  # before a case was right
            return Fault("It wrote something that is no answer to where the answers go.")
        seconds = f"{self._limit:g}"
        if is_early:
            says = "It takes too long: {count} cases took {seconds} seconds."
            return Fault(says, count=self._count - 2, seconds=seconds)
        says = (
            "It was still running after {seconds} seconds and was stopped."
            if told["overdue"] is None
            else "Line {line_number} was still running after {seconds} seconds: is there a loop"
            " that never ends?"
        )
        return Fault(says, told["overdue"], seconds=seconds)

    # -- the pipes ---------------------------------------------------------------------------------

    def _say(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process has ended: the next answer says so
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_MOST):
            self._told.put(line)
        self._told.put(b"")

    def _next(self, seconds: float) -> bytes | None:
        """A line, empty at the end of the pipe; None if none arrives in time."""
        try:
            return self._told.get(timeout=max(0.0, seconds))
        except Empty:
            return None

    def end(self) -> None:
        """Kill the process and, where there are sessions, all processes it has started."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(_START)
