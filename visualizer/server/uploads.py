"""Opens visitors' files (`visualizer.jobs.files`) on a server, where anyone may have made them:
each is read in a process of its own.

The process runs this module, with limits on memory and CPU time. Its first argument is the kind of
file, the file comes on stdin, and the result goes to stdout as JSON.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from core.config import ASSETS
from visualizer.jobs.files import (
    MOST,
    SEPARATOR,
    TOO_LARGE,
    Wanted,
    answer_to,
    open_files,
    read_workload,
)
from visualizer.jobs.limits import Limits, Refused, check_upload
from visualizer.server.store import NotKept, Store

# of CPU time, which does not depend on other load; importing a tokenizer takes most of it
SECONDS = 40
_LONGEST = 300.0  # seconds of wall time after which reading is given up in any case
_TO_PREPARE = 2**33  # bytes of address space; loading tokenizers takes a fraction
# the return code of a process that exceeded its time
_OUT_OF_TIME = -getattr(signal, "SIGXCPU", 24)
log = logging.getLogger("inflight")


def open_upload(
    data: bytes, store: Store, limits: Limits, names: Sequence[str] = (), client: str = ""
) -> dict[str, Any]:
    """Put files into the store; returns `{"id", "url"}` of their run, or of the document of their
    ranks (`ranks_document`). Raises InflightError if they cannot be opened. names: of the files.
    client: the address of the visitor.
    """
    check_upload(len(data), limits)
    confined = "" if limits.any_model else json.dumps(limits.offered)
    called = [
        name[:100].replace("\0", "").encode("utf-8", "replace").decode() for name in names[:MOST]
    ]
    given = (str(store.folder), confined, limits.tokenizer, *called)
    read = read_sandboxed(__name__, data, "traces", *given)
    return store.adopt(read["id"], read.get("ranks", ()), client)


def open_dataset(data: bytes, name: str, model: str, limits: Limits) -> dict[str, Any]:
    """A published workload, see `read_workload` and `Wanted`; raises InflightError."""
    wanted = Wanted.within(limits, name, model)
    check_upload(len(data), limits)
    return read_sandboxed(__name__, data, "dataset", json.dumps(wanted))


# -- the sandbox -----------------------------------------------------------------------------------


def read_sandboxed(reader: str, data: bytes, *arguments: str) -> dict[str, Any]:
    """The result of a reader, the name of a module, for a visitor's file; raises Refused."""
    command = [sys.executable, "-m", reader, *arguments]
    try:
        process = subprocess.run(
            command, input=data, capture_output=True, timeout=_LONGEST, cwd=ASSETS.parent
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"it takes longer than {_LONGEST:.0f} seconds to read.") from None
    if process.returncode == _OUT_OF_TIME:
        raise Refused(f"it takes longer than {SECONDS} seconds to read.")
    try:
        said = json.loads(process.stdout)
    except ValueError:
        log.warning(
            "the reader of a file ended with %s: %s", process.returncode, process.stderr[-500:]
        )
        raise Refused(TOO_LARGE) from None
    if "error" in said:
        raise Refused(said["error"])
    return said


def answer(
    read: Callable[[str], dict[str, Any]],
    prepare: Callable[[str], object] = lambda text: None,
    seconds: int = SECONDS,
) -> None:
    """The main function of a reader: writes to stdout the result of `read` for the text on stdin,
    or an error. prepare: imports what is needed before memory is limited; may raise InflightError.
    seconds: of CPU time, after which the process is killed.
    """
    _bound_time(seconds)
    try:
        text = _whole_input().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        print(json.dumps({"error": "this is not text."}))
        return

    def made() -> dict[str, Any]:
        _bound_memory(_TO_PREPARE)
        prepare(text)
        _bound_memory(2**29 + 24 * len(text))
        return read(text)

    print(json.dumps(answer_to(made)))


def _whole_input() -> bytes:
    """The visitor's file. Afterwards stdin is empty, so no library can ask there for input."""
    data = sys.stdin.buffer.read()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return data


def _bound_time(seconds: int) -> None:
    """End this process with `_OUT_OF_TIME` after this many seconds of CPU time."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def _bound_memory(more: int) -> None:
    """Limit the memory that this process may take beyond what it has now."""
    with suppress(ImportError, ValueError, OSError):  # some systems can limit time only
        import resource

        taken = int(Path("/proc/self/statm").read_bytes().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


# -- the readers -----------------------------------------------------------------------------------


def read_traces(folder: str, confined: str, tokenizer: str, *names: str) -> None:
    """Read traces and put them into the store in a folder. confined: JSON list of the only models
    whose tokenizers may be read; empty for any model that a recording names. tokenizer: the
    owner's, for all recordings; empty for that of their model. names: of the files.
    """
    from core.recorders.texts import confine_to, named_tokenizer

    owners = cache(lambda: named_tokenizer(tokenizer) if tokenizer else None)

    if confined:
        confine_to(json.loads(confined))

    def read(text: str) -> dict[str, Any]:
        try:
            return open_files(text, names, Store(Path(folder), quota=sys.maxsize), owners())
        except NotKept as error:
            return {"error": f"{error} The file itself may be fine."}

    answer(read, lambda text: _load_tokenizers(text) if owners() is None else None)


def _load_tokenizers(text: str) -> None:
    """Load the tokenizers of the recordings' models, if they are on this machine: importing them
    may take more memory than a reader may use.
    """
    from core.recorders.raw import is_raw
    from core.recorders.texts import model_folder, tokenizer_of

    for one in text.split(SEPARATOR)[:MOST]:
        first = one.partition("\n")[0]
        model = json.loads(first).get("model") if is_raw(first) else None
        if isinstance(model, str) and (folder := model_folder(model)):
            tokenizer_of(str(folder))


def read_dataset(given: str) -> None:
    """Read a published workload. given: a `Wanted` as JSON."""
    from core.torch_engine.models.tokenizer import describe_model

    wanted = Wanted(*json.loads(given))
    described = cache(lambda: describe_model(wanted.model))
    answer(lambda text: read_workload(text, wanted, described()), lambda text: described())


if __name__ == "__main__":
    if sys.argv[1] == "traces":
        read_traces(*sys.argv[2:])
    else:
        read_dataset(sys.argv[2])
