"""Output tokens a second while the run goes on, each contender on the same clock."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from core.measure.compare import Comparison
from visualizer.charts.contenders import colour, since_start, titled, traced
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "Output tokens a second"

_BINS = 40


def figure(comparison: Comparison) -> go.Figure:
    """Rates in windows of a fortieth of the slowest run; a last one under half as long joins the one before, or a few tokens would look like a burst."""
    runs = traced(comparison)
    longest = max(trace.events[-1].t_end - since_start(trace) for _, trace in runs)
    width = longest / _BINS or 1.0
    picture = go.Figure()
    for name, trace in runs:
        start, end = since_start(trace), trace.events[-1].t_end - since_start(trace)
        edges = np.append(np.arange(0, max(end - width / 2, width / 2), width), end)
        counts, _ = np.histogram([at - start for at in findings.token_times(trace)], bins=edges)
        rates = counts / np.diff(edges)
        picture.add_scatter(
            x=[round(float(x), 6) for x in edges],
            y=[round(float(y), 2) for y in (*rates, 0.0)],
            mode="lines",
            line={"shape": "hv", "width": 2, "color": colour(name, comparison)},
            name=name,
            hovertemplate=t("{rate} tok/s after {time} s", rate="%{y:.0f}", time="%{x:.3g}") + "<extra>%{fullData.name}</extra>",
        )
    picture.update_xaxes(title=t("seconds since the run began"), rangemode="tozero")
    picture.update_yaxes(title=t("output tok/s"), rangemode="tozero")
    return titled(picture, findings.throughput(comparison), ("output_tok_s",))
