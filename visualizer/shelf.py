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
from core.perfetto import chrome_trace
from core.trace import Trace
from visualizer.player import standalone_html
from visualizer.replay import replay, write
from visualizer.views.step_figure import step_figure

_ID = re.compile(r"[0-9a-f]{20}")
_KEPT = 1_000


class Shelf:
    """A folder of runs. url: the address under which a file is served."""

    def __init__(self, folder: Path, url: Callable[[Path], str]) -> None:
        self._folder, self._url = folder, url
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, trace: Trace, source: str | None = None) -> dict:
        """Store a run; `{"id", "url"}`. source: "uploaded" or "recorded" where its header should say so on the page."""
        data = replay(trace)
        if source:
            data["header"] = {**data["header"], "source": source}
        path = write(self._folder, data)
        kept = path.with_suffix(".jsonl")
        if not kept.exists():
            trace.save(kept)
            self._prune()
        return {"id": path.stem, "url": self._url(path)}

    def export(self, kind: str, run: str, step: int | None = None) -> str:
        """The address of a run as a file of the kind; raises InflightError for a kind, run or step that there is not.

        kind: "trace" (JSON lines), "perfetto", "html" (the whole replay), "figure" (a step, interactive).
        """
        if kind not in ("trace", "perfetto", "html", "figure"):
            raise InflightError(f"There is no export {str(kind)[:20]!r}; there are trace, perfetto, html and figure.")
        path = self._folder / f"{run}.jsonl" if isinstance(run, str) and _ID.fullmatch(run) else None
        if path is None or not path.exists():
            raise InflightError("This run is no longer on the server: run it again, or open a saved trace.")
        if kind == "trace":
            return self._url(path)
        if kind == "html":
            data = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            return self._made(path.with_suffix(".html"), lambda: standalone_html(data))
        trace = Trace.load(path)
        if kind == "perfetto":
            text = json.dumps(chrome_trace(trace), ensure_ascii=False)
            return self._made(path.with_suffix(".perfetto.json"), lambda: text)
        if isinstance(step, bool) or not isinstance(step, int):
            raise InflightError("Which step? A figure shows one.")
        figure = step_figure(trace, step)
        return self._made(path.with_suffix(f".{step}.html"), lambda: figure.to_html(include_plotlyjs=True, full_html=True))

    def _made(self, path: Path, text: Callable[[], str]) -> str:
        if not path.exists():
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text(text(), encoding="utf-8")
            partial.replace(path)
        return self._url(path)

    def _prune(self) -> None:
        files = sorted((p for p in self._folder.iterdir() if p.is_file()), key=lambda p: p.stat().st_mtime)
        for path in files[:-_KEPT]:
            path.unlink(missing_ok=True)
