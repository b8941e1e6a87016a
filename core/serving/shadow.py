"""Another policy beside a serving engine, on the same requests: they are really run again whenever the engine is idle.

It reads the engine's log, including the pace; `core.serving.rerun` says how the requests are run again. It has its own thread
and delays no request: it advances only while none is in progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from core.errors import InflightError
from core.serving.engine import ServingEngine
from core.serving.event_log import LogEntry
from core.serving.rerun import Rerun, Twin
from core.trace.header import Header

_TELL = 0.5  # seconds between two log entries
_LOOK = 0.02  # seconds between two checks for new entries


class _Over(Exception):
    """The shadow has ended or is no longer wanted."""


class Shadow:
    """policy: the other one. It adds entries {"kind": "shadow"} to the engine's log; its thread ends with `close` or with the log."""

    def __init__(self, serving: ServingEngine, policy: str) -> None:
        self._serving, self._log, self.policy = serving, serving.event_log, policy
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="inflight-shadow", daemon=True)

    def start(self) -> None:
        """Follow the engine from its next run on."""
        self._heard = len(self._log) - 1  # the number of the last entry that was read
        self._steps_per_s = self._serving.steps_per_s
        self._thread.start()

    def close(self) -> None:
        """Ask it to end; returns before it has."""
        self._closed = True

    # -- its thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        twin = Twin.of(self._serving.engine)
        begun: dict[str, Any] | None = None  # the header of the run to follow
        while not self._ends:
            try:
                begun = self._follow(begun, twin)
            except InflightError as error:
                self._say({"status": "refused", "sentence": str(error)})
                begun = None

    @property
    def _ends(self) -> bool:
        return self._closed or self._log.closed

    def _follow(self, begun: dict[str, Any] | None, twin: Twin) -> dict[str, Any] | None:
        """Shadow one run of the real engine, if there is one, until another begins; returns that one's header."""
        rerun: Rerun | None = None
        if begun is not None:
            header = Header.from_json(begun)
            config = header.config.under(self.policy, num_blocks=header.num_blocks)
            rerun = Rerun(header, config, lambda: self._serving.engine.now, twin)
            rerun.hear({"kind": "pace", "steps_per_s": self._steps_per_s, "t": 0.0})
        said: Any = None
        said_at = -_TELL
        while not self._ends:
            is_idle = self._serving.is_idle  # read first: all entries up to then are in the log
            for entry in self._news():
                if isinstance(entry, dict) and entry["kind"] == "run":
                    return entry["header"]
                if isinstance(entry, dict) and entry["kind"] == "pace":
                    self._steps_per_s = entry["steps_per_s"]
                if rerun is not None:
                    rerun.hear(entry)
            if rerun is not None and rerun.state != said and time.monotonic() - said_at >= _TELL:
                said, said_at = rerun.state, time.monotonic()
                self._say(said)
            if rerun is None or not (is_idle and rerun.advance()):
                time.sleep(_LOOK)
        return None

    def _news(self) -> Iterator[LogEntry]:
        """New entries of the log; raises InflightError if some are no longer kept."""
        more = True
        while more:
            excerpt, more = self._log.take(self._heard)
            for message in excerpt.taken if excerpt is not None else ():
                self._heard = message.number
                if isinstance(message.data, dict) and message.data["kind"] == "skipped":
                    self._steps_per_s = self._serving.steps_per_s
                    raise InflightError(
                        "The engine was too far ahead: this run is not run again for real."
                    )
                yield message.data

    def _say(self, state: dict[str, Any]) -> None:
        self._log.add({"kind": "shadow", "policy": self.policy, **state})
