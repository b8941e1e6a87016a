"""The lessons as files that the page fetches, each made when first asked for. Knows nothing of Gradio."""

from __future__ import annotations

import threading
from pathlib import Path

from core.errors import InflightError, shown
from visualizer.documents.catalogue import RUNS
from visualizer.documents.files import write_by_content
from visualizer.documents.replay import told
from visualizer.lessons.document import document, recorded
from visualizer.lessons.sheets import plan, sheet
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.lesson_file import lesson_html


class Lessons:
    """folder: where the files go. traces: where the recorded runs lie."""

    def __init__(self, folder: Path, traces: Path) -> None:
        self._folder, self._traces = folder, recorded(traces)
        self._lock = threading.Lock()
        self._made: dict[str, Path] = {}

    def document(self, language: str) -> Path:
        """Everything the Learn tab shows in a language; raises InflightError for one that there is not."""
        with self._lock:
            if language not in self._made:
                self._made[language] = write_by_content(self._folder, document(self._traces, str(language)))
            return self._made[language]

    def _captions(self, run: str, language: str) -> Path:
        if run not in RUNS or language not in LANGUAGES:
            raise InflightError(f"There are no sentences about a run {shown(run)} in {shown(language)}.")
        name = f"captions-{run}-{language}"
        with self._lock:
            if name not in self._made:
                self._made[name] = write_by_content(self._folder, told(self._traces(run), language))
            return self._made[name]

    def file(self, lesson: str, kind: str, language: str) -> Path:
        """A sheet of a lesson ("teacher", "learner"), the lesson as one file ("offline"), the plan of all ("plan"), or what is said of the
        recorded run of that name ("captions"); raises InflightError for one that there is not.
        """
        if kind == "captions":
            return self._captions(lesson, language)
        name = f"{kind}-{lesson}-{language}"
        with self._lock:
            if name not in self._made:
                if kind == "plan":
                    text = plan(self._traces, language)
                elif kind == "offline":
                    text = lesson_html(lesson, self._traces, language)
                else:
                    text = sheet(lesson, kind, self._traces, language)
                suffix = "html" if kind == "offline" else "htm"  # what ends in html is downloaded, a sheet is looked at
                self._made[name] = self._folder / f"inflight-{name}.{suffix}"
                self._made[name].write_text(text, encoding="utf-8")
            return self._made[name]
