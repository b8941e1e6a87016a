"""When the device reached a point of its work, on the engine's clock: CUDA events, read later, so that nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class HostClock:
    """For a device that computes while the host waits: `mark` a point after all work handed to the device so far, `wait` until it has been
    reached, and read its `time` in seconds on the engine's clock, in the order in which marks were made.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def mark(self) -> float:
        return self._clock()

    def wait(self, mark: Any) -> None:
        pass

    def time(self, mark: Any) -> float:
        return mark


class CudaClock:
    """Events on the current stream. Each is timed from the one before: a long span in float32 milliseconds would lose its end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        torch.cuda.synchronize()
        before = clock()
        self._last = self.mark()
        self._last.synchronize()
        self._time = (before + clock()) / 2

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def time(self, mark: Any) -> float:
        self._time += self._last.elapsed_time(mark) / 1000
        self._last = mark
        return self._time


DeviceClock = HostClock | CudaClock
