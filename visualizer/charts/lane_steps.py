"""Where every lane-step went: useful, padding, behind the barrier, stalled, empty."""

from __future__ import annotations

import plotly.graph_objects as go

from core.measure.compare import Comparison
from visualizer.charts.contenders import titled
from visualizer.charts.theme import HUES, MUTED, PANEL, RULE
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "Where every lane-step went"

_ON_USEFUL = "#141414"  # stays dark in the dark theme, whose green is light
_KINDS = (
    ("useful", "useful", HUES[2], ""),
    ("padding", "padding: finished rows", "#bfb8aa", "/"),
    ("barrier", "empty behind the barrier", HUES[1], "x"),
    ("stalled", "stalled", HUES[6], "."),
    ("empty", "empty: nobody to serve", PANEL, ""),
)


def figure(comparison: Comparison) -> go.Figure:
    """Shares of each contender's lane-steps; the counts are on hover and, where they fit, in the bar."""
    counted = {n: c for n in reversed(comparison.names) if (c := comparison.medians[n].get("lane_steps")) and c["total"]}
    picture = go.Figure()
    for kind, label, fill, pattern in _KINDS:
        counts = [c[kind] for c in counted.values()]
        if not any(counts):
            continue
        shares = [count / c["total"] for count, c in zip(counts, counted.values(), strict=True)]
        picture.add_bar(
            x=shares,
            y=list(counted),
            orientation="h",
            width=0.56,
            name=t(label),
            marker={
                "color": PANEL if pattern else fill,
                "line": {"color": RULE if kind == "empty" else fill, "width": 1},
                "pattern": {"shape": pattern, "fgcolor": fill, "fgopacity": 1, "size": 6, "solidity": 0.35},
            },
            text=[
                t(f"{count:,.0f}") if share > 0.06 and kind in ("useful", "empty") else ""
                for count, share in zip(counts, shares, strict=True)
            ],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": _ON_USEFUL if kind == "useful" else MUTED, "size": 12},
            customdata=[t(f"{count:,.0f} of {c['total']:,.0f}") for count, c in zip(counts, counted.values(), strict=True)],
            hovertemplate=t("{counts} lane-steps", counts="%{customdata}") + " (%{x:.1%})<extra>%{fullData.name}</extra>",
        )
    picture.update_xaxes(title=t("share of all lane-steps"), tickformat=".0%", range=[0, 1])
    return titled(
        picture, findings.lane_steps(comparison), ("lane_steps", "lane_occupancy"), barmode="stack", legend_traceorder="normal"
    )
