"""The page that shows runs. It reads traces, and runs engines only through core's public names.

Importing it gives runs and comparisons their pages and pictures, in files and in notebooks.
"""

from pathlib import Path
from typing import Any

from core import page

# what draws is read from disk when something is drawn


def draw(what: Any, in_cell: bool, place: dict[str, Any]) -> str:
    from visualizer.page.one_file import html_of

    return html_of(what, in_cell, place)


def plot(what: Any, view: str, step: int | None) -> Any:
    from visualizer.charts.plots import plotted

    return plotted(what, view, step)


def animate(trace: Any, path: Path, steps: slice, seconds: float) -> None:
    from visualizer.charts.animation import animated

    animated(trace, path, steps, seconds)


page.draw, page.plot, page.animate = draw, plot, animate
