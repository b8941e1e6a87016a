"""The one colour table, and Plotly's template made from it. `assets/player/colours.js` has the same eight hues; a test compares them."""

from __future__ import annotations

from collections import Counter

import plotly.graph_objects as go

from core.trace.trace import Trace

HUES = ("#0072B2", "#D55E00", "#009E73", "#B5548A", "#C28A00", "#2E9CCB", "#7A5CD6", "#6B7A1F")
GROUND, PANEL, RULE, INK, MUTED, EMPTY = "#faf8f4", "#ffffff", "#e3ddd2", "#1b1b1f", "#5c5a55", "#f0ece4"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def deal(trace: Trace) -> dict[str, int]:
    """A hue for every admitted request, as the player deals them: of those that the fewest live requests have, the next one."""
    hues: dict[str, int] = {}
    live: set[str] = set()
    last = -1
    for event in trace.events:
        for admitted in event.admitted:
            if admitted.request not in hues:
                used = Counter(hues[r] for r in live)
                fewest = min(used[h] for h in range(len(HUES)))
                after = ((last + i) % len(HUES) for i in range(1, len(HUES) + 1))
                last = hues[admitted.request] = next(h for h in after if used[h] == fewest)
            live.add(admitted.request)
        live -= {f.request for f in event.finished}
    return hues


def tint(colour: str, share: float = 0.18) -> str:
    """The colour at `share` on white: ground for text, which must have 4.5 : 1."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - (255 - c) * share):02x}" for c in (red, green, blue))


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
