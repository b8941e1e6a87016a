"""Another policy beside an engine that serves, on the same requests: run again for real whenever nobody asks.

It reads what the engine's log is told, the pace included; `core.serving.rerun` says how the requests are run again. It has a thread of its own
and holds nobody up: it goes on only while no request is under way.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from core.config import EngineConfig
from core.errors import InflightError
from core.serving.engine import ServingEngine
from core.serving.event_log import LogEntry
from core.serving.messages import Publish, Subscribe, Unsubscribe
from core.serving.rerun import Rerun, Twin
from core.trace.header import Header

_TELL = 0.5  # seconds between two entries of its own
_LOOK = 0.02  # seconds between two looks for news


def shadow_config(real: EngineConfig, policy: str, num_blocks: int) -> EngineConfig:
    """The real limits and the real pool under another policy; raises InvalidConfig where that policy cannot have them."""
    return real.under(policy, num_blocks=num_blocks)


class _Over(Exception):
    """The run beside is over, or no longer wanted."""


class Shadow:
    """policy: of the shadow. It puts entries {"kind": "shadow"} into the engine's log; its thread ends with `close` or with the log."""

    def __init__(self, serving: ServingEngine, policy: str) -> None:
        self._serving, self.policy = serving, policy
        self._inbox: queue.SimpleQueue[LogEntry] = queue.SimpleQueue()
        self._closed = False
        self._begun: dict[str, Any] | None = None  # the header of a run that is not followed yet
        self._steps_per_s: float | None = None
        self._rerun: Rerun | None = None  # of the run that is followed
        self._thread = threading.Thread(target=self._work, name="inflight-shadow", daemon=True)

    def start(self) -> None:
        """Follow the engine from its next run on."""
        self._serving.send(Subscribe(self._inbox))
        self._thread.start()

    def close(self) -> None:
        """Ask it to end; it does so soon."""
        self._closed = True
        self._serving.send(Unsubscribe(self._inbox))

    # -- its thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        twin = Twin.of(self._serving.engine)
        while not self._ends:
            try:
                if self._begun is None:
                    self._wait()
                else:
                    begun, self._begun, self._rerun = self._begun, None, None
                    self._follow(Header.from_json(begun), twin)
            except _Over:
                continue
            except InflightError as error:
                self._say({"status": "refused", "sentence": str(error)})

    @property
    def _ends(self) -> bool:
        return self._closed or self._serving.event_log.closed

    def _follow(self, header: Header, twin: Twin) -> None:
        """Beside one run of the real engine, from its first step until another begins."""
        config = shadow_config(header.config, self.policy, header.num_blocks)
        rerun = self._rerun = Rerun(header, config, lambda: self._serving.engine.now, twin)
        rerun.hear({"kind": "pace", "steps_per_s": self._steps_per_s, "t": 0.0})
        told: Any = None
        told_at = -_TELL
        while True:
            is_idle = self._serving.is_idle  # asked first: what was said until then is in the inbox
            self._take_news()
            state = rerun.state
            if state != told and time.monotonic() - told_at >= _TELL:
                told, told_at = state, time.monotonic()
                self._say(state)
            if not (is_idle and rerun.advance()):
                time.sleep(_LOOK)

    def _wait(self) -> None:
        if self._inbox.empty():
            time.sleep(_LOOK)
        self._take_news()

    def _take_news(self) -> None:
        """What has happened; raises _Over for a run that begins, and at the end."""
        while not self._inbox.empty():
            entry = self._inbox.get()
            if isinstance(entry, dict) and entry["kind"] == "run":
                self._begun = entry["header"]
                raise _Over
            if isinstance(entry, dict) and entry["kind"] == "pace":
                self._steps_per_s = entry["steps_per_s"]
            if self._rerun is not None:
                self._rerun.hear(entry)
        if self._ends:
            raise _Over

    def _say(self, state: dict[str, Any]) -> None:
        self._serving.send(Publish({"kind": "shadow", "policy": self.policy, **state}))
