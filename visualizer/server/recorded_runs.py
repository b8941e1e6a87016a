"""The recorded runs and their lessons as files of the store, each written when first requested.

The name of a run's file is a hash of its sources, the traces and our code: unchanged after a
restart, different after an upgrade.
"""

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.errors import InflightError, shown
from core.trace.trace import Trace
from visualizer.documents import as_text
from visualizer.documents.catalogue import (
    RANKED,
    RUNS,
    TRACES,
    rank_files,
    ranks,
    recorded_ranks,
    recorded_runs,
)
from visualizer.documents.comparison import COMPARISON, RECORDED
from visualizer.documents.opening import is_recorded, opening
from visualizer.documents.replay import captions_in, ranks_captions_in, ranks_document, replay
from visualizer.lessons.document import document, recorded
from visualizer.lessons.sheets import plan, sheet
from visualizer.lessons.tasks import check
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.one_file import lesson_html
from visualizer.server.store import Store

_CODE = [Path(__file__).resolve().parents[2] / package for package in ("core", "visualizer")]


def promise_recorded_runs(store: Store, folder: Path = TRACES) -> list[dict[str, Any]]:
    """The recorded runs as the player lists them, with `id` and `url`; ranks last."""
    alone = [entry | _promised(store, path) for entry, path in recorded_runs(folder)]
    return alone + [
        entry | _promised_ranks(store, entry["name"], folder)
        for entry, _ in recorded_ranks(folder, trusted=True)
    ]


def promise_opening(store: Store, folder: Path = RECORDED) -> dict[str, Any] | None:
    """The opening's `id` and `url`, see `visualizer.documents.opening`; None if unrecorded."""
    if not is_recorded(folder):
        return None
    sources = sorted((folder / COMPARISON).iterdir())
    return store.promise(
        f"{_hash(*sources, of='opening')}.json", lambda: as_text(opening(folder) or {})
    )


def _promised(store: Store, path: Path) -> dict[str, Any]:
    made_from = _hash(path)
    store.promise(f"{made_from}.jsonl", partial(path.read_text, encoding="utf-8"))
    return store.promise(f"{made_from}.json", lambda: as_text(replay(Trace.load(path))))


def _promised_ranks(store: Store, name: str, folder: Path) -> dict[str, Any]:
    paths = rank_files(name, folder)
    ids = [_promised(store, path)["id"] for path in paths]
    return store.promise(
        f"{_hash(*paths, of=name)}.json", lambda: as_text(ranks_document(ranks(name, folder), ids))
    )


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


class Lessons:
    """store: keeps the files permanently. traces: the folder of the recorded runs."""

    def __init__(self, store: Store, traces: Path) -> None:
        self._store, self._folder, self._traces = store, traces, recorded(traces)

    def document(self, language: str) -> str:
        """The address of the Learn tab's document; raises InflightError for an unknown language."""
        return self._kept(("lessons", language), lambda: document(self._traces, language))

    def file(self, lesson: str, kind: str, language: str) -> str:
        """The address of a sheet of a lesson ("teacher", "learner"), of the lesson as one file
        ("offline"), of the plan of all lessons ("plan"), or of the captions of the recorded run of
        that name ("captions"); raises InflightError for an unknown one.
        """
        traces, name = self._traces, f"{kind}-{lesson}-{language}.htm"
        if kind == "captions":
            if lesson not in {**RUNS, **RANKED} or language not in LANGUAGES:
                raise InflightError(
                    f"There are no sentences about a run {shown(lesson)} in {shown(language)}."
                )

            def captions() -> dict[str, Any]:
                if lesson in RANKED:
                    return ranks_captions_in(ranks(lesson, self._folder), language)
                return captions_in(traces(lesson), language)

            return self._kept((kind, lesson, language), captions)
        if kind == "plan":
            return self._text(f"{kind}-{language}.htm", lambda: plan(traces, language))
        if kind == "offline":  # html files are downloaded, sheets are displayed
            return self._text(
                f"{lesson}-{language}.html", lambda: lesson_html(lesson, traces, language)
            )
        return self._text(name, lambda: sheet(lesson, kind, traces, language))

    def check(self, lesson: str, run: Trace, language: str) -> list[dict[str, Any]]:
        """The goals of a lesson's task, and whether a run meets them: see `tasks`."""
        return check(lesson, run, self._traces, language)

    def _kept(self, name: tuple[str, ...], make: Callable[[], dict[str, Any]]) -> str:
        return self._store.once(name, lambda: self._store.keep_document(make(), pinned=True))

    def _text(self, name: str, make: Callable[[], str]) -> str:
        return self._store.once((name,), lambda: self._store.keep_text(f"inflight-{name}", make()))
