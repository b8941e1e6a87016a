"""Two engines on the same requests, in numbers: the one that serves, and another. Knows events alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any

from core.trace.events import StepEvent


@dataclass
class _Side:
    """One of the two so far. ends: when each request finished, in seconds since the run began. lane_steps, used: of its lanes. told: of
    the ends.
    """

    lanes: int
    steps: int = 0
    lane_steps: int = 0
    used: int = 0
    running: int = 0
    waiting: int = 0
    ends: dict[str, float] = field_of(default_factory=dict)
    told: set[str] = field_of(default_factory=set)

    def add(self, event: StepEvent) -> None:
        self.steps += 1
        self.running, self.waiting = len({segment.request for segment in event.segments}), event.waiting.count
        self.used, self.lane_steps = self.used + self.running, self.lane_steps + self.lanes
        self.ends |= {f.request: event.t_end for f in event.finished}

    def forget(self, requests: Iterable[str]) -> None:
        for request in requests:
            self.ends.pop(request, None)
            self.told.discard(request)

    def news(self) -> dict[str, Any]:
        """finished: those that were not told before."""
        new = [request for request in self.ends if request not in self.told]
        self.told.update(new)
        return {
            "steps": self.steps,
            "occupancy": round(self.used / self.lane_steps, 4) if self.lane_steps else None,
            "running": self.running,
            "waiting": self.waiting,
            "finished": [[request, round(self.ends[request], 4)] for request in new],
        }


class Beside:
    """lanes: of the engine that serves; other_lanes: of the other. A request that was cancelled counts in neither."""

    def __init__(self, lanes: int, other_lanes: int) -> None:
        self._real, self._other = _Side(lanes), _Side(other_lanes)
        self._arrived: dict[str, float] = {}  # of those that did not finish in both
        self._both, self._sums = 0, (0.0, 0.0)

    @property
    def steps(self) -> tuple[int, int]:
        """Taken by the one that serves, and by the other."""
        return self._real.steps, self._other.steps

    def hear(self, event: StepEvent) -> None:
        """A step of the engine that serves."""
        self._arrived |= {arrived.request: arrived.t for arrived in event.arrived}
        self._real.add(event)
        gone = [f.request for f in event.finished if f.finish_reason == "cancelled"]
        for request in gone:
            self._arrived.pop(request, None)
        self._real.forget(gone)
        self._other.forget(gone)

    def add(self, event: StepEvent) -> None:
        """A step of the other."""
        self._other.add(event)
        self._other.forget([f.request for f in event.finished if f.request not in self._arrived])

    def told(self) -> dict[str, Any]:
        """Both sides; requests that finished since this was last asked, and the means of those that have finished on both."""
        sides = {"real": self._real.news(), "shadow": self._other.news()}
        for request in [r for r in self._other.ends if r in self._real.ends]:
            arrived = self._arrived.pop(request)
            ends = self._real.ends[request], self._other.ends[request]
            self._both += 1
            self._sums = self._sums[0] + ends[0] - arrived, self._sums[1] + ends[1] - arrived
            self._real.forget([request])
            self._other.forget([request])
        mean = [round(total / self._both, 4) for total in self._sums] if self._both else None
        return {**sides, "finished_in_both": self._both, "mean_e2e_s": mean}
