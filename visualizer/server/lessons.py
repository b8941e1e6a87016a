"""The lessons as files that the page fetches, each made when first asked for. Knows nothing of Gradio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import InflightError, shown
from visualizer.documents.catalogue import RANKED, RUNS, ranks
from visualizer.documents.replay import captions_in, ranks_captions_in
from visualizer.lessons.document import document, recorded
from visualizer.lessons.sheets import plan, sheet
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.site import lesson_html
from visualizer.server.store import Store


class Lessons:
    """store: where the files go; they stay. traces: where the recorded runs lie."""

    def __init__(self, store: Store, traces: Path) -> None:
        self._store, self._folder, self._traces = store, traces, recorded(traces)
        self._lock = threading.Lock()
        self._made: dict[tuple[str, ...], str] = {}

    def document(self, language: str) -> str:
        """The address of everything the Learn tab shows in a language; raises InflightError for one that there is not."""
        return self._once(("lessons", language), lambda: self._kept(document(self._traces, language)))

    def file(self, lesson: str, kind: str, language: str) -> str:
        """The address of a sheet of a lesson ("teacher", "learner"), of the lesson as one file ("offline"), of the plan of all ("plan"), or of
        what is said of the recorded run of that name ("captions"); raises InflightError for one that there is not.
        """
        if kind == "captions":
            if lesson not in {**RUNS, **RANKED} or language not in LANGUAGES:
                raise InflightError(f"There are no sentences about a run {shown(lesson)} in {shown(language)}.")
            return self._once((kind, lesson, language), lambda: self._kept(self._captions(lesson, language)))
        if kind == "plan":
            return self._once((kind, language), lambda: self._text(plan(self._traces, language), f"plan-{language}.htm"))
        if kind == "offline":
            page = f"{kind}-{lesson}-{language}.html"  # what ends in html is downloaded, a sheet is looked at
            return self._once((kind, lesson, language), lambda: self._text(lesson_html(lesson, self._traces, language), page))
        name = f"{kind}-{lesson}-{language}.htm"
        return self._once((kind, lesson, language), lambda: self._text(sheet(lesson, kind, self._traces, language), name))

    def _captions(self, run: str, language: str) -> dict[str, Any]:
        return (
            ranks_captions_in(ranks(run, self._folder), language) if run in RANKED else captions_in(self._traces(run), language)
        )

    def _once(self, name: tuple[str, ...], make: Callable[[], str]) -> str:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def _kept(self, made: dict[str, Any]) -> str:
        return self._store.keep_document(made, pinned=True)

    def _text(self, text: str, name: str) -> str:
        return self._store.keep_text(f"inflight-{name}", text)
