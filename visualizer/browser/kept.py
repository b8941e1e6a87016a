"""The runs, documents and files of a tab, in memory: the latest ones, under ids and addresses that name no server."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from core.errors import InflightError
from core.trace.perfetto import chrome_trace
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.documents.replay import translated_ranks, translated_replay
from visualizer.page.bundle import standalone_html
from visualizer.page.step import step_page

GONE = "This run is no longer in this tab: run it again."
_MOST = 32  # of the latest
_ID, _ADDRESS = "tab-", "tab:"


class Kept:
    """What a tab keeps. A text is made when it is asked for: the page has seen the steps of a run before the run is kept."""

    def __init__(self) -> None:
        self._traces: dict[str, Trace] = {}
        self._texts: OrderedDict[str, Callable[[], str]] = OrderedDict()

    def put(self, trace: Trace, source: str | None = None) -> dict[str, Any]:
        """Keep a run; `{"id", "url"}`. source: see `replay`."""
        kept = self._put(lambda: _as_text(translated_replay(trace, source)))
        self._traces[_name(kept["id"])] = trace
        return kept

    def put_ranks(self, ranks: Ranks, source: str | None = None) -> dict[str, Any]:
        """Keep the runs of an engine's ranks, and the document of all of them; `{"id", "url"}` of that."""
        ids = [self.put(rank.trace, source)["id"] for rank in ranks.ranks]
        return self._put(lambda: _as_text(translated_ranks(ranks, ids, source)))

    def put_document(self, document: dict[str, Any]) -> dict[str, Any]:
        """Keep a document; `{"id", "url"}`."""
        text = _as_text(document)
        return self._put(lambda: text)

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or address; raises InflightError if it is gone."""
        if (trace := self._traces.get(_name(run))) is None:
            raise InflightError(GONE)
        return trace

    def text(self, url: object) -> str:
        """What lies at an address; raises InflightError if it is gone."""
        if (make := self._texts.get(_name(url))) is None:
            raise InflightError(GONE)
        return make()

    def export(self, kind: object, run: object, step: object = None) -> dict[str, Any]:
        """A run as a file, `{"url", "name"}`; see `visualizer.server.store.Store.export`. A page with a figure lacks Plotly where `PLOTLY` stands."""
        if kind == "html":
            return self.export_page(run, {"step": step})
        trace = self.trace(run)
        if kind == "jsonl":
            return self._file("inflight-trace.jsonl", "".join(f"{line}\n" for line in trace.lines()))
        if kind == "perfetto":
            return self._file("inflight-perfetto.json", json.dumps(chrome_trace(trace), ensure_ascii=False))
        if kind != "plotly" or isinstance(step, bool) or not isinstance(step, int):
            raise InflightError("There are exports of a run (jsonl, perfetto, html), and of a step (plotly).")
        return self._file(f"inflight-step-{step}.html", step_page(trace, step))

    def export_page(self, run: object, place: dict[str, object]) -> dict[str, Any]:
        """A run, or all ranks of an engine, as a page that opens at a place: see `Store.export_ranks`."""
        known = {name: at for name, at in place.items() if isinstance(at, (int, float)) and not isinstance(at, bool)}
        return self._file("inflight-replay.html", standalone_html(json.loads(self.text(run)), known))

    def _file(self, name: str, text: str) -> dict[str, Any]:
        return {"url": self._put(lambda: text)["url"], "name": name}

    def _put(self, text: Callable[[], str]) -> dict[str, Any]:
        name = secrets.token_hex(10)  # unknown to an earlier worker of this tab, whose runs the page may still name
        self._texts[name] = text
        while len(self._texts) > _MOST:
            old, _ = self._texts.popitem(last=False)
            self._traces.pop(old, None)
        return {"id": f"{_ID}{name}", "url": f"{_ADDRESS}{name}"}


def _name(of: object) -> str:
    return str(of).removeprefix(_ADDRESS).removeprefix(_ID)


def _as_text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
