"""Under load: what a first token waits and how much is finished, at each rate that was offered. Every point was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from visualizer.charts.contenders import hues, titled
from visualizer.charts.theme import HUES, PANEL
from visualizer.words import findings, verdicts
from visualizer.words.language import t

TITLE = "Under load"
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def figure(data: Mapping[str, Any]) -> go.Figure:
    """data: of `core.measure.load.sweep_load`. Left: TTFT p99. Right: requests finished. A hollow point was cut: at least so long."""
    names = list(dict.fromkeys(point["policy"] for point in data["points"]))
    colours = {name: HUES[hue] for name, hue in hues(names).items()}
    picture = make_subplots(rows=1, cols=2, horizontal_spacing=0.16)
    for name in names:
        points = [p for p in data["points"] if p["policy"] == name]
        ttft = [p["numbers"]["ttft_s"] for p in points]
        hollow = [bool(found.get("left_out")) for found in ttft]
        line: dict[str, Any] = {
            "mode": "lines+markers",
            "name": name,
            "legendgroup": name,
            "line": {"color": colours[name], "width": 2},
            "marker": {
                "size": 8,
                "color": [PANEL if h else colours[name] for h in hollow],
                "line": {"color": colours[name], "width": 2},
            },
        }
        rates = [p["rate"] for p in points]
        picture.add_scatter(
            x=rates,
            y=[found["p99"] for found in ttft],
            customdata=[
                f"{'≥ ' if h else ''}{findings.seconds(found['p99'])}, " + t(f"{found['count']} of {p['offered']} served")
                for found, h, p in zip(ttft, hollow, points, strict=True)
            ],
            hovertemplate=t("{served} at {rate} requests/s", served="%{customdata}", rate="%{x:.3g}")
            + "<extra>%{fullData.name}</extra>",
            row=1,
            col=1,
            **line,
        )
        picture.add_scatter(
            x=rates,
            y=[p["numbers"]["requests_per_s"] for p in points],
            customdata=[t(f"{p['numbers']['output_tok_s'] or 0:,.0f} output tok/s") for p in points],
            hovertemplate=t("{done} requests/s finished of {rate}, ", done="%{y:.3g}", rate="%{x:.3g}")
            + "%{customdata}<extra>%{fullData.name}</extra>",
            showlegend=False,
            row=1,
            col=2,
            **line,
        )
    picture.update_xaxes(title=t("requests offered a second"), rangemode="tozero")
    picture.update_yaxes(
        title=t("TTFT p99"), type="log", tickvals=_TICKS, ticktext=[findings.seconds(tick) for tick in _TICKS], row=1, col=1
    )
    picture.update_yaxes(title=t("requests finished a second"), rangemode="tozero", row=1, col=2)
    return titled(picture, verdicts.load(data), ("ttft_s", "requests_per_s"))
