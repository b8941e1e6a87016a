"""Clocks that do not follow the time of day: those of simulations, of replays and of tests."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only when it is told to. `now` is its time in seconds; calling the clock
    returns the same, as calling `time.perf_counter` does.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock, by at least a nanosecond: a wait too short to change a large float would
        never end.
        """
        self.now += max(seconds, 1e-9)
