"""The lessons as files that the page fetches, each made when first asked for. Knows nothing of Gradio."""

from __future__ import annotations

import threading
from pathlib import Path

from visualizer.documents.files import write_by_content
from visualizer.lessons.document import document, recorded
from visualizer.lessons.sheets import plan, sheet
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

    def file(self, lesson: str, kind: str, language: str) -> Path:
        """A sheet of a lesson ("teacher", "learner"), the lesson as one file ("offline"), or the plan of all ("plan"); raises InflightError
        for one that there is not.
        """
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
