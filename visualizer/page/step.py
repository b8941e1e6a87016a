"""One step as a page with nothing around it: its figure, and the place for what draws it."""

from __future__ import annotations

from core.trace.trace import Trace
from visualizer.charts.step_figure import step_figure
from visualizer.page.bundle import PLAYER, inert_json, page_of

PLOTLY = "<!--PLOTLY-->"
"""Where plotly.js belongs, 5 MB that are put in when the page is handed out."""


def step_page(trace: Trace, step: int) -> str:
    """The figure of a step as a page; raises InflightError for no step, and masks too large."""
    simulated = ", simulated" if trace.header.is_simulated else ""
    parts = {
        "<!--TITLE-->": f"Inflight: step {step}{simulated}",
        "<!--DATA-->": inert_json(step_figure(trace, step).to_json()),
    }
    return page_of(PLAYER / "figure" / "step.html", parts)
