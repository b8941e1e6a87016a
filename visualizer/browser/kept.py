"""Keeps the latest runs, documents and files of a browser tab in memory, as `tab:` addresses."""

import json
import secrets
import zlib
from collections import OrderedDict
from typing import Any

from core.account.perfetto import chrome_trace
from core.errors import InflightError
from core.trace.ranks import Ranks
from core.trace.trace import Trace
from visualizer.documents import as_text
from visualizer.documents.places import checked_place
from visualizer.documents.replay import translated_ranks, translated_replay
from visualizer.page.bundle import standalone_html
from visualizer.page.step import step_page

GONE = "This run is no longer in this tab: run it again."
_MOST = 2**25  # compressed bytes
_ID, _ADDRESS = "tab-", "tab:"


class Kept:
    """Compressed runs, documents and files, the oldest dropped first; replays are made anew."""

    def __init__(self) -> None:
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._sources: dict[str, str | None] = {}  # of runs
        self._opened: tuple[str, Trace] | None = None  # the run that was asked for last

    def put(self, trace: Trace, source: str | None = None) -> dict[str, Any]:
        """Keep a run; returns `{"id", "url"}`. source: see `replay`."""
        name = self._put("".join(f"{line}\n" for line in trace.lines()))
        self._sources[name], self._opened = source, (name, trace)
        return _named(name)

    def put_ranks(self, ranks: Ranks, source: str | None = None) -> dict[str, Any]:
        """Keep the runs of ranks and a document of all; returns `{"id", "url"}` of that."""
        ids = [self.put(rank.trace, source)["id"] for rank in ranks.ranks]
        return self.put_document(translated_ranks(ranks, ids, source))

    def put_document(self, document: dict[str, Any]) -> dict[str, Any]:
        return _named(self._put(as_text(document)))

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or address; raises InflightError if it is gone."""
        name = _name(run)
        if name not in self._sources:
            raise InflightError(GONE)
        if self._opened is None or self._opened[0] != name:
            self._opened = (
                name,
                Trace.from_lines(self._text(name).removesuffix("\n").split("\n"), trusted=True),
            )
        return self._opened[1]

    def text(self, url: object) -> str:
        """The text at an address; raises InflightError if it is gone."""
        name = _name(url)
        if name in self._sources:
            return as_text(translated_replay(self.trace(name), self._sources[name]))
        return self._text(name)

    def export(self, kind: object, run: object, step: object = None) -> dict[str, Any]:
        """A run as a file, `{"url", "name"}`; see `visualizer.server.store.Store.export`. A page
        with a figure has the placeholder `PLOTLY` instead of Plotly.
        """
        if kind == "html":
            return self.export_page(run, {"step": step})
        trace = self.trace(run)
        if kind == "jsonl":
            return self._file("inflight-trace.jsonl", self._text(_name(run)))
        if kind == "perfetto":
            return self._file(
                "inflight-perfetto.json", json.dumps(chrome_trace(trace), ensure_ascii=False)
            )
        if kind != "plotly" or isinstance(step, bool) or not isinstance(step, int):
            raise InflightError(
                "There are exports of a run (jsonl, perfetto, html), and of a step (plotly)."
            )
        return self._file(f"inflight-step-{step}.html", step_page(trace, step))

    def export_page(self, run: object, place: dict[str, Any]) -> dict[str, Any]:
        """A run, or all ranks, as a page that opens at a place: see `Store.export_ranks`."""
        data = json.loads(self.text(run))
        return self._file(
            "inflight-replay.html", standalone_html(data, checked_place(data, **place))
        )

    def _file(self, name: str, text: str) -> dict[str, Any]:
        return {"url": _named(self._put(text))["url"], "name": name}

    def _text(self, name: str) -> str:
        if (packed := self._packed.get(name)) is None:
            raise InflightError(GONE)
        return zlib.decompress(packed).decode("utf-8", "surrogatepass")

    def _put(self, text: str) -> str:
        # random, since the page may still ask for runs of an earlier worker of this tab
        name = secrets.token_hex(10)
        self._packed[name] = zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
        while len(self._packed) > 1 and sum(map(len, self._packed.values())) > _MOST:
            old, _ = self._packed.popitem(last=False)
            self._sources.pop(old, None)
        return name


def _named(name: str) -> dict[str, Any]:
    return {"id": f"{_ID}{name}", "url": f"{_ADDRESS}{name}"}


def _name(of: object) -> str:
    return str(of).removeprefix(_ADDRESS).removeprefix(_ID)
