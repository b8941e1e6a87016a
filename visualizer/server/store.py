"""Runs that are over, as files under the hash of their content: what the player fetches, what people take away.

    <id>.json     the replay        <id>.jsonl   the trace, from which every export is made

Knows nothing of visitors and engines. Only the newest files are kept; a file's name never has anything in it that a visitor wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from core.errors import InflightError
from core.trace.perfetto import chrome_trace
from core.trace.trace import Trace
from visualizer.charts.step_figure import step_figure
from visualizer.documents.catalogue import TRACES, recorded_runs
from visualizer.documents.replay import replay, write
from visualizer.page.bundle import standalone_html

_ID = re.compile(r"(?:^|/)([0-9a-f]{20})(?:\.json)?$")
_KEPT_FILES = 300


class Shelf:
    """A folder of runs. url: the address under which a file is served."""

    def __init__(self, folder: Path, url: Callable[[Path], str]) -> None:
        self._folder, self._url = folder, url
        self._pinned: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, trace: Trace, source: str | None = None, pinned: bool = False) -> dict:
        """Store a run; `{"id", "url"}`. source: what its header should say on the page, where it does not say that it was simulated.

        pinned: it stays, however many come after it.
        """
        data = replay(trace)
        if source and data["header"].get("source") != "simulated":
            data["header"] = {**data["header"], "source": source}
        path = write(self._folder, data)
        kept = path.with_suffix(".jsonl")
        if pinned:
            self._pinned.add(path.stem)
        if not kept.exists():
            trace.save(kept)
            self._prune()
        return {"id": path.stem, "url": self._url(path)}

    def catalogue(self, folder: Path = TRACES) -> list[dict]:
        """The recorded runs in the order of the presets, as the player lists them: entries with `id` and `url`. They stay."""
        return [entry | self.put(trace, pinned=True) for entry, trace in recorded_runs(folder)]

    def export(self, kind: str, run: str, step: int | None = None) -> dict:
        """A run as a file, `{"url", "name"}`; raises InflightError for a kind, run or step that there is not.

        kind: "jsonl" (the trace), "perfetto", "html" (the whole replay, opened at the step), "plotly" (a step as a figure). run: its id or its replay's url.
        """
        if kind not in ("jsonl", "perfetto", "html", "plotly"):
            raise InflightError(f"There is no export {str(kind)[:20]!r}; there are jsonl, perfetto, html and plotly.")
        path = self._path(run)
        if kind == "jsonl":
            return self._named(path, "inflight-trace.jsonl")
        if kind == "html":
            data = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            at = step if isinstance(step, int) and not isinstance(step, bool) else None
            return self._named(_store(path.with_suffix(f".{at}.page.html"), standalone_html(data, at)), "inflight-replay.html")
        trace = Trace.load(path)
        if kind == "perfetto":
            text = json.dumps(chrome_trace(trace), ensure_ascii=False)
            return self._named(_store(path.with_suffix(".perfetto.json"), text), "inflight-perfetto.json")
        if isinstance(step, bool) or not isinstance(step, int):
            raise InflightError("Which step? A figure shows one.")
        text = step_figure(trace, step).to_html(include_plotlyjs=True, full_html=True)
        return self._named(_store(path.with_suffix(f".{step}.html"), text), f"inflight-step-{step}.html")

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or its replay's url; raises InflightError if it is not here."""
        return Trace.load(self._path(run))

    def _path(self, run: object) -> Path:
        """The file of a run's trace by the last part of its url, which is all that is looked at."""
        found = _ID.search(run) if isinstance(run, str) else None
        path = self._folder / f"{found[1]}.jsonl" if found else None
        if path is None or not path.exists():
            raise InflightError("This run is no longer on the server: run it again, or open a saved trace.")
        return path

    def _named(self, path: Path, name: str) -> dict:
        return {"url": self._url(path), "name": name}

    def _prune(self) -> None:
        files = [p for p in self._folder.iterdir() if p.is_file() and p.name.split(".")[0] not in self._pinned]
        for path in sorted(files, key=lambda p: p.stat().st_mtime)[:-_KEPT_FILES]:
            path.unlink(missing_ok=True)


def _store(path: Path, text: str) -> Path:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path
