"""A clock that moves only when told."""

from __future__ import annotations


class Clock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """A sleep that takes no time."""
        self.now += seconds
