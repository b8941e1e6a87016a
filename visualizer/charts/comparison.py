"""The figures of a comparison: each has its finding as title, and each contender has one colour."""

import math
import statistics
import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from core.account.request_times import request_times
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.difference import Difference, difference
from core.trace.trace import Trace
from visualizer.charts.figure import Figure
from visualizer.charts.theme import (
    HUES,
    INK,
    LEFT,
    MUTED,
    NAMED,
    PANEL,
    RIGHT,
    RULE,
    UNNAMED,
    contender_hues,
    escaped,
    outlined,
    tint,
    titled,
)
from visualizer.words import findings, verdicts
from visualizer.words.language import t

_LETTERS_OF_A_BAR = 22
_BINS = 40
_MILLISECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_ON_USEFUL = "#141414"  # stays dark in the dark theme, where the green is light
_LANE_STEPS = (
    ("useful", "useful", HUES[2], ""),
    ("padding", "padding: finished rows", "#bfb8aa", "/"),
    ("barrier", "empty behind the barrier", HUES[1], "x"),
    ("stalled", "stalled", HUES[6], "."),
    ("empty", "empty: nobody to serve", PANEL, ""),
)
_PRICES = (
    ("again", "tokens computed again", HUES[1]),
    ("frozen", "lane-steps of running requests that stalled", HUES[6]),
    ("waited", "request-steps of those who waited", HUES[0]),
)


class TracedRun(NamedTuple):
    """A contender with a trace. name: escaped for Plotly. start: where its time axis begins."""

    name: str
    trace: Trace
    start: float
    colour: str


def colour(name: str, comparison: Comparison) -> str:
    return HUES[contender_hues(comparison.names)[name]]


def traced(comparison: Comparison) -> list[TracedRun]:
    """The contenders that left a trace; raises InflightError if none did."""
    runs = {name: trace for name, trace in comparison.traces.items() if trace.events}
    if not runs:
        raise InflightError(
            "None of these runs left a trace, so there is nothing to draw over time."
        )
    return [
        TracedRun(escaped(name), trace, trace.events[0].t_start, colour(name, comparison))
        for name, trace in runs.items()
    ]


# -- times -----------------------------------------------------------------------------------------


def total_time(comparison: Comparison) -> Figure:
    """The median of each contender's runs as a bar, every run as a dot; fastest on top."""
    names = sorted(
        comparison.names, key=lambda n: statistics.median(comparison.walls[n]), reverse=True
    )
    medians = [statistics.median(comparison.walls[n]) for n in names]
    picture = Figure()
    picture.add_bar(
        x=medians,
        y=list(map(escaped, names)),
        orientation="h",
        width=0.56,
        marker=outlined([colour(n, comparison) for n in names]),
        hovertemplate=f"%{{y}}: {t('median')} %{{x:.4g}} s{UNNAMED}",
        name=t("median"),
    )
    for name in names:
        walls = comparison.walls[name]
        picture.add_scatter(
            x=walls,
            y=[escaped(name)] * len(walls),
            mode="markers",
            marker={
                "color": colour(name, comparison),
                "size": 8,
                "line": {"color": PANEL, "width": 1},
            },
            text=[t(f"run {i}") for i in range(1, len(walls) + 1)],
            hovertemplate="%{y}, %{text}: %{x:.4g} s" + UNNAMED,
            name=escaped(name),
        )
    longest = {name: max(comparison.walls[name]) for name in names}
    # the medians are written to the right of all dots
    said = [
        {
            "x": longest[name],
            "y": escaped(name),
            "text": findings.seconds(median),
            "xanchor": "left",
            "xshift": 6,
            "showarrow": False,
            "font": {"color": INK, "size": 13},
        }
        for name, median in zip(names, medians, strict=True)
    ]
    most = max(longest.values())
    picture.update_xaxes(title=t("wall time, seconds"), range=[0, most * 1.28])
    return titled(
        picture, verdicts.total_time(comparison), ("wall_s",), showlegend=False, annotations=said
    )


class Bar(NamedTuple):
    """A bar from `start` to `end`, in seconds. counted: the counts that explain it."""

    label: str
    start: float
    end: float
    counted: str = ""


def difference_of_two(comparison: Comparison) -> Figure:
    """Why one of the two racing contenders took less time, as a sum: a bar for each part, from the
    baseline's time to the other's. Raises InflightError if one left no trace, or one that is too
    short.
    """
    base, mine = findings.pair(comparison)
    traces = comparison.traces
    if base == mine or not {base, mine} <= traces.keys():
        raise InflightError("Two recorded runs are needed to explain why one took less time.")
    found = difference(traces[base], traces[mine])
    made = bars(found, base, mine)
    ends = (colour(base, comparison), colour(mine, comparison))
    colours = [ends[0], *(HUES[2] if b.end < b.start else HUES[1] for b in made[1:-1]), ends[1]]
    picture = Figure()
    picture.add_bar(
        # drawn to the right, which leaves room for the text beside it
        x=[round(abs(b.end - b.start), 6) for b in made],
        base=[round(min(b.start, b.end), 6) for b in made],
        y=["<br>".join(map(escaped, textwrap.wrap(b.label, _LETTERS_OF_A_BAR))) for b in made],
        orientation="h",
        width=0.62,
        marker=outlined(colours),
        text=[
            _signed(b) if 0 < i < len(made) - 1 else findings.seconds(b.end)
            for i, b in enumerate(made)
        ],
        textposition="auto",
        insidetextanchor="middle",
        textfont={"color": INK, "size": 12},
        outsidetextfont={"color": MUTED},
        customdata=[b.counted for b in made],
        hovertemplate="%{y}: %{text}%{customdata}" + UNNAMED,
        cliponaxis=False,
    )
    longest = max(max(b.start, b.end) for b in made)
    # room for the text beside a bar
    picture.update_xaxes(title=t("seconds of the runs that race"), range=[0, 1.3 * longest])
    picture.update_yaxes(autorange="reversed")
    said, height = verdicts.difference(found, base, mine), 120 + 34 * len(made)
    return titled(picture, said, ("lane_steps", "positions"), showlegend=False, height=height)


def bars(found: Difference, base: str, mine: str) -> list[Bar]:
    """The bars of the two runs, and between them those of the named parts and of the rest."""
    large = [part for side in verdicts.named_parts(found) for part in side]
    rest = found.seconds - sum(p.seconds for p in large)
    made, at = [Bar(base, 0.0, found.before_s)], found.before_s
    for part in sorted(large, key=lambda p: p.seconds):
        counted = verdicts.counts(part)
        made.append(
            Bar(t(verdicts.PARTS[part.name]), at, at + part.seconds, counted and f", {counted}")
        )
        at += part.seconds
    made.append(Bar(t(verdicts.PARTS["rest"]), at, at + rest))
    return [*made, Bar(mine, 0.0, found.after_s)]


def _signed(bar: Bar) -> str:
    change = bar.end - bar.start
    return f"{'+' if change > 0 else '−'}{findings.seconds(abs(change))}"


def latency(comparison: Comparison) -> Figure:
    """How long users wait. Left: TTFT, one dot per request. Right: ITL of all requests together."""
    picture = Figure.side_by_side(0.06, shared=True)
    runs = traced(comparison)
    waits = [life.ttft_s or 0.0 for run in runs for life in request_times(run.trace).values()]
    scale, unit = (1, "s") if max(waits, default=0.0) >= 2 else (1000, "ms")
    for run in reversed(runs):
        lives = request_times(run.trace).values()
        first = {life.request: life.ttft_s for life in lives if life.ttft_s is not None}
        gaps = [gap for life in lives for gap in life.itl_s]
        box: dict[str, Any] = {
            "orientation": "h",
            "name": run.name,
            "line": {"color": run.colour, "width": 1.5},
            "fillcolor": tint(run.colour, 0.25),
            "marker": {"color": run.colour, "size": 5},
        }
        picture.add_box(
            x=[round(v * scale, 5) for v in first.values()],
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            text=[escaped(r) for r in first],
            hovertemplate="%{text}: %{x:.4g} " + unit + NAMED,
            hoveron="points",
            **LEFT,
            **box,
        )
        picture.add_box(x=[round(v * 1000, 4) for v in gaps], boxpoints="outliers", **RIGHT, **box)
    picture.update_xaxes(title="TTFT, s" if scale == 1 else "TTFT, ms", rangemode="tozero", **LEFT)
    ticks = [t(f"{tick:g}") for tick in _MILLISECONDS]
    picture.update_xaxes(
        title="ITL, ms", type="log", tickvals=_MILLISECONDS, ticktext=ticks, **RIGHT
    )
    return titled(picture, findings.latency(comparison), ("ttft_s", "itl_s"), showlegend=False)


# -- over time and over lanes ----------------------------------------------------------------------


def throughput(comparison: Comparison) -> Figure:
    """Output tokens per second, in windows of a fortieth of the slowest run. A last window of less
    than half that length joins the one before, since a few tokens would look like a burst.
    """
    runs = traced(comparison)
    width = max(run.trace.events[-1].t_end - run.start for run in runs) / _BINS or 1.0
    hover = t("{rate} tok/s after {time} s", rate="%{y:.0f}", time="%{x:.3g}") + NAMED
    picture = Figure()
    for run in runs:
        end = run.trace.events[-1].t_end - run.start
        whole = range(math.ceil(max(end - width / 2, width / 2) / width))
        edges = [*(i * width for i in whole), end]
        times = sorted(at - run.start for at in findings.token_times(run.trace))
        before = [bisect_left(times, edge) for edge in edges[:-1]] + [bisect_right(times, end)]
        windows = zip(pairwise(before), pairwise(edges), strict=True)
        rates = [
            (b - a) / (late - early) if late > early else 0.0 for (a, b), (early, late) in windows
        ]
        picture.add_scatter(**_over_time(run, edges, (*rates, 0.0), 2), hovertemplate=hover)
    picture.update_xaxes(title=t("seconds since the run began"), rangemode="tozero")
    picture.update_yaxes(title=t("output tok/s"), rangemode="tozero")
    return titled(picture, findings.throughput(comparison), ("output_tok_s",))


def kv_use(comparison: Comparison) -> Figure:
    """KV blocks in use over time, as a share, since pools differ in size."""
    hover = t("{counts} blocks after {time} s", counts="%{customdata}", time="%{x:.3g}") + NAMED
    picture = Figure()
    for run in traced(comparison):
        events = run.trace.events
        used = [e.kv.used for e in events] + [0]
        total = max(e.kv.total for e in events)
        times = [e.t_start - run.start for e in events] + [events[-1].t_end - run.start]
        picture.add_scatter(
            **_over_time(run, times, [u / total for u in used], 5),
            customdata=[t(f"{u:,} of {total:,}") for u in used],
            hovertemplate=hover,
        )
    picture.update_xaxes(title=t("seconds since the run began"), rangemode="tozero")
    picture.update_yaxes(title=t("KV blocks in use"), tickformat=".0%", rangemode="tozero")
    return titled(picture, findings.kv_use(comparison), ("kv_use", "kv_blocks"))


def _over_time(
    run: TracedRun, times: Iterable[float], values: Iterable[float], digits: int
) -> dict[str, Any]:
    """A contender's line, as a step function."""
    return {
        "x": [round(float(x), 6) for x in times],
        "y": [round(float(y), digits) for y in values],
        "mode": "lines",
        "line": {"shape": "hv", "width": 2, "color": run.colour},
        "name": run.name,
    }


def lane_steps(comparison: Comparison) -> Figure:
    """How all lane-steps were spent, as shares; counts are in hover texts and wide bars."""
    counted = {
        n: c
        for n in reversed(comparison.names)
        if (c := comparison.medians[n].get("lane_steps")) and c["total"]
    }
    picture = Figure()
    for kind, label, fill, pattern in _LANE_STEPS:
        counts = [c[kind] for c in counted.values()]
        if not any(counts):
            continue
        totals = [c["total"] for c in counted.values()]
        shares = [count / total for count, total in zip(counts, totals, strict=True)]
        written = kind in ("useful", "empty")
        picture.add_bar(
            x=shares,
            y=list(map(escaped, counted)),
            orientation="h",
            width=0.56,
            name=t(label),
            marker={
                "color": PANEL if pattern else fill,
                "line": {"color": RULE if kind == "empty" else fill, "width": 1},
                "pattern": {
                    "shape": pattern,
                    "fgcolor": fill,
                    "fgopacity": 1,
                    "size": 6,
                    "solidity": 0.35,
                },
            },
            text=[
                t(f"{count:,.0f}") if written and share > 0.06 else ""
                for count, share in zip(counts, shares, strict=True)
            ],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": _ON_USEFUL if kind == "useful" else MUTED, "size": 12},
            customdata=[
                t(f"{count:,.0f} of {total:,.0f}")
                for count, total in zip(counts, totals, strict=True)
            ],
            hovertemplate=t("{counts} lane-steps", counts="%{customdata}") + " (%{x:.1%})" + NAMED,
        )
    picture.update_xaxes(title=t("share of all lane-steps"), tickformat=".0%", range=[0, 1])
    return titled(
        picture,
        findings.lane_steps(comparison),
        ("lane_steps", "lane_occupancy"),
        barmode="stack",
        legend={"traceorder": "normal"},
    )


def pressure(comparison: Comparison) -> Figure:
    """What each contender paid when blocks or budget ran short; raises InflightError for none."""
    paid = {name: findings.price(trace) for name, trace in comparison.traces.items()}
    if not any(p.preempted or p.frozen for p in paid.values()):
        raise InflightError("Nothing was short.")
    picture = Figure()
    names = list(reversed(paid))
    for kind, label, hue in _PRICES:
        counts = [getattr(paid[n], kind) for n in names]
        picture.add_bar(
            x=counts,
            y=list(map(escaped, names)),
            orientation="h",
            name=t(label),
            marker={"color": hue},
            text=[t(f"{c:,}") if c else "" for c in counts],
            textposition="outside",
            textfont={"size": 11},
            constraintext="none",
            cliponaxis=False,
            hovertemplate="%{x:,}" + NAMED,
        )
    picture.update_xaxes(title=t("count"))
    return titled(
        picture,
        findings.pressure(comparison),
        ("preemptions", "tokens_recomputed"),
        legend={"traceorder": "normal"},
        height=440,
    )


class Chart(NamedTuple):
    """A figure of a comparison and its title. `draw` raises InflightError without data."""

    title: str
    draw: Callable[[Comparison], Figure]


FIGURES = {
    "total_time": Chart("Total time", total_time),
    "difference": Chart("Why, as a sum", difference_of_two),
    "throughput": Chart("Output tokens a second", throughput),
    "latency": Chart("How long users wait", latency),
    "lane_steps": Chart("Where every lane-step went", lane_steps),
    "kv_use": Chart("KV cache in use", kv_use),
    "pressure": Chart("Who is preempted, who stalls, who waits", pressure),
}
"""The figures by name, in the order of the page."""
