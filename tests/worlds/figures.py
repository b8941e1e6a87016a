"""Our figures as Plotly's own Python sees them."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go

from visualizer.charts.figure import Figure


def drawn(figure: Figure) -> go.Figure:
    return known_to_plotly(figure.to_json())


def known_to_plotly(figure: dict[str, Any]) -> go.Figure:
    """A figure as it is sent, held against Plotly's schema: raises ValueError for what plotly.js
    would not know.
    """
    return go.Figure(json.loads(json.dumps(figure, allow_nan=False)))
