"""The reason why batching pays: the measured time of a step against the tokens in it, and against the KV it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from core.measure.cost_curve import CostCurve, Point
from visualizer.charts.contenders import titled
from visualizer.charts.theme import HUES, MUTED
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "Why batching pays: the cost of a step on this device"


def figure(curve: CostCurve) -> go.Figure:
    """Left: tokens, beside what one token after the other would cost. Right: KV."""
    picture = make_subplots(rows=1, cols=2, horizontal_spacing=0.1, shared_yaxes=False)
    one = curve.by_tokens[0]
    tokens = [p.tokens for p in curve.by_tokens]
    picture.add_scatter(
        x=tokens,
        y=[one.median * 1000 * n / one.tokens for n in tokens],
        mode="lines",
        line={"dash": "dot", "color": MUTED, "width": 1.5},
        name=t("one token after the other"),
        hovertemplate=t("{number} steps of one token: {time} ms", number="%{x}", time="%{y:.3g}") + "<extra></extra>",
        row=1,
        col=1,
    )
    picture.add_scatter(**_line(tokens, curve.by_tokens, HUES[0], t("one step, measured"), "tokens"), row=1, col=1)
    kv = [p.kv_read for p in curve.by_kv]
    picture.add_scatter(
        **_line(
            kv, curve.by_kv, HUES[2], t(f"{curve.by_kv[0].tokens if kv else 0} requests, longer caches"), "cached positions read"
        ),
        row=1,
        col=2,
    )
    highest = max((max(p.step_s) for p in (*curve.by_tokens, *curve.by_kv)), default=0.001) * 1000
    picture.update_yaxes(title=t("milliseconds a step"), range=[0, highest * 1.1], row=1, col=1)
    picture.update_yaxes(range=[0, highest * 1.1], row=1, col=2)
    picture.update_xaxes(
        title=t("tokens in the batch"), type="log", tickvals=tokens, ticktext=[str(n) for n in tokens], row=1, col=1
    )
    picture.update_xaxes(
        title=t("KV positions read"),
        type="log",
        tickvals=kv,
        ticktext=[f"{k // 1024}k" if k >= 1024 and k % 1024 == 0 else str(k) for k in kv],
        tickangle=0,
        row=1,
        col=2,
    )
    return titled(picture, findings.cost(curve))


def _line(x: Sequence[int], points: Sequence[Point], colour: str, name: str, unit: str) -> dict[str, Any]:
    """A curve of medians with the spread of its repeats."""
    return {
        "x": list(x),
        "y": [p.median * 1000 for p in points],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(max(p.step_s) - p.median) * 1000 for p in points],
            "arrayminus": [(p.median - min(p.step_s)) * 1000 for p in points],
            "thickness": 1,
            "width": 3,
        },
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2},
        "marker": {"size": 7},
        "name": name,
        "customdata": [len(p.step_s) for p in points],
        "hovertemplate": t(
            "{number} {unit}: {time} ms, median of {runs}",
            number="%{x:,}",
            unit=t(unit),
            time="%{y:.3g}",
            runs="%{customdata}",
        )
        + "<extra></extra>",
    }
