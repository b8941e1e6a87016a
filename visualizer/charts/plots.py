"""Figures of a trace, a comparison and a plan in Plotly's package, for scripts and notebooks."""

from collections.abc import Callable, Sequence
from typing import Any

from core.errors import InflightError, shown
from core.measure.compare import Comparison
from core.measure.plan import Plan, Point
from core.trace.run_state import LaneRow
from core.trace.trace import Trace
from visualizer.charts.comparison import FIGURES, traced
from visualizer.charts.figure import Figure
from visualizer.charts.step_figure import NOTHING, coloured, step_figure
from visualizer.charts.theme import HUES, INK, LEFT, MUTED, RIGHT, UNNAMED, deal, escaped, titled
from visualizer.words import findings, verdicts
from visualizer.words.language import t

_CELLS = (("ttft_s", "TTFT", LEFT), ("itl_s", "ITL", RIGHT))
_LANE_PIXELS = 26
_FAR = 4.0  # latencies whose ratio exceeds this are drawn on a logarithmic axis
_TICKS = [round(step * 10.0**decade, 6) for decade in range(-4, 4) for step in (1, 2, 5)]


def frontier(plan: Plan) -> Figure:
    """The measured run beside its simulation, and the other settings with their row numbers."""
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
        # explicit ticks take no suffix
        ticks = [f"{s:g}s" if s >= 1 else f"{s * 1000:g}ms" for s in _TICKS]
        scale = (
            {"type": "log", "tickvals": _TICKS, "ticktext": ticks}
            if far
            else {"rangemode": "tozero", "tickformat": "~s", "ticksuffix": "s"}
        )
        picture.update_yaxes(title=t(f"{title} p50"), **scale, **cell)
    finding = f"{t('Simulated, but for the star.')} {plan.told(t)}"
    return titled(picture, finding, height=520)


def _place(point: Point, name: str) -> tuple[float, float | None]:
    numbers: dict[str, Any] = point.numbers or {}
    return round(numbers["output_tok_s"], 3), numbers[name]["p50"]


def _beats(one: tuple[float, float | None], other: tuple[float, float | None]) -> bool:
    """Whether a point is at least as good as another in both coordinates."""
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


def plotted(what: Trace | Comparison | Plan, view: str, step: int | None) -> Any:
    """The figure of a view; raises InflightError for an unknown view, or one without data."""
    import plotly.graph_objects as go  # takes half a second

    if isinstance(what, Plan):
        made = _one_of(_PLANNED, view)(what)
    elif isinstance(what, Comparison):
        made = _one_of(_COMPARED, view)(what)
        if what.is_simulated:
            made.update_layout(title=f"Simulated: {made.layout['title']['text']}")
    elif not what.events:
        raise InflightError("An empty trace: nothing has run yet.")
    else:
        draw = _one_of(_OF_A_RUN, view)
        if view == "mask" and step is None:
            raise InflightError("Which step? A mask is of one: give step=.")
        if view != "mask" and step is not None:
            raise InflightError(f"step= is for the mask; {shown(view)} shows all of them.")
        made = draw(what, step)
    return go.Figure(made.to_json())


def _one_of(views: dict[str, Callable[..., Figure]], view: str) -> Callable[..., Figure]:
    if not isinstance(view, str) or view not in views:
        raise InflightError(f"There is no view {shown(view)} of it; there are {', '.join(views)}.")
    return views[view]


def lanes(trace: Trace, _: None = None) -> Figure:
    """Which request held which lane: pale during prefill, full colour during decode."""
    picture = Figure()
    cells = _lane_cells(trace, [(event.step, event.step + 1) for event in trace.events])
    picture.add_heatmap(**cells)
    picture.update_xaxes(title="step")
    picture.update_yaxes(title="lane", dtick=1, **_LANE_AXIS)
    height = 180 + _LANE_PIXELS * len(cells["z"])
    return titled(picture, name_of(trace), height=height)


def kv(trace: Trace, _: None = None) -> Figure:
    """KV blocks in use in each step."""
    picture = Figure()
    last = trace.events[-1]
    picture.add_scatter(
        x=[*(event.step for event in trace.events), last.step + 1],
        y=[*(event.kv.used for event in trace.events), last.kv.used],
        mode="lines",
        line={"shape": "hv", "width": 2, "color": HUES[0]},
        fill="tozeroy",
        hovertemplate=f"step %{{x}}: %{{y:,}} of {last.kv.total:,} blocks{UNNAMED}",
    )
    picture.update_xaxes(title="step")
    picture.update_yaxes(title="KV blocks in use", range=[0, last.kv.total])
    return titled(picture, name_of(trace), showlegend=False)


def race(comparison: Comparison) -> Figure:
    """The lanes of every contender, over the same seconds."""
    runs = traced(comparison)
    spans = [
        [(event.t_start - run.start, event.t_end - run.start) for event in run.trace.events]
        for run in runs
    ]
    cells = [_lane_cells(run.trace, times) for run, times in zip(runs, spans, strict=True)]
    heights = [len(one["z"]) for one in cells]
    picture = Figure.stacked(heights, gap=0.2 / len(runs))
    longest = max(times[-1][1] for times in spans)
    for cell, (run, one) in enumerate(zip(runs, cells, strict=True), 1):
        picture.add_heatmap(cell, **one)
        picture.update_xaxes(cell, range=[0, longest], showticklabels=cell == len(runs))
        middle = (len(one["z"]) - 1) / 2
        picture.update_yaxes(cell, **_LANE_AXIS, tickvals=[middle], ticktext=[run.name])
    picture.update_xaxes(len(runs), title="seconds since the run began")
    height = 180 + _LANE_PIXELS * sum(heights)
    return titled(picture, verdicts.total_time(comparison), height=height)


_LANE_AXIS: dict[str, Any] = {"autorange": "reversed", "showgrid": False}
_OF_A_RUN: dict[str, Callable[..., Figure]] = {"lanes": lanes, "kv": kv, "mask": step_figure}
_PLANNED = {"frontier": frontier}
_COMPARED: dict[str, Callable[..., Figure]] = {
    "race": race,
    **{name: chart.draw for name, chart in FIGURES.items()},
}


def name_of(trace: Trace) -> str:
    """The name of a run, which says if it is simulated or incomplete."""
    return repr(trace).strip("<>").removeprefix("Trace of ")


def _lane_cells(trace: Trace, spans: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """A heatmap of the lanes. spans: the start and the end of each event on the x axis."""
    hues, edges = deal(trace), [spans[0][0]]
    columns: list[dict[int, LaneRow]] = []
    unseen = (spans[-1][1] - spans[0][0]) / 2000  # less than half a pixel
    for frame, (start, end) in zip(trace.frames(), spans, strict=True):
        if start - edges[-1] > unseen:  # nothing ran
            columns.append({})
            edges.append(start)
        columns.append({row.lane: row for row in frame.lanes})
        edges.append(end)
    count = 1 + max((lane for column in columns for lane in column), default=0)
    return {
        "x": edges,
        "y": list(range(count)),
        "z": [[cell_of(column.get(lane), hues) for column in columns] for lane in range(count)],
        "text": [[_said(column.get(lane)) for column in columns] for lane in range(count)],
        "hovertemplate": "%{text}" + UNNAMED,
        "ygap": 2,
        **coloured(),
    }


def cell_of(row: LaneRow | None, hues: dict[str, int]) -> int:
    """What a lane did in a step, as an index into `CELLS`: grey for wasted work."""
    if row is None:
        return 0
    decodes, reads = "decode" in row.doing, "prefill" in row.doing
    return 1 + 2 * (hues.get(row.request, 0) if decodes or reads else NOTHING) + decodes


def _said(row: LaneRow | None) -> str:
    if row is None:
        return "empty"
    doing = " and ".join(row.doing) or "nothing"
    return f"{escaped(row.request)}: {doing}, {row.kv_len:,} in its cache"
