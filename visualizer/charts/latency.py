"""What a person waits: time to the first token, and every gap between two tokens, as distributions."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from core.measure.compare import Comparison
from core.measure.metrics import request_times
from visualizer.charts.contenders import colour, titled, traced
from visualizer.charts.theme import tint
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "What a person waits"

_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def figure(comparison: Comparison) -> go.Figure:
    """Left: TTFT, a dot a request. Right: ITL of all requests pooled."""
    picture = make_subplots(rows=1, cols=2, horizontal_spacing=0.06, shared_yaxes=True)
    waits = [life.ttft_s or 0.0 for _, trace in traced(comparison) for life in request_times(trace).values()]
    scale, unit = (1, "s") if max(waits, default=0.0) >= 2 else (1000, "ms")
    for name, trace in reversed(traced(comparison)):
        lives = request_times(trace).values()
        first = {life.request: life.ttft_s for life in lives if life.ttft_s is not None}
        gaps = [gap for life in lives for gap in life.itl_s]
        hue = colour(name, comparison)
        box = {
            "orientation": "h",
            "name": name,
            "line": {"color": hue, "width": 1.5},
            "fillcolor": tint(hue, 0.25),
            "marker": {"color": hue, "size": 5},
        }
        picture.add_box(
            x=[round(v * scale, 5) for v in first.values()],
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            text=[str(r) for r in first],
            hovertemplate="%{text}: %{x:.4g} " + unit + "<extra>%{fullData.name}</extra>",
            hoveron="points",
            row=1,
            col=1,
            **box,
        )
        picture.add_box(x=[round(v * 1000, 4) for v in gaps], boxpoints="outliers", row=1, col=2, **box)
    picture.update_xaxes(title=t(f"TTFT, {'seconds' if scale == 1 else 'milliseconds'}"), rangemode="tozero", row=1, col=1)
    picture.update_xaxes(
        title=t("ITL, milliseconds"), type="log", tickvals=_TICKS, ticktext=[t(f"{tick:g}") for tick in _TICKS], row=1, col=2
    )
    return titled(picture, findings.latency(comparison), ("ttft_s", "itl_s"), showlegend=False)
