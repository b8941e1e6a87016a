"""Finished runs and comparisons, as files under the hash of their content, for the page to fetch and visitors to download.

    <id>.json     a replay, or the document of ranks or a comparison        <id>.jsonl   the trace, from which every export is made

Files have a quota, and the oldest go first; nothing that a visitor sent is ever part of a file's name.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import InflightError
from core.trace.perfetto import chrome_trace
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.documents.replay import translated_ranks, translated_replay
from visualizer.page.bundle import standalone_html
from visualizer.page.step import step_page

ADDRESS = "inflight/files/"  # a file's address is this plus its name, unchanged after a restart
GONE = "This run is no longer on the server: run it again, or open a saved trace."
_NOT_HERE = "This is no longer on the server, which may have been restarted: reload the page."
_ID = re.compile(r"(?:^|/)([0-9a-f]{20})(?:\.json)?$")
_NAME = re.compile(r"[\w-]+(\.[\w-]+)+")
_DOWNLOADS = {
    ".perfetto.json": "inflight-perfetto.json",
    ".jsonl": "inflight-trace.jsonl",
    ".html": "inflight.html",
}
_FOLDER = re.compile(r"inflight-(\d+)-\w+")
log = logging.getLogger("inflight")


def own_folder(within: Path | None = None) -> Path:
    """A new folder for a store, removed when this process ends; leftovers of killed processes are removed now. within: the parent, by default the system's temporary folder."""
    within = within or Path(tempfile.gettempdir())
    for left in within.iterdir():
        named = _FOLDER.fullmatch(left.name)
        if named and not _is_alive(int(named[1])):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"inflight-{os.getpid()}-", dir=within))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # belongs to another user
        return True
    return True


class NotKept(InflightError):
    """A file could not be written to the server's disk; the message says so in one sentence."""


def address(path: Path) -> str:
    """The address of a file of the store."""
    return f"{ADDRESS}{path.name}"


class Store:
    """A folder of runs. quota: bytes for its files, not counting recorded ones. url: the address of a file."""

    def __init__(self, folder: Path, quota: int, url: Callable[[Path], str] = address) -> None:
        self.folder, self._quota, self._url = folder, quota, url
        self._pinned: set[str] = set()  # ids and names of files that are kept
        self._promised: dict[str, Callable[[], str]] = {}  # by name
        self._made: dict[tuple[str, ...], str] = {}  # addresses, see `once`
        self._lock, self._making = threading.Lock(), threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    # -- keeping -------------------------------------------------------------------------------------------------------

    def put(self, trace: Trace, source: str | None = None) -> dict[str, Any]:
        """Store a run; `{"id", "url"}`. source: see `replay`. Raises NotKept."""
        with self._writing():
            path = write_by_content(self.folder, translated_replay(trace, source))
            kept = path.with_suffix(".jsonl")
            if not kept.exists():
                write_whole(kept, (line + "\n" for line in trace.lines()))
        return self._kept(path)

    def put_ranks(self, ranks: Ranks, source: str | None = None) -> dict[str, Any]:
        """Store the runs of an engine's ranks, and the document of all of them; `{"id", "url"}` of that. See `put`."""
        ids = [self.put(rank.trace, source)["id"] for rank in ranks.ranks]
        return self._kept(self._written(translated_ranks(ranks, ids, source)))

    def keep(self, trace: Trace) -> dict[str, Any]:
        """Store a computed run, if possible: `{"id", "url"}`, or `{"unkept": why not}`."""
        try:
            return self.put(trace)
        except NotKept as error:
            return {"unkept": str(error)}
        except Exception as error:  # the browser has its steps: the run itself is not affected
            log.exception("a run could not be kept")
            return {"unkept": f"This run could not be kept on the server: {type(error).__name__}."}

    def keep_document(self, document: dict[str, Any], pinned: bool = False) -> str:
        """Store a document; returns its address. Raises NotKept. pinned: never removed to make room."""
        path = self._written(document)
        if pinned:
            self.pin(path)
        return self._kept(path)["url"]

    def keep_text(self, name: str, text: str) -> str:
        """Store a text permanently; returns its address. Raises NotKept."""
        with self._writing():
            path = write_whole(self.folder / name, [text])
        self.pin(path)
        return self._url(path)

    def once(self, name: tuple[str, ...], make: Callable[[], str]) -> str:
        """The address of something permanent: the result of `make` when this name is first requested. If it raises, the next call tries again."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def adopt(self, run: str) -> dict[str, Any]:
        """A run, or the document of several, that another process has written to the folder; `{"id", "url"}`."""
        return self._kept(self._path(run, ".json"))

    def promise(self, name: str, text: Callable[[], str]) -> dict[str, Any]:
        """A permanent file, written when first requested; `{"id", "url"}`. name: identifies its sources."""
        path = self.folder / name
        self._promised[name] = text
        self.pin(path)
        return {"id": path.stem, "url": self._url(path)}

    def pin(self, path: Path) -> None:
        """Keep a file permanently."""
        self._pinned.add(path.name)

    def is_pinned(self, name: str) -> bool:
        """Whether a file is kept permanently."""
        return name in self._pinned

    # -- handing out ---------------------------------------------------------------------------------------------------

    def open(self, name: str) -> tuple[BinaryIO, str | None]:
        """A file by its name, opened because another thread may remove it at any moment; and its download name (None: fetched by the page).

        Raises InflightError if it does not exist.
        """
        if not _NAME.fullmatch(name) or name.endswith(".partial"):
            raise InflightError(_NOT_HERE)
        try:
            file = self._there(name).open("rb")
        except OSError:
            raise InflightError(_NOT_HERE) from None
        own = name if name.startswith("inflight-") and name.endswith(".html") else None  # a lesson, named after it
        return file, own or next((download for suffix, download in _DOWNLOADS.items() if name.endswith(suffix)), None)

    def export(self, kind: object, run: object, step: object = None) -> dict[str, Any]:
        """A run as a file, `{"url", "name"}`; raises InflightError for an unknown kind, run or step.

        kind: "jsonl" (the trace), "perfetto", "html" (the whole replay, opened at the step), "plotly" (a step as a figure).
        run: its id or its replay's url.
        """
        if kind not in ("jsonl", "perfetto", "html", "plotly"):
            raise InflightError(f"There is no export {str(kind)[:20]!r}; there are jsonl, perfetto, html and plotly.")
        if kind == "html":
            return self._page(self._path(run, ".json"), {"step": step})
        path = self._path(run)
        if kind == "jsonl":
            return {"url": self._url(path), "name": "inflight-trace.jsonl"}
        trace = Trace.load(path)
        if kind == "perfetto":
            text = json.dumps(chrome_trace(trace), ensure_ascii=False)
            return self._exported(path.with_suffix(".perfetto.json"), text, "inflight-perfetto.json")
        if isinstance(step, bool) or not isinstance(step, int):
            raise InflightError("Which step? A figure shows one.")
        return self._exported(path.with_suffix(f".{step}.html"), step_page(trace, step), f"inflight-step-{step}.html")

    def export_ranks(self, run: object, step: object = None, rank: object = None, at: object = None) -> dict[str, Any]:
        """The replays of all ranks as a page, `{"url", "name"}`; raises InflightError if they do not exist. run: the id of their document.

        step and rank: the rank to open and its step; at: a common moment in seconds to open all at.
        """
        return self._page(self._path(run, ".json"), {"step": step, "rank": rank, "at": at})

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or its replay's url; raises InflightError if it does not exist."""
        return Trace.load(self._path(run))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _path(self, run: object, kind: str = ".jsonl") -> Path:
        """The path of a run's file, by default its trace, from the last part of the url; the rest is ignored."""
        found = _ID.search(run) if isinstance(run, str) else None
        path = self._there(f"{found[1]}{kind}") if found else None
        if path is None or not path.exists():
            raise InflightError(GONE)
        return path

    def _there(self, name: str) -> Path:
        """The path of an existing file; a promised one is written now. Raises NotKept."""
        if name in self._promised:
            self.once((name,), lambda: self.keep_text(name, self._promised[name]()))
        return self.folder / name

    def _page(self, path: Path, place: dict[str, object]) -> dict[str, Any]:
        """A replay, or that of all ranks, as a page that opens at `place`."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:  # removed to make room
            raise InflightError(GONE) from None
        numbers = {
            name: value
            for name, value in place.items()
            if type(value) is int or (isinstance(value, float) and math.isfinite(value))
        }
        where = "-".join(f"{name}{value}" for name, value in numbers.items()).replace(".", "_") or "start"
        return self._exported(path.with_suffix(f".{where}.page.html"), standalone_html(data, numbers), "inflight-replay.html")

    def _written(self, document: dict[str, Any]) -> Path:
        with self._writing():
            return write_by_content(self.folder, document)

    def _exported(self, path: Path, text: str, name: str) -> dict[str, Any]:
        with self._writing():
            write_whole(path, [text])
        self._prune(path.name.split(".")[0])
        return {"url": self._url(path), "name": name}

    def _kept(self, path: Path) -> dict[str, Any]:
        self._prune(path.stem)
        return {"id": path.stem, "url": self._url(path)}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("a file could not be written: %s", error.strerror)
            raise NotKept(f"The server could not keep this: {(error.strerror or 'its disk failed').lower()}.") from None

    def _prune(self, newest: str) -> None:
        """Remove the oldest runs, all files of each, until the rest is within the quota. Partial files belong to other threads."""
        with self._lock:
            groups: dict[str, list[tuple[float, int, Path]]] = {}
            for path in self.folder.iterdir():
                run = path.name.split(".")[0]
                if path.name in self._pinned or path.name.endswith(".partial"):
                    continue
                try:
                    about = path.stat()
                except FileNotFoundError:
                    continue
                group = path.name if f"{run}.json" in self._pinned else run  # an export of a recorded run is removed by itself
                groups.setdefault(group, []).append((about.st_mtime, about.st_size, path))
            excess = sum(size for files in groups.values() for _, size, _ in files) - self._quota
            for group in sorted(groups, key=lambda name: max(mtime for mtime, _, _ in groups[name])):
                if excess <= 0:
                    return
                if group != newest:
                    for _, size, path in groups[group]:
                        path.unlink(missing_ok=True)
                        excess -= size


def write_whole(path: Path, pieces: Iterable[str]) -> Path:
    """Write a text completely or not at all; raises OSError and leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def as_text(data: dict[str, Any]) -> str:
    """Data as JSON, as the page fetches it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def write_by_content(folder: Path, data: dict[str, Any]) -> Path:
    """Write JSON under the hash of its content; returns the file. An existing one is not rewritten."""
    text = as_text(data)
    path = folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}.json"
    return path if path.exists() else write_whole(path, [text])
