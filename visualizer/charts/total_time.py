"""Total time: the median of each contender's runs as a bar, every run as a dot."""

from __future__ import annotations

import statistics

import plotly.graph_objects as go

from core.measure.compare import Comparison
from visualizer.charts.contenders import colour, titled
from visualizer.charts.theme import INK, PANEL, tint
from visualizer.words import findings, verdicts
from visualizer.words.language import t

TITLE = "Total time"


def figure(comparison: Comparison) -> go.Figure:
    """Fastest on top."""
    names = sorted(comparison.names, key=lambda n: statistics.median(comparison.walls[n]), reverse=True)
    medians = [statistics.median(comparison.walls[n]) for n in names]
    picture = go.Figure()
    picture.add_bar(
        x=medians,
        y=names,
        orientation="h",
        width=0.56,
        marker={
            "color": [tint(colour(n, comparison), 0.35) for n in names],
            "line": {"color": [colour(n, comparison) for n in names], "width": 1.5},
        },
        text=[f" {findings.seconds(m)}" for m in medians],
        textposition="inside",
        insidetextanchor="start",
        textfont={"color": INK, "size": 13},
        hovertemplate=f"%{{y}}: {t('median')} %{{x:.4g}} s<extra></extra>",
        name=t("median"),
    )
    for name in names:
        walls = comparison.walls[name]
        picture.add_scatter(
            x=walls,
            y=[name] * len(walls),
            mode="markers",
            marker={"color": colour(name, comparison), "size": 8, "line": {"color": PANEL, "width": 1}},
            text=[t(f"run {i}") for i in range(1, len(walls) + 1)],
            hovertemplate="%{y}, %{text}: %{x:.4g} s<extra></extra>",
            name=name,
        )
    picture.update_xaxes(title=t("wall time, seconds"), rangemode="tozero")
    return titled(picture, verdicts.total_time(comparison), ("wall_s",), showlegend=False)
