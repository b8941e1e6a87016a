"""Visitors' files are read in a process of their own, with a limit on its memory and its CPU time, two at once at most. Knows nothing of what
is in them.

A reader is a module run as a program: the file on stdin, its settings as arguments, the result on stdout as JSON; see `answer`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.config import ASSETS
from core.errors import InflightError
from visualizer.server.limits import Refused

SECONDS = 40  # of CPU: how busy others keep the machine is no fault of the file's. Importing what a tokenizer takes is most of it
_LONGEST = 300.0  # seconds after which it is given up, whoever kept it waiting
_OUT_OF_TIME = -getattr(signal, "SIGXCPU", 24)  # what a process that was ended for it returns
_WAIT = 10.0
BUSY = "Others are opening files just now: try again in a moment."
_READERS = threading.BoundedSemaphore(2)
_TOO_LARGE = "it takes more memory to read than this page has for a file."
log = logging.getLogger("inflight")


def read_sandboxed(reader: str, data: bytes, *arguments: str) -> dict[str, Any]:
    """The result of a reader, named as a module, on a visitor's file; raises Refused with what is wrong with the file."""
    if not _READERS.acquire(timeout=_WAIT):
        raise Refused(BUSY)
    try:
        said = _run(reader, data, arguments)
    finally:
        _READERS.release()
    if "error" in said:
        raise Refused(said["error"])
    return said


def _run(reader: str, data: bytes, arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", reader, *arguments]
    try:
        process = subprocess.run(command, input=data, capture_output=True, timeout=_LONGEST, cwd=ASSETS.parent)
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {_LONGEST:.0f} seconds to read."}
    if process.returncode == _OUT_OF_TIME:
        return {"error": f"it takes longer than {SECONDS} seconds to read."}
    try:
        return json.loads(process.stdout)
    except ValueError:
        log.warning("the reader of a file ended with %s: %s", process.returncode, process.stderr[-500:])
        return {"error": _TOO_LARGE}


def answer(
    read: Callable[[str], dict[str, Any]], prepare: Callable[[str], object] = lambda text: None, seconds: int = SECONDS
) -> None:
    """A reader's main: what `read` makes of the text on stdin, or why it cannot, on stdout. prepare: imports what reading this text takes,
    before memory is bounded. seconds: of CPU, after which the process is ended.
    """
    try:
        text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        print(json.dumps({"error": "this is not text."}))
        return
    _bound_time(seconds)
    prepare(text)
    _bound_memory(2**29 + 24 * len(text))
    try:
        said = read(text)
    except InflightError as error:
        said = {"error": str(error)}
    except (MemoryError, RecursionError):
        said = {"error": _TOO_LARGE}
    except Exception:  # a file made to break the reader
        log.exception("a file broke its reader")
        said = {"error": "it contradicts itself."}
    print(json.dumps(said))


def _bound_time(seconds: int) -> None:
    """End this process with `_OUT_OF_TIME` once it has computed for so long."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def _bound_memory(more: int) -> None:
    """Bound the memory that this process may take beyond what it has now."""
    with suppress(ImportError, ValueError, OSError):  # where there is no such limit, time alone bounds it
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))
