"""What settings cost and bring: throughput against TTFT and against ITL, a point for each setting
of a plan, and a line through those that no other setting beats in both.
"""

from __future__ import annotations

from typing import Any

from core.measure.plan import Plan, Point
from visualizer.charts.figure import Figure
from visualizer.charts.theme import HUES, INK, LEFT, MUTED, RIGHT, UNNAMED, titled

_CELLS = (("ttft_s", "TTFT", 1.0, "s", LEFT), ("itl_s", "ITL", 1000.0, "ms", RIGHT))


def frontier(plan: Plan) -> Figure:
    """The measured run is drawn beside its own setting; all other points are simulated."""
    picture = Figure.side_by_side(0.12)
    points = [point for point in (plan.again, *plan.points) if point.numbers is not None]
    for name, title, scale, unit, cell in _CELLS:
        at = [_place(point, name, scale) for point in points]
        best = sorted(
            {one for one in at if not any(_beats(other, one) for other in at if other != one)}
        )
        picture.add_scatter(
            x=[x for x, _ in best],
            y=[y for _, y in best],
            mode="lines",
            line={"shape": "hv", "dash": "dot", "width": 1.5, "color": MUTED},
            hoverinfo="skip",
            showlegend=False,
            **cell,
        )
        for label, symbol, colour, some in (
            ("measured", "star", INK, [plan.measured]),
            ("its setting, simulated", "diamond", HUES[1], [plan.again]),
            ("other settings, simulated", "circle", HUES[0], points[1:]),
        ):
            marks = [_place(point, name, scale) for point in some]
            picture.add_scatter(
                x=[x for x, _ in marks],
                y=[y for _, y in marks],
                mode="markers",
                marker={"symbol": symbol, "size": 11, "color": colour},
                name=label,
                legendgroup=label,
                showlegend=cell is LEFT,
                text=[_hover(plan, point, name, scale, unit) for point in some],
                hovertemplate="%{text}" + UNNAMED,
                **cell,
            )
        picture.update_xaxes(title="tokens generated per second", **cell)
        picture.update_yaxes(title=f"{title} at p50, {unit}", type="log", **cell)
    return titled(picture, f"Simulated, but for the star. {plan.verdict}", height=520)


def _place(point: Point, name: str, scale: float) -> tuple[float, float | None]:
    numbers: dict[str, Any] = point.numbers or {}
    latency = numbers[name]["p50"]
    return round(numbers["output_tok_s"], 3), None if latency is None else latency * scale


def _beats(one: tuple[float, float | None], other: tuple[float, float | None]) -> bool:
    """Whether a place is at least as good in both."""
    return one[1] is not None and (other[1] is None or (one[0] >= other[0] and one[1] <= other[1]))


def _hover(plan: Plan, point: Point, name: str, scale: float, unit: str) -> str:
    numbers: dict[str, Any] = point.numbers or {}
    low, high = (
        "–" if numbers[name][share] is None else f"{numbers[name][share] * scale:.3g} {unit}"
        for share in ("p50", "p99")
    )
    lines = [
        "measured" if point is plan.measured else plan.name_of(point.config),
        f"{low} at p50, {high} at p99",
        f"{numbers['output_tok_s']:.1f} tokens per second",
        f"{numbers['preemptions']} preemptions, at most {numbers['most_waiting']} waiting",
    ]
    return "<br>".join(lines)
