"""What an engine that is followed has to do, from its latest steps. Knows no page."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from core.trace.events import StepEvent

_WINDOW_S = 5.0  # over which tokens a second are counted
_IDLE_S = 3.0  # without a step, after which an engine gives no tokens


class EngineLoad:
    """Of one recording, step by step."""

    def __init__(self) -> None:
        self._last: StepEvent | None = None
        self._running = 0
        # begin, end and tokens of each step in the window
        self._tokens: deque[tuple[float, float, int]] = deque()
        self._at = 0.0

    def take(self, event: StepEvent) -> None:
        """The next step."""
        if self._tokens and event.t_start < self._tokens[-1][0]:
            self._tokens.clear()  # another recording
        over = {finished.request for finished in event.finished}
        self._running = len(
            {*(s.request for s in event.segments), *(s.request for s in event.stalled)} - over
        )
        self._tokens.append((event.t_start, event.t_end, len(event.sampled)))
        while event.t_end - self._tokens[0][1] > _WINDOW_S:
            self._tokens.popleft()
        self._last, self._at = event, time.monotonic()

    def to_json(self) -> dict[str, Any]:
        """running, waiting: requests after the latest step. kv_used, kv_total: blocks. tokens_s: in
        the latest seconds. silent_s: since the latest step was seen. None for each while there is
        none.
        """
        if self._last is None:
            return dict.fromkeys(
                ("running", "waiting", "kv_used", "kv_total", "tokens_s", "silent_s")
            )
        silent = time.monotonic() - self._at
        span = max(self._tokens[-1][1] - self._tokens[0][0], 1e-6)
        return {
            "running": self._running,
            "waiting": self._last.waiting.count,
            "kv_used": self._last.kv.used if self._running else 0,  # whoever is over holds no block
            "kv_total": self._last.kv.total,
            "tokens_s": (
                0.0 if silent > _IDLE_S else sum(tokens for *_, tokens in self._tokens) / span
            ),
            "silent_s": silent,
        }
