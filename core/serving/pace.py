"""When a serving engine takes its next step: at a pace, or one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """When the next step may be taken. steps_per_s: None for full speed, 0 for single steps only.
    Not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps_per_s: float | None = None
        self._clock, self._last = clock, -float("inf")
        self._asked, self._owed = 0, False

    def set(self, steps_per_s: float | None) -> None:
        """Set the pace from the next step on; requested single steps are dropped."""
        self.steps_per_s, self._asked = steps_per_s, 0

    def ask(self, steps: int) -> None:
        """Take this many steps, at any pace."""
        self._asked += steps

    def owe(self) -> None:
        """Take one more step, even if the pace is changed before it."""
        self._owed = True

    def rest(self) -> None:
        """Nothing to do: requested steps are not kept for later."""
        self._asked, self._owed = 0, False

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step may be taken, 0 for now; None until one is requested."""
        if self.steps_per_s is None or self._asked or self._owed:
            return 0.0
        if self.steps_per_s == 0:
            return None
        return max(0.0, self._last + 1 / self.steps_per_s - self._clock())

    def stepped(self) -> None:
        """Call after a step was taken."""
        self._last, self._asked, self._owed = self._clock(), max(0, self._asked - 1), False
