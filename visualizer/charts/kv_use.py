"""KV blocks in use while the run goes on."""

from __future__ import annotations

import plotly.graph_objects as go

from core.measure.compare import Comparison
from visualizer.charts.contenders import colour, since_start, titled, traced
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "KV cache in use"


def figure(comparison: Comparison) -> go.Figure:
    """A line a contender; the pools differ in size where a policy has fewer lanes, so the axis is a share."""
    picture = go.Figure()
    for name, trace in traced(comparison):
        start = since_start(trace)
        times = [round(e.t_start - start, 6) for e in trace.events] + [round(trace.events[-1].t_end - start, 6)]
        used = [e.kv.used for e in trace.events] + [0]
        total = max(e.kv.total for e in trace.events)
        picture.add_scatter(
            x=times,
            y=[round(u / total, 5) for u in used],
            mode="lines",
            line={"shape": "hv", "width": 2, "color": colour(name, comparison)},
            name=name,
            customdata=[t(f"{u:,} of {total:,}") for u in used],
            hovertemplate=t("{counts} blocks after {time} s", counts="%{customdata}", time="%{x:.3g}")
            + "<extra>%{fullData.name}</extra>",
        )
    picture.update_xaxes(title=t("seconds since the run began"), rangemode="tozero")
    picture.update_yaxes(title=t("KV blocks in use"), tickformat=".0%", rangemode="tozero")
    return titled(picture, findings.kv_use(comparison), ("kv_use", "kv_blocks"))
