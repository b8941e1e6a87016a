"""The recorded runs as files of the store, which the page lists at its start. Each is made when it is first asked for: a visit needs one of them.

A file's name is a hash of what it is made from, the traces and our code: the same after a restart, another after an upgrade.
"""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES, rank_files, ranks, recorded_ranks, recorded_runs
from visualizer.documents.replay import ranks_document, replay
from visualizer.server.store import Store, as_text

_CODE = [Path(__file__).resolve().parents[2] / package for package in ("core", "visualizer")]


def promise_recorded_runs(store: Store, folder: Path = TRACES) -> list[dict[str, Any]]:
    """The recorded runs in the order of the presets, those of ranks last, as the player lists them: entries with `id` and `url`."""
    alone = [entry | _promised(store, path) for entry, path in recorded_runs(folder)]
    return alone + [entry | _promised_ranks(store, entry["name"], folder) for entry, _ in recorded_ranks(folder, trusted=True)]


def _promised(store: Store, path: Path) -> dict[str, Any]:
    made_from = _hash(path)
    store.promise(f"{made_from}.jsonl", partial(path.read_text, encoding="utf-8"))
    return store.promise(f"{made_from}.json", lambda: as_text(replay(Trace.load(path))))


def _promised_ranks(store: Store, name: str, folder: Path) -> dict[str, Any]:
    paths = rank_files(name, folder)
    ids = [_promised(store, path)["id"] for path in paths]
    return store.promise(f"{_hash(*paths, of=name)}.json", lambda: as_text(ranks_document(ranks(name, folder), ids)))


def _hash(*paths: Path, of: str = "") -> str:
    made_from = hashlib.sha256(_code() + of.encode())
    for path in paths:
        made_from.update(path.read_bytes())
    return made_from.hexdigest()[:20]


@cache
def _code() -> bytes:
    found = hashlib.sha256()
    for path in sorted(path for room in _CODE for path in room.rglob("*.py")):
        found.update(path.read_bytes())
    return found.digest()
