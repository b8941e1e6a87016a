"""When an engine that is watched takes its next step: at a pace, or one at a time. Knows no engine."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """When the next step may be taken. steps_per_s: None for as fast as can be, 0 for single steps alone. All of it belongs to one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps_per_s: float | None = None
        self._clock, self._last = clock, -float("inf")
        self._asked, self._owed = 0, False

    def set(self, steps_per_s: float | None) -> None:
        """Set the pace from the next step on; single steps that were asked for are forgotten."""
        self.steps_per_s, self._asked = steps_per_s, 0

    def ask(self, steps: int) -> None:
        """Take this many steps, at any pace."""
        self._asked += steps

    def owe(self) -> None:
        """Take a step, at any pace and whatever the pace is set to before it."""
        self._owed = True

    def rest(self) -> None:
        """There is nothing to do: steps that were asked for are not kept for later."""
        self._asked, self._owed = 0, False

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step may be taken, 0 for now; None until it is asked for."""
        if self.steps_per_s is None or self._asked or self._owed:
            return 0.0
        if self.steps_per_s == 0:
            return None
        return max(0.0, self._last + 1 / self.steps_per_s - self._clock())

    def stepped(self) -> None:
        """A step was taken."""
        self._last, self._asked, self._owed = self._clock(), max(0, self._asked - 1), False
