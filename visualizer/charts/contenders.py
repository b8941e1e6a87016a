"""What the pictures of a comparison share: a colour for each contender, a finding as title, steps over time. Knows no single picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from core.config import POLICIES
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.metrics import DEFINITIONS
from core.trace.trace import Trace
from visualizer.charts.theme import HUES, TEMPLATE
from visualizer.words.language import t

_BY_PLACE = (7, 1, 4, 6, 3, 0, 2, 5)  # the hue of a policy by its place in `POLICIES`
_LETTERS_A_LINE = 84


def hues(names: Sequence[str]) -> dict[str, int]:
    """A number in `HUES` for each contender, no two the same: a policy has its own, unless one before it in the table has that; others take what is left.

    Raises InflightError for more contenders than can be told apart.
    """
    if len(names) > len(HUES):
        raise InflightError(f"{len(names)} contenders cannot be told apart by colour: at most {len(HUES)} are shown together.")
    found: dict[str, int] = {}
    for place, policy in enumerate(POLICIES):
        own = _BY_PLACE[place % len(_BY_PLACE)]
        if policy in names and own not in found.values():
            found[policy] = own
    for name in names:
        if name not in found:
            found[name] = next(hue for hue in reversed(_BY_PLACE) if hue not in found.values())
    return {name: found[name] for name in names}


def colour(name: str, comparison: Comparison) -> str:
    return HUES[hues(comparison.names)[name]]


def titled(figure: go.Figure, finding: str, defined: Sequence[str] = (), **layout: Any) -> go.Figure:
    """Give a figure its finding as title. The page shows `meta.finding` as text and drops the title, which exports need.

    defined: names of metrics whose definitions belong beside it.
    """
    lines = textwrap.wrap(finding, _LETTERS_A_LINE)
    figure.update_layout(
        template=TEMPLATE,
        title={
            "text": "<br>".join(lines),
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
        separators=t(".,"),  # of decimals and of thousands
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 12}},
    )
    figure.update_layout(**layout)
    return figure


def traced(comparison: Comparison) -> list[tuple[str, Trace]]:
    """The contenders that left a trace; raises InflightError if none did."""
    found = [(name, run.trace) for name, run in comparison.runs.items() if run.trace is not None and run.trace.events]
    if not found:
        raise InflightError("None of these runs left a trace, so there is nothing to draw over time.")
    return found


def since_start(trace: Trace) -> float:
    """The time that a run's axis begins with."""
    return trace.events[0].t_start
