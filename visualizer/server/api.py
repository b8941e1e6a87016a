"""What the page asks of its server, as plain functions: the state of things, runs, uploads, exports. Knows nothing of Gradio.

Every answer is plain data. A refusal is `{"error": one sentence}`, never an exception: the page shows it and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from core.config import POLICIES
from core.errors import InflightError
from core.models.cache import Models
from core.models.load import BUILTIN_MODELS
from core.trace.trace import Trace
from core.workload.presets import PRESETS, Preset
from visualizer.documents.catalogue import TRACES
from visualizer.server.attention_weights import attention_weights
from visualizer.server.lessons import Lessons
from visualizer.server.limits import Limits, check_upload
from visualizer.server.runs import Runs
from visualizer.server.store import Shelf

log = logging.getLogger("inflight")


class Server:
    """One for each process. folder: where runs are kept; url: the address under which one of its files is served."""

    def __init__(self, folder: Path, url: Callable[[Path], str], limits: Limits, traces: Path = TRACES) -> None:
        self._limits = limits
        self._url = url
        self._shelf = Shelf(folder, url)
        self._lessons = Lessons(folder / "learn", traces)
        self._models = Models()
        self._runs = Runs(limits, self._shelf, self._models)
        self.catalogue = self._shelf.catalogue(traces)

    def state(self) -> dict:
        """What can be run here."""
        return {
            "models": list(BUILTIN_MODELS),
            "any_model": self._limits.any_model,
            "presets": [_preset(p) for p in PRESETS.values()],
            "policies": [{"name": p.name, "shows": p.shows, "knobs": p.knobs} for p in POLICIES.values()],
            "limits": self._limits.to_json(),
            "catalogue": self.catalogue,
        }

    def run(self, spec: dict, visitor: str) -> AsyncIterator[dict]:
        """Start a run; its deltas."""
        return self._runs.stream(spec, visitor)

    def lessons(self, language: str) -> dict:
        """The address of the lessons in a language, `{"url"}`, or why there are none."""
        try:
            return {"url": self._url(self._lessons.document(language))}
        except InflightError as error:
            return {"error": str(error)}

    def cancel(self, run: str) -> dict:
        return {"cancelled": self._runs.cancel(run)}

    def missing(self, run: str, seq_from: int) -> list[dict]:
        return self._runs.missing(run, seq_from)

    def upload(self, text: str) -> dict:
        """Open a saved trace: `{"id", "url"}`, or why it cannot be opened."""
        if not isinstance(text, str):
            return {"error": "A saved trace is a text file."}
        try:
            check_upload(len(text.encode("utf-8", "surrogatepass")), self._limits)
            return self._shelf.put(Trace.from_lines(text.removesuffix("\n").split("\n")), source="uploaded")
        except InflightError as error:
            return {"error": f"This file cannot be opened as a trace: {error}"}
        except Exception:  # a file made to break the reader: it is refused, the server goes on
            log.exception("upload failed")
            return {"error": "This file cannot be opened as a trace: it contradicts itself."}

    def export(self, kind: str, run: str, step: int | None = None) -> dict:
        """`{"url", "name"}` of a run as a file, or why not."""
        try:
            return self._shelf.export(kind, run, step)
        except InflightError as error:
            return {"error": str(error)}

    def attention(self, run: str, step: int, pass_index: int, layer: int, head: int) -> dict:
        """`{"segments"}`: the real weights of one head over each segment of a pass, or why not."""
        try:
            trace = self._shelf.trace(run)
            name = trace.header["model"].get("name")
            if name not in BUILTIN_MODELS:
                raise InflightError("Attention weights are shown for the built-in models only.")
            adapter, _ = self._models.get(name, "cpu")
            return {"segments": attention_weights(trace, adapter, step, pass_index, layer, head)}
        except InflightError as error:
            return {"error": str(error)}


def _preset(preset: Preset) -> dict:
    spec = {"workload": preset.workload.to_json(), "config": preset.config.to_json(), "model": preset.model, "device": "auto"}
    return {"name": preset.name, "title": preset.title, "shows": preset.shows, "spec": spec}
