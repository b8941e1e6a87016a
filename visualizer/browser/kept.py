"""The runs and documents of a tab, in memory: the latest ones, under ids and addresses that name no server."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from core.errors import InflightError
from core.trace.trace import Trace
from visualizer.documents.replay import translated_replay

GONE = "This run is no longer in this tab's memory: run it again, or open a saved trace."
_MOST = 24  # of the latest runs and documents
_ID, _ADDRESS = "tab-", "tab:"


class Kept:
    """What a tab keeps. A text is made when it is asked for: the page has seen a run's steps before the run is kept."""

    def __init__(self) -> None:
        self._traces: dict[str, Trace] = {}
        self._texts: OrderedDict[str, Callable[[], str]] = OrderedDict()

    def run(self, trace: Trace, source: str | None = None) -> dict[str, Any]:
        """Keep a run; `{"id", "url"}`. source: see `replay`."""
        kept = self._put(lambda: _as_text(translated_replay(trace, source)))
        self._traces[_name(kept["id"])] = trace
        return kept

    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        """Keep a document; `{"id", "url"}`."""
        text = _as_text(document)
        return self._put(lambda: text)

    def trace(self, run: object) -> Trace:
        """A run's trace by its id or address; raises InflightError if it is gone."""
        try:
            return self._traces[_name(run)]
        except KeyError:
            raise InflightError(GONE) from None

    def text(self, url: str) -> str:
        """What lies at an address; raises InflightError if it is gone."""
        try:
            return self._texts[_name(url)]()
        except KeyError:
            raise InflightError(GONE) from None

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
