"""Saved traces that visitors open: read in a process of their own, with a limit on its memory and its time, two at once at most.

The reader is this module as a program: the trace on stdin, the store's folder as its argument, what came of it on stdout.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.assets import ASSETS
from core.errors import InflightError
from visualizer.server.limits import Limits, Refused, check_upload
from visualizer.server.store import NotKept, Store

LINE_BYTES = 2 * 2**20  # a step of a thousand requests has a tenth of it
DEPTH = 24  # brackets within brackets; a trace has a handful
SECONDS = 20.0
_WAIT = 10.0
_READERS = threading.BoundedSemaphore(2)
log = logging.getLogger("inflight")


def open_upload(text: object, store: Store, limits: Limits) -> dict[str, Any]:
    """Put a saved trace into the store: `{"id", "url"}`; raises InflightError with why it cannot be opened."""
    if not isinstance(text, str):
        raise Refused("A saved trace is a text file.")
    data = text.encode("utf-8", "surrogatepass")
    check_upload(len(data), limits)
    check_lines(data)
    if not _READERS.acquire(timeout=_WAIT):
        raise Refused("Others are opening files just now: try again in a moment.")
    try:
        said = _read(data, store.folder)
    finally:
        _READERS.release()
    if "error" in said:
        raise Refused(said["error"])
    return store.adopt(said["id"])


def check_lines(data: bytes) -> None:
    """Raises Refused for a line that no trace has, before anything is parsed: too long, or too deep."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > LINE_BYTES:
            raise Refused(f"line {number}: a line of a trace has at most {LINE_BYTES >> 20} MiB.")
        deep = most = 0
        if line.count(b"[") + line.count(b"{") > DEPTH:
            for byte in line:
                deep += (byte in b"[{") - (byte in b"]}")
                most = max(most, deep)
                if most > DEPTH:
                    raise Refused(f"line {number}: this is no line of a trace, but brackets within brackets.")


def _read(data: bytes, folder: Path) -> dict[str, Any]:
    try:
        reader = subprocess.run(
            [sys.executable, "-m", "visualizer.server.uploads", str(folder)],
            input=data,
            capture_output=True,
            timeout=SECONDS,
            cwd=ASSETS.parent,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {SECONDS:.0f} seconds to read."}
    try:
        return json.loads(reader.stdout)
    except ValueError:
        log.warning("the reader of an upload ended with %s: %s", reader.returncode, reader.stderr[-500:])
        return {"error": "it takes more memory to read than this page has for a file."}


def main() -> None:
    """The reader: see above."""
    data, folder = sys.stdin.buffer.read(), Path(sys.argv[1])
    with suppress(ImportError, ValueError, OSError):  # where there is no such limit, time alone bounds it
        import resource

        most = 2**29 + 24 * len(data)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    from core.recorders.convert import open_text

    text = data.decode("utf-8", "surrogatepass")
    try:
        answer = {"id": Store(folder, quota=sys.maxsize).put(open_text(text), source="uploaded")["id"]}
    except NotKept as error:
        answer = {"error": f"{error} The file itself may be fine."}
    except InflightError as error:
        answer = {"error": str(error)}
    except (MemoryError, RecursionError):
        answer = {"error": "it takes more memory to read than this page has for a file."}
    except Exception:  # a file made to break the reader
        log.exception("an upload broke its reader")
        answer = {"error": "it contradicts itself."}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
