"""Files that visitors open: saved traces and raw recordings, put into the store, and workloads published by real services, as requests for the editor.

Several files at once are the parts of a recording, or the ranks of one engine; between them is a separator that JSON cannot contain. The
reader is this module run as a separate process, with limits on memory and CPU time, at most two at once. Its first argument
names what it reads, the file comes on stdin, the result goes to stdout as JSON.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.config import ASSETS
from core.errors import InflightError, InvalidTrace
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.jobs.limits import Limits, Refused, check_upload, checked_model
from visualizer.server.store import NotKept, Store

LINE_LENGTH = 2 * 2**20  # a step of a thousand requests takes a tenth of this
UPLOADED = "uploaded"  # the source in the header of such a run
SEPARATOR = "\x1e"  # between two files
MOST = 256  # files
REQUESTS = 24  # the first ones of a published workload: as many as one can follow by eye
ARRIVE_WITHIN = 20.0  # seconds; longer recordings are sped up
DEPTH = 24  # levels of nested brackets; a trace has a handful
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")
SECONDS = 40  # of CPU time, so that other load does not count against the file. Most of it is for importing a tokenizer
_LONGEST = 300.0  # seconds of wall time after which it is given up in any case
_OUT_OF_TIME = -getattr(signal, "SIGXCPU", 24)  # the return code of a process that exceeded its time
_WAIT = 10.0
BUSY = "Others are opening files just now: try again in a moment."
_READERS = threading.BoundedSemaphore(2)
_TOO_LARGE = "it takes more memory to read than this page has for a file."
log = logging.getLogger("inflight")


def open_upload(data: bytes, store: Store, limits: Limits, names: Sequence[str] = ()) -> dict[str, Any]:
    """Put files into the store: `{"id", "url"}` of their run, or of the document of its ranks (`ranks_document`); raises InflightError
    saying why they cannot be opened. names: of the files.
    """
    check_upload(len(data), limits)
    confined = "" if limits.any_model else json.dumps(limits.offered)
    called = [name[:100].replace("\0", "").encode("utf-8", "replace").decode() for name in names[:MOST]]
    return store.adopt(read_sandboxed(__name__, data, "traces", str(store.folder), confined, *called)["id"])


def open_dataset(data: bytes, name: str, model: str, limits: Limits) -> dict[str, Any]:
    """A published workload: `{"workload", "block_size", "says"}` of a file; raises InflightError saying why it cannot be opened.

    name: the file's, for sentences. model: the requests must fit its vocabulary and context. block_size: of shared prefixes, or None.
    """
    model, _ = checked_model(model, "auto", limits)
    check_upload(len(data), limits)
    settings = {
        "name": name[:80] or "This file",
        "model": model,
        "requests": min(REQUESTS, limits.requests),
        "output": limits.new_tokens,
        "total": min(limits.total_tokens, limits.total_characters),
        "block": limits.block_size,
    }
    return read_sandboxed(__name__, data, "dataset", json.dumps(settings))


def check_lines(text: str) -> None:
    """Raises Refused for a line that is too long or too deeply nested for a trace, before anything is parsed."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LENGTH:
            raise Refused(f"line {number}: a line of a trace has at most {LINE_LENGTH >> 20} MiB.")
        if line.count("[") + line.count("{") <= DEPTH:
            continue
        deep = 0
        for bracket in _BRACKET.findall(_STRING.sub("", line)):  # brackets in strings do not count
            deep += 1 if bracket in "[{" else -1
            if deep > DEPTH:
                raise Refused(f"line {number}: this is not a line of a trace: its brackets are nested too deeply.")


# -- the sandbox --------------------------------------------------------------------------------------------------------


def read_sandboxed(reader: str, data: bytes, *arguments: str) -> dict[str, Any]:
    """The result of a reader, given as a module name, for a visitor's file; raises Refused saying what is wrong with the file."""
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
    """A reader's main function: writes to stdout what `read` makes of the text on stdin, or why it cannot. prepare: imports what is needed,
    before memory is bounded. seconds: of CPU time, after which the process is ended.
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
    """End this process with `_OUT_OF_TIME` after this many seconds of CPU time."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def _bound_memory(more: int) -> None:
    """Bound the memory that this process may take beyond what it has now."""
    with suppress(ImportError, ValueError, OSError):  # without such a limit only time is bounded
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


# -- the readers --------------------------------------------------------------------------------------------------------


def _put(traces: Sequence[tuple[str, Trace]], refused: Sequence[str], store: Store) -> dict[str, Any]:
    """traces: with the names of their files. refused: sentences about those that could not be opened."""
    trace = traces[0][1]
    ranks = Ranks.of(traces, refused) if len(traces) > 1 or trace.header.engine is not None else None
    if ranks is not None and (ranks.count > 1 or refused):
        return store.put_ranks(ranks, UPLOADED)
    if refused:
        raise InvalidTrace(refused[0])
    return store.put(trace, UPLOADED)


def read_traces(folder: str, confined: str, *names: str) -> None:
    """Read traces and put them into the store in a folder. confined: as JSON, the only models whose tokenizers may be read; empty for any that a recording
    names. names: of the files.
    """
    from core.recorders.convert import open_texts
    from core.recorders.texts import confine_to

    if confined:
        confine_to(json.loads(confined))

    def read(text: str) -> dict[str, Any]:
        texts = text.split(SEPARATOR)
        for one in texts:
            check_lines(one)
        store = Store(Path(folder), quota=sys.maxsize)
        try:
            opened = open_texts(zip(names if len(names) == len(texts) else ["This file"] * len(texts), texts, strict=True))
            return _put(opened.traces, opened.refused, store)
        except NotKept as error:
            return {"error": f"{error} The file itself may be fine."}

    answer(read, _load_tokenizers)


def _load_tokenizers(text: str) -> None:
    """Load the tokenizers of the recordings' models, if they are on this machine: importing them may take more memory than a reader is given."""
    from core.recorders.raw import is_raw
    from core.recorders.texts import model_folder, tokenizer_of

    for one in text.split(SEPARATOR):
        first = one.partition("\n")[0]
        model = json.loads(first).get("model") if is_raw(first) else None
        if isinstance(model, str) and (folder := model_folder(model)):
            tokenizer_of(str(folder))


def read_dataset(given: str) -> None:
    """Read a published workload. given: its settings as JSON, see `open_dataset`."""
    from core.models.tokenizer import MOST_CONTEXT, describe_model
    from core.workload.datasets import dataset_of

    settings = json.loads(given)
    try:
        described = describe_model(settings["model"])
    except InflightError as error:
        print(json.dumps({"error": str(error)}))
        return

    def read(text: str) -> dict[str, Any]:
        found = dataset_of(io.StringIO(text.removeprefix("\ufeff")), settings["name"], described.count, settings["requests"])
        found = found.within(described.context or MOST_CONTEXT, settings["output"], settings["total"], settings["block"])
        speed = max(1.0, found.span / ARRIVE_WITHIN)
        return {
            "workload": found.workload(described.vocab_size, speed).to_json(),
            "block_size": found.block_tokens if found.hash_ids else None,
            "says": found.sentences(speed),
        }

    answer(read)


if __name__ == "__main__":
    if sys.argv[1] == "traces":
        read_traces(*sys.argv[2:])
    else:
        read_dataset(sys.argv[2])
