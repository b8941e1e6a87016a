"""The one colour table, and Plotly's template made from it. `assets/player/parts/colours.js` has the same eight hues; a test compares them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import plotly.graph_objects as go

from core.trace.events import StepEvent
from core.trace.trace import Trace

HUES = ("#0072B2", "#D55E00", "#009E73", "#B5548A", "#C28A00", "#2E9CCB", "#7A5CD6", "#6B7A1F")
GROUND, PANEL, RULE, INK, MUTED, EMPTY = "#faf8f4", "#ffffff", "#e3ddd2", "#1b1b1f", "#5c5a55", "#f0ece4"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


class Hues:
    """Deals a hue to every request when it is first admitted, as the player does: of those that the fewest live requests have, the next one."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}  # of requests in a lane, or preempted
        self._last = -1

    def deal(self, event: StepEvent) -> dict[str, int]:
        """The hues of requests that are admitted for the first time in the run's next event."""
        dealt: dict[str, int] = {}
        self._gone(
            [*(f.request for f in event.finished if f.when == "before"), *(x.request for x in event.left if x.when == "before")]
        )
        for admitted in event.admitted:
            if admitted.request not in self.live:
                used = Counter(self.live.values())
                fewest = min(used[h] for h in range(len(HUES)))
                after = ((self._last + i) % len(HUES) for i in range(1, len(HUES) + 1))
                self._last = next(h for h in after if used[h] == fewest)
                self.live[admitted.request] = dealt[admitted.request] = self._last
        self._gone([x.request for x in event.left if x.when == "after"])
        return dealt

    def _gone(self, requests: Iterable[str]) -> None:
        for request in requests:
            self.live.pop(request, None)


def deal(trace: Trace) -> dict[str, int]:
    """The hue of every admitted request of a run."""
    hues = Hues()
    return {request: hue for event in trace.events for request, hue in hues.deal(event).items()}


def tint(colour: str, share: float = 0.18) -> str:
    """The colour at `share` on white: ground for text, which must have 4.5 : 1. Halves go up, as in the browser, which finds it again by value."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{math.floor(255 - (255 - c) * share + 0.5):02x}" for c in (red, green, blue))


TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": GROUND,
        "plot_bgcolor": PANEL,
        "colorway": list(HUES),
        "margin": {"l": 80, "r": 24, "t": 72, "b": 48},
        "hoverlabel": {"bgcolor": PANEL, "bordercolor": RULE, "font": {"family": FONT, "color": INK}},
        "xaxis": {"gridcolor": RULE, "linecolor": RULE, "zeroline": False},
        "yaxis": {"automargin": True, "gridcolor": RULE, "linecolor": RULE, "zeroline": False},
    }
)
