"""Stores finished runs and comparisons as files under the hash of their content, for the page to
fetch and visitors to download.

    <id>.json     a replay, or the document of ranks or a comparison        <id>.jsonl   the trace,
                  from which every export is made

The files have a quota (`Store._prune`). No input of a visitor becomes part of a file's name.
"""

import atexit
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from core.account.perfetto import chrome_trace
from core.errors import InflightError, shown
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.documents import as_text
from visualizer.documents.places import checked_place
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
    """A new folder for a store, which is removed when this process ends; folders left by killed
    processes are removed now. within: the parent, by default the temporary folder of the system.
    """
    within = within or Path(tempfile.gettempdir())
    for left in within.iterdir():
        named = _FOLDER.fullmatch(left.name)
        if named and not _is_alive(int(named[1])) and _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"inflight-{os.getpid()}-", dir=within))
    _locked(folder)
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


def _locked(folder: Path) -> bool:
    """Lock a folder until this process ends; False if another has locked it. What is locked is left
    alone by systemd-tmpfiles, which removes what is old, and by pages in other containers, which
    see the folder but not this process.
    """
    with suppress(ImportError):  # Windows
        import fcntl

        try:
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


class NotKept(InflightError):
    """A file could not be written to the server's disk; the message says so in one sentence."""


def address(path: Path) -> str:
    return f"{ADDRESS}{path.name}"


class Store:
    """A folder of runs. quota: bytes for files but pinned ones. url: gives an address."""

    def __init__(self, folder: Path, quota: int, url: Callable[[Path], str] = address) -> None:
        self.folder, self._quota, self._url = folder, quota, url
        self._pinned: set[str] = set()  # names of files that are kept permanently
        self._promised: dict[str, Callable[[], str]] = {}  # by name
        self._made: dict[tuple[str, ...], str] = {}  # addresses, see `once`
        # the client that each run (by id) or export (by name) counts for, the newest last: the
        # clock, which files go by, may be set back
        self._owners: dict[str, str] = {}
        self._lock, self._making = threading.Lock(), threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    # -- keeping -----------------------------------------------------------------------------------

    def put(self, trace: Trace, source: str | None = None, client: str = "") -> dict[str, Any]:
        """Store a run; returns `{"id", "url"}`. source: see `replay`. client: the address whose
        share of the quota it takes. Raises NotKept.
        """
        with self._writing():
            lines = [line + "\n" for line in trace.lines()]
            path = write_by_content(self.folder, translated_replay(trace, source), lines)
            kept = path.with_suffix(".jsonl")
            if not kept.exists():
                write_whole(kept, lines)
        return self._kept(path, client)

    def put_ranks(self, ranks: Ranks, source: str | None = None) -> dict[str, Any]:
        """Store the runs of an engine's ranks, and a document of all of them; returns `{"id",
        "url"}` of that, and `"ranks"`, the ids of the runs. See `put`.
        """
        ids = [self.put(rank.trace, source)["id"] for rank in ranks.ranks]
        return self._kept(self._written(translated_ranks(ranks, ids, source))) | {"ranks": ids}

    def keep(self, trace: Trace, client: str = "") -> dict[str, Any]:
        """Store a computed run, see `put`: `{"id", "url"}`, or `{"unkept": why not}`."""
        try:
            return self.put(trace, client=client)
        except NotKept as error:
            return {"unkept": str(error)}
        except Exception as error:  # the browser has its steps: the run itself is not affected
            log.exception("a run could not be kept")
            return {"unkept": f"This run could not be kept on the server: {type(error).__name__}."}

    def keep_document(
        self, document: dict[str, Any], client: str = "", pinned: bool = False
    ) -> str:
        """Store a document; returns its address. See `put`. pinned: never removed to make room."""
        path = self._written(document)
        if pinned:
            self.pin(path)
        return self._kept(path, client)["url"]

    def keep_text(self, name: str, text: str) -> str:
        """Store a text permanently; returns its address. Raises NotKept."""
        with self._writing():
            path = write_whole(self.folder / name, [text])
        self.pin(path)
        return self._url(path)

    def once(self, name: tuple[str, ...], make: Callable[[], str]) -> str:
        """The address of something permanent: the result of `make` when this name was first
        requested. If `make` raises, the next call tries again.
        """
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def adopt(self, run: str, ranks: Iterable[str] = (), client: str = "") -> dict[str, Any]:
        """Add a run, or the document of several ranks, that another process has written to the
        folder; returns `{"id", "url"}`. See `put`.
        """
        for one in ranks:
            self._kept(self._path(one, ".json"), client)
        return self._kept(self._path(run, ".json"), client)

    def promise(self, name: str, text: Callable[[], str]) -> dict[str, Any]:
        """A permanent file that is written when first requested; returns `{"id", "url"}`. name:
        made from a hash of its sources.
        """
        path = self.folder / name
        self._promised[name] = text
        self.pin(path)
        return {"id": path.stem, "url": self._url(path)}

    def pin(self, path: Path) -> None:
        self._pinned.add(path.name)

    def is_pinned(self, name: str) -> bool:
        return name in self._pinned

    # -- reading -----------------------------------------------------------------------------------

    def open(self, name: str) -> tuple[BinaryIO, str | None]:
        """A file by its name, open because other threads may remove it, and its name for downloads
        (None for files that the page fetches). Raises InflightError if it does not exist.
        """
        if not _NAME.fullmatch(name) or name.endswith(".partial"):
            raise InflightError(_NOT_HERE)
        try:
            file = self._there(name).open("rb")
        except OSError:
            raise InflightError(_NOT_HERE) from None
        if name.startswith("inflight-") and name.endswith(".html"):
            return file, name  # a lesson, named after it
        downloads = (own for suffix, own in _DOWNLOADS.items() if name.endswith(suffix))
        return file, next(downloads, None)

    def export(
        self, kind: object, run: object, step: int | None = None, client: str = ""
    ) -> dict[str, Any]:
        """A run as a file, `{"url", "name"}`; raises InflightError for unknown arguments.

        kind: "jsonl" (the trace), "perfetto", "html" (the whole replay, opened at the step),
        "plotly" (a step as a figure). run: its id or the url of its replay. client: see `put`.
        """
        if kind not in ("jsonl", "perfetto", "html", "plotly"):
            raise InflightError(
                f"There is no export {shown(kind)}; there are jsonl, perfetto, html and plotly."
            )
        if kind == "html":
            return self._page(self._path(run, ".json"), client, step)
        path = self._path(run)
        if kind == "jsonl":
            return {"url": self._url(path), "name": "inflight-trace.jsonl"}
        trace = Trace.load(path)
        if kind == "perfetto":
            text = json.dumps(chrome_trace(trace), ensure_ascii=False)
            return self._exported(
                path.with_suffix(".perfetto.json"), text, "inflight-perfetto.json", client
            )
        if step is None:
            raise InflightError("Which step? A figure shows one.")
        return self._exported(
            path.with_suffix(f".{step}.html"),
            step_page(trace, step),
            f"inflight-step-{step}.html",
            client,
        )

    def export_ranks(
        self,
        run: object,
        step: int | None = None,
        rank: int | None = None,
        at: float | None = None,
        client: str = "",
    ) -> dict[str, Any]:
        """The replays of all ranks as one page, `{"url", "name"}`; raises InflightError if they do
        not exist. run: the id of their document.

        step and rank: the rank to open and its step; at: or a common moment. client: see `put`.
        """
        return self._page(self._path(run, ".json"), client, step, rank, at)

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or its replay's url; raises InflightError for none."""
        return Trace.load(self._path(run))

    # -- inside ------------------------------------------------------------------------------------

    def _path(self, run: object, kind: str = ".jsonl") -> Path:
        """The path of a run's file, by default its trace, from an id or a url."""
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

    def _page(
        self,
        path: Path,
        client: str,
        step: int | None,
        rank: int | None = None,
        at: float | None = None,
    ) -> dict[str, Any]:
        """A replay, or that of all ranks, as a page that opens at a place: see `checked_place`."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:  # removed to make room
            raise InflightError(GONE) from None
        place = checked_place(data, step, rank, at)
        where = (
            "-".join(f"{name}{value}" for name, value in place.items()).replace(".", "_") or "start"
        )
        return self._exported(
            path.with_suffix(f".{where}.page.html"),
            standalone_html(data, place),
            "inflight-replay.html",
            client,
        )

    def _written(self, document: dict[str, Any]) -> Path:
        with self._writing():
            return write_by_content(self.folder, document)

    def _exported(self, path: Path, text: str, name: str, client: str) -> dict[str, Any]:
        with self._writing():
            write_whole(path, [text])
        self._prune(path.name, client)
        return {"url": self._url(path), "name": name}

    def _kept(self, path: Path, client: str = "") -> dict[str, Any]:
        self._prune(path.stem, client)
        return {"id": path.stem, "url": self._url(path)}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("a file could not be written: %s", error.strerror)
            raise NotKept(
                f"The server could not keep this: {(error.strerror or 'its disk failed').lower()}."
            ) from None

    def _prune(self, newest: str, client: str) -> None:
        """Remove files until the rest is within the quota, but not the newest, which belongs to
        this client: first exports, which can be made again, then runs with all their files; in both
        cases the oldest of the client that takes most space. Partial files belong to other threads.
        """
        with self._lock:
            self._owners[newest] = self._owners.pop(newest, client)  # the newest comes last
            groups: dict[str, list[Path]] = {}
            sizes = Counter[str]()
            for path in self.folder.iterdir():
                if path.name in self._pinned or path.name.endswith(".partial"):
                    continue
                with suppress(FileNotFoundError):
                    group = _group(path)
                    sizes[group] += path.stat().st_size
                    groups.setdefault(group, []).append(path)
            self._owners = {
                group: owner for group, owner in self._owners.items() if group in groups
            }
            owners = {group: self._owners.get(group, "") for group in groups}
            ages = {group: age for age, group in enumerate(self._owners)}
            taken = Counter[str]()
            for group, size in sizes.items():
                taken[owners[group]] += size

            def goes_first(group: str) -> tuple[bool, int, int]:
                # another thread has just written what is not known yet
                return "." not in group, -taken[owners[group]], ages.get(group, len(ages))

            kept = {newest, newest.split(".")[0]}  # an export needs its run for others
            while taken.total() > self._quota and (others := groups.keys() - kept):
                group = min(others, key=goes_first)
                for path in groups.pop(group):
                    path.unlink(missing_ok=True)
                taken[owners[group]] -= sizes[group]


def _group(path: Path) -> str:
    """The group that a file is removed with: the replay and the trace of a run, by its id; an
    export alone, by its name.
    """
    return path.stem if path.suffix in (".json", ".jsonl") and "." not in path.stem else path.name


def write_whole(path: Path, pieces: Iterable[str]) -> Path:
    """Write a text completely or not at all; raises OSError and leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def write_by_content(folder: Path, data: dict[str, Any], beside: Iterable[str] = ()) -> Path:
    """Write JSON under the hash of its content, unless it exists; returns the file. beside: of a
    replay, the lines of its trace, which has more: two traces may look alike on the page.
    """
    text = as_text(data)
    named = hashlib.sha256()
    for piece in (text, *beside):
        named.update(piece.encode("utf-8", "surrogatepass"))
    path = folder / f"{named.hexdigest()[:20]}.json"
    return path if path.exists() else write_whole(path, [text])
