"""Another policy beside an engine that serves, on the same requests: run again for real whenever nobody asks.

It is fed with the real engine's arrivals, cancellations and pace; `core.serving.rerun` says how they are run again. It has a thread of its own
and holds nobody up: it goes on only while no request is under way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from core.config import EngineConfig
from core.errors import InflightError
from core.serving.engine import ServingEngine
from core.serving.output_processor import Message
from core.serving.rerun import Rerun, Twin
from core.trace.header import Header

_MOST = 4096  # messages that may wait for it
_TELL = 0.5  # seconds between two messages of its own
_LOOK = 0.02  # seconds between two looks for news


def shadow_config(real: EngineConfig, policy: str, num_blocks: int) -> EngineConfig:
    """The real limits and the real pool under another policy; raises InvalidConfig where that policy cannot have them."""
    return real.under(policy, num_blocks=num_blocks)


class _Over(Exception):
    """The run beside is over, or no longer wanted."""


class _News(NamedTuple):
    """t: when it was said, on the real engine's clock."""

    t: float
    message: Message


class Shadow:
    """policy: of the shadow. It says messages {"kind": "shadow"} in the engine's feed; its thread ends with `close` or with the feed.

    `hear` takes what the feed is told, from a run's beginning on; it never waits.
    """

    def __init__(self, serving: ServingEngine, policy: str) -> None:
        self._serving, self.policy = serving, policy
        self._news: deque[_News] = deque()
        self._closed = False
        self._begun: dict[str, Any] | None = None  # the header of a run that is not followed yet, as it is told
        self._steps_per_s: float | None = None
        self._rerun: Rerun | None = None  # of the run that is followed
        self._thread = threading.Thread(target=self._work, name="inflight-shadow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hear(self, message: Message) -> None:
        news = _News(self._now(), message)
        if len(self._news) < 2 * _MOST:  # a shadow this far behind gives up, and begins again with the next run
            self._news.append(news)
        elif isinstance(message, dict) and message["kind"] == "run":
            self._news.clear()
            self._news.append(news)

    def close(self) -> None:
        """Ask it to end; it does so soon."""
        self._closed = True

    # -- its thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        twin = Twin.of(self._serving.engine)
        while not self._ends:
            try:
                if self._begun is None:
                    self._listen()
                else:
                    begun, self._begun, self._rerun = self._begun, None, None
                    self._follow(Header.from_json(begun), twin)
            except _Over:
                continue
            except InflightError as error:
                self._say({"status": "refused", "sentence": str(error)})

    @property
    def _ends(self) -> bool:
        return self._closed or self._serving.feed.closed

    def _now(self) -> float:
        return self._serving.engine.now

    def _follow(self, header: Header, twin: Twin) -> None:
        """Beside one run of the real engine, from its first step until another begins."""
        config = shadow_config(header.config, self.policy, header.num_blocks)
        rerun = self._rerun = Rerun(header, config, self._now, twin)
        rerun.hear(0.0, {"kind": "pace", "steps_per_s": self._steps_per_s})
        told: Any = None
        told_at = -_TELL
        while True:
            is_idle = self._serving.is_idle  # asked first: what was said until then is among the news
            self._take_news()
            state = rerun.state
            if state != told and time.monotonic() - told_at >= _TELL:
                told, told_at = state, time.monotonic()
                self._say(state)
            if not (is_idle and rerun.advance()):
                time.sleep(_LOOK)

    def _listen(self) -> None:
        """Wait for news."""
        if not self._news:
            time.sleep(_LOOK)
        self._take_news()

    def _take_news(self) -> None:
        """What has been heard; raises _Over for a run that begins, and at the end."""
        for _ in range(len(self._news)):
            t, message = self._news.popleft()
            if isinstance(message, dict) and message["kind"] == "run":
                self._begun = message["header"]
                raise _Over
            if isinstance(message, dict) and message["kind"] == "pace":
                self._steps_per_s = message["steps_per_s"]
            if self._rerun is not None:
                self._rerun.hear(t, message)
        if self._ends:
            raise _Over

    def _say(self, told: dict[str, Any]) -> None:
        message = {"kind": "shadow", "policy": self.policy, **told}
        self._serving.ask(lambda: self._serving.feed.add(message))
