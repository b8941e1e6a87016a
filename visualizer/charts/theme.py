"""The colour table, the Plotly template made from it, and titles of figures."""

import html
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from core.account.metrics import DEFINITIONS
from core.errors import InflightError
from core.policy import POLICIES
from core.trace.events import StepEvent
from core.trace.trace import Trace
from visualizer.charts.figure import Figure
from visualizer.words.language import t

HUES = ("#0072B2", "#D55E00", "#009E73", "#B5548A", "#C28A00", "#2E9CCB", "#7A5CD6", "#6B7A1F")
GROUND = "#faf8f4"
PANEL = "#ffffff"
RULE = "#e3ddd2"
INK = "#1b1b1f"
MUTED = "#5c5a55"
EMPTY = "#f0ece4"
_BY_PLACE = (7, 1, 4, 6, 3, 0, 2, 5)  # the hue of each policy, in the order of `POLICIES`
_LETTERS_A_LINE = 84
LEFT, RIGHT = {"cell": 1}, {"cell": 2}  # of two figures side by side
# the end of a hover text: the name of the line, or nothing
NAMED, UNNAMED = "<extra>%{fullData.name}</extra>", "<extra></extra>"
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


class Hues:
    """Gives each request a hue when it first has a lane, as the player does: the least used."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}  # of requests in a lane, or preempted
        self._last = -1

    def deal(self, event: StepEvent) -> dict[str, int]:
        """The hues of requests that first have a lane in the next event."""
        dealt: dict[str, int] = {}
        if event.resumed is not None:  # of those who wait now, none counts among the used
            running, before = [c.request for c in event.resumed.running], self.live
            self.live = {request: before[request] for request in running if request in before}
            dealt |= self._dealt(running)
            waiting = (c.request for c in event.resumed.waiting)
            self.live |= {request: before[request] for request in waiting if request in before}
        self._gone(f.request for f in event.finished if f.when == "before")
        self._gone(x.request for x in event.released if x.when == "before")
        dealt |= self._dealt(admitted.request for admitted in event.admitted)
        self._gone(x.request for x in event.released if x.when == "after")
        return dealt

    def _dealt(self, requests: Iterable[str]) -> dict[str, int]:
        dealt: dict[str, int] = {}
        for request in requests:
            if request not in self.live:
                used = Counter(self.live.values())
                fewest = min(used[h] for h in range(len(HUES)))
                after = ((self._last + i) % len(HUES) for i in range(1, len(HUES) + 1))
                self._last = next(h for h in after if used[h] == fewest)
                self.live[request] = dealt[request] = self._last
        return dealt

    def _gone(self, requests: Iterable[str]) -> None:
        for request in requests:
            self.live.pop(request, None)


def deal(trace: Trace) -> dict[str, int]:
    """The hue of every request of a run that had a lane."""
    hues = Hues()
    return {request: hue for event in trace.events for request, hue in hues.deal(event).items()}


def contender_hues(names: Sequence[str]) -> dict[str, int]:
    """An index into `HUES` for each contender, all different: a policy gets its own hue, unless an
    earlier contender has it; the others get the remaining ones. Raises InflightError for more
    contenders than there are hues.
    """
    if len(names) > len(HUES):
        raise InflightError(
            f"{len(names)} contenders cannot be told apart by colour: at most {len(HUES)} are shown"
            " together."
        )
    found: dict[str, int] = {}
    for place, policy in enumerate(POLICIES):
        own = _BY_PLACE[place % len(_BY_PLACE)]
        if policy in names and own not in found.values():
            found[policy] = own
    for name in names:
        if name not in found:
            found[name] = next(hue for hue in reversed(_BY_PLACE) if hue not in found.values())
    return {name: found[name] for name in names}


def tint(colour: str, share: float = 0.18) -> str:
    """The colour at `share` on white: a background for text with a contrast of 4.5 : 1. Halves are
    rounded up as in the browser, which looks colours up by value.
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(
        f"{math.floor(255 - (255 - c) * share + 0.5):02x}" for c in (red, green, blue)
    )


_AXIS = {"gridcolor": RULE, "linecolor": RULE, "zeroline": False}
TEMPLATE = {
    "layout": {
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": GROUND,
        "plot_bgcolor": PANEL,
        "colorway": list(HUES),
        "margin": {"l": 80, "r": 24, "t": 72, "b": 48},
        "hoverlabel": {
            "bgcolor": PANEL,
            "bordercolor": RULE,
            "font": {"family": FONT, "color": INK},
        },
        "xaxis": _AXIS,
        "yaxis": _AXIS | {"automargin": True, "ticklabelstandoff": 6},
    }
}


def outlined(colours: list[str]) -> dict[str, Any]:
    """The style of bars: pale, each outlined in its own colour."""
    return {
        "color": [tint(colour, 0.35) for colour in colours],
        "line": {"color": colours, "width": 1.5},
    }


def escaped(text: str) -> str:
    """A text that Plotly shows as it is, instead of interpreting HTML in it."""
    return html.escape(text.replace("\n", "↵").replace("\t", "→").replace("\x00", "␀"), quote=False)


def titled(figure: Figure, finding: str, defined: Sequence[str] = (), **layout: Any) -> Figure:
    """Give a figure its finding as title. The page shows `meta.finding` as text and drops the
    title, which is for exports. defined: names of metrics whose definitions belong to it.
    """
    lines = textwrap.wrap(finding, _LETTERS_A_LINE, break_on_hyphens=False)
    figure.update_layout(
        template=TEMPLATE,
        title={
            "text": "<br>".join(map(escaped, lines)),
            "font": {"size": 16},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 0.97,
            "yanchor": "top",
        },
        meta={"finding": finding, "definitions": [t(DEFINITIONS[name]) for name in defined]},
        margin={"l": 96, "r": 24, "t": 44 + 20 * len(lines), "b": 52},
        height=360,
        separators=t(".,"),  # for decimals and thousands
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 12}},
    )
    figure.update_layout(**layout)
    return figure
