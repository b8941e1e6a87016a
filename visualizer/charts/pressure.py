"""What each contender paid where KV blocks or a step's tokens were short: who stood still, who waited, what was computed again."""

from __future__ import annotations

import plotly.graph_objects as go

from core.errors import InflightError
from core.measure.compare import Comparison
from visualizer.charts.contenders import titled
from visualizer.charts.theme import HUES
from visualizer.words import findings
from visualizer.words.language import t

TITLE = "Who is preempted, who stands still, who waits"

_KINDS = (
    ("again", "tokens computed again", HUES[1]),
    ("frozen", "lane-steps of running requests that stood still", HUES[6]),
    ("waited", "request-steps of those who waited", HUES[0]),
)


def figure(comparison: Comparison) -> go.Figure:
    """Three bars a contender. Raises InflightError where nobody was preempted or stood still: nothing was short."""
    paid = {n: findings.price(run.trace) for n, run in comparison.runs.items() if run.trace is not None}
    if not any(p.preempted or p.frozen for p in paid.values()):
        raise InflightError("Nothing was short.")
    picture = go.Figure()
    names = list(reversed(paid))
    for kind, label, hue in _KINDS:
        counts = [getattr(paid[n], kind) for n in names]
        picture.add_bar(
            x=counts,
            y=names,
            orientation="h",
            name=t(label),
            marker={"color": hue},
            text=[t(f"{c:,}") if c else "" for c in counts],
            textposition="outside",
            textfont={"size": 11},
            constraintext="none",
            cliponaxis=False,
            hovertemplate="%{x:,}<extra>%{fullData.name}</extra>",
        )
    picture.update_xaxes(title=t("count"))
    return titled(
        picture, findings.pressure(comparison), ("preemptions", "tokens_recomputed"), legend_traceorder="normal", height=440
    )
