"""One step as a page of its own: its figure, and a placeholder for Plotly."""

from core.trace.trace import Trace
from visualizer.charts.step_figure import step_figure
from visualizer.page.bundle import PLAYER, inert_json, page_of

PLOTLY = "<!--PLOTLY-->"
"""The placeholder for plotly.js, 5 MB that are inserted when the page is sent."""


def step_page(trace: Trace, step: int) -> str:
    """A step's figure as a page; raises InflightError for an unknown step or too large masks."""
    simulated = ", simulated" if trace.header.is_simulated else ""
    parts = {
        "<!--TITLE-->": f"Inflight: step {step}{simulated}",
        "<!--DATA-->": inert_json(step_figure(trace, step).to_json()),
    }
    return page_of(PLAYER / "figure" / "step.html", parts)
