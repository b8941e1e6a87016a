"""The passes of a simulated run timed again: each takes what the cost model in its header says. See
`core.proof.verify`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import InflightError
from core.simulate.cost import Cost
from core.simulate.fitted import Linear, measured
from core.simulate.roofline import Roofline
from core.trace.events import StepEvent
from core.trace.header import Header

_ROUNDED = 3e-6  # seconds: times in a trace are in whole microseconds


class Retimed:
    """One for each run, fed event by event."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    @classmethod
    def of(cls, header: Header) -> Retimed | None:
        """None for a run that was measured, and where the cost model is not ours, or of other
        numbers than ours are now.
        """
        cost = _rebuilt(header.cost or {})
        return None if cost is None else cls(cost)

    def fault(self, event: StepEvent) -> str | None:
        """What is wrong with the times of a step, or None."""
        for one in measured([event], self._cost.kv_bytes_per_token):
            said = self._cost.seconds(one.load)
            if abs(one.seconds - said) > _ROUNDED:
                return (
                    f"a pass of step {event.step} takes {one.seconds:.6f} s, and its cost model"
                    f" says {said:.6f} s."
                )
        return None


def _rebuilt(cost: Mapping[str, Any]) -> Cost | None:
    """A cost model from what a header says of it."""
    try:
        return Linear.from_json(cost) if cost.get("kind") == "fitted" else Roofline.from_json(cost)
    except InflightError:
        return None
