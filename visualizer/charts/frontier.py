"""What settings cost and bring: throughput against TTFT and against ITL, a point for each setting
of a plan, and a line through those that no other setting beats in both.
"""

from __future__ import annotations

from typing import Any

from core.measure.plan import Plan, Point
from visualizer.charts.figure import Figure
from visualizer.charts.theme import HUES, INK, LEFT, MUTED, RIGHT, UNNAMED, titled
from visualizer.words import findings
from visualizer.words.language import t

_CELLS = (("ttft_s", "TTFT", LEFT), ("itl_s", "ITL", RIGHT))
_FAR = 4.0  # times: latencies that are further apart are drawn on a logarithmic axis
_TICKS = [round(step * 10.0**decade, 6) for decade in range(-4, 4) for step in (1, 2, 5)]


def frontier(plan: Plan) -> Figure:
    """The measured run is drawn beside its own setting simulated; all other points are simulated,
    and have the number of their row.
    """
    picture = Figure.side_by_side(0.12)
    rows = [*enumerate((plan.again, *plan.points))]
    points = [point for _, point in rows if point.numbers is not None]
    for name, title, cell in _CELLS:
        at = [_place(point, name) for point in points]
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
            (t("other settings, simulated"), "circle", HUES[0], points[1:]),
            (t("its setting, simulated"), "diamond", HUES[1], [plan.again]),
            (t("measured"), "star", INK, [plan.measured]),
        ):
            marks = [_place(point, name) for point in some]
            picture.add_scatter(
                x=[x for x, _ in marks],
                y=[y for _, y in marks],
                mode="markers",
                marker={"symbol": symbol, "size": 11, "color": colour},
                name=label,
                legendgroup=label,
                showlegend=cell is LEFT,
                customdata=[next((n for n, row in rows if row is point), None) for point in some],
                text=[_hover(plan, point, name) for point in some],
                hovertemplate="%{text}" + UNNAMED,
                **cell,
            )
        picture.update_xaxes(title=t("tokens generated per second"), **cell)
        known = [y for _, y in (*at, _place(plan.measured, name)) if y]
        far = bool(known) and max(known) > _FAR * min(known)
        scale = {"type": "log", "tickvals": _TICKS} if far else {"rangemode": "tozero"}
        picture.update_yaxes(
            title=t(f"{title} p50"), tickformat="~s", ticksuffix="s", **scale, **cell
        )
    finding = f"{t('Simulated, but for the star.')} {plan.told(t)}"
    return titled(picture, finding, height=520)


def _place(point: Point, name: str) -> tuple[float, float | None]:
    numbers: dict[str, Any] = point.numbers or {}
    return round(numbers["output_tok_s"], 3), numbers[name]["p50"]


def _beats(one: tuple[float, float | None], other: tuple[float, float | None]) -> bool:
    """Whether a place is at least as good in both."""
    return one[1] is not None and (other[1] is None or (one[0] >= other[0] and one[1] <= other[1]))


def _hover(plan: Plan, point: Point, name: str) -> str:
    numbers: dict[str, Any] = point.numbers or {}
    low, high = (findings.seconds(numbers[name][share]) for share in ("p50", "p99"))
    lines = [
        t("measured") if point is plan.measured else plan.name_of(point.config, t),
        t("{low} at p50, {high} at p99", low=low, high=high),
        t(f"{numbers['output_tok_s']:.1f} tokens per second"),
        t(f"{numbers['preemptions']} preemptions, at most {numbers['most_waiting']} waiting"),
    ]
    return "<br>".join(lines)
