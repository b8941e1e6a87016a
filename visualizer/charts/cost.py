"""Two more figures of a comparison: the cost of a step by size, and waiting times by rate."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.measure.cost_curve import CostCurve, StepCost
from visualizer.charts.figure import Figure
from visualizer.charts.theme import (
    HUES,
    LEFT,
    MUTED,
    NAMED,
    PANEL,
    RIGHT,
    UNNAMED,
    contender_hues,
    escaped,
    titled,
)
from visualizer.words import findings, verdicts
from visualizer.words.language import t

COST_TITLE = "Why batching pays: the cost of a step on this device"
LOAD_TITLE = "Under load"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def cost(curve: CostCurve) -> Figure:
    """Why batching pays: the measured time of a step. Left: by its number of tokens, beside the
    cost of one token at a time. Right: by the KV it reads.
    """
    picture = Figure.side_by_side(0.1)
    one = curve.by_tokens[0]
    tokens = [p.tokens for p in curve.by_tokens]
    steps = t("{number} steps of one token: {time} ms", number="%{x}", time="%{y:.3g}")
    picture.add_scatter(
        x=tokens,
        y=[one.median * 1000 * n / one.tokens for n in tokens],
        mode="lines",
        line={"dash": "dot", "color": MUTED, "width": 1.5},
        name=t("one token after the other"),
        hovertemplate=steps + UNNAMED,
        **LEFT,
    )
    picture.add_scatter(
        **_line(tokens, curve.by_tokens, HUES[0], t("one step, measured"), "tokens"), **LEFT
    )
    kv = [p.kv_read for p in curve.by_kv]
    longer = t(f"{curve.by_kv[0].tokens if kv else 0} requests, longer caches")
    picture.add_scatter(**_line(kv, curve.by_kv, HUES[2], longer, "cached positions read"), **RIGHT)
    # the axis follows the medians: one slow repeat would flatten both curves
    highest = max((p.median for p in (*curve.by_tokens, *curve.by_kv)), default=0.001) * 1000
    picture.update_yaxes(range=[0, highest * 1.25])
    picture.update_yaxes(title=t("milliseconds a step"), **LEFT)
    kilo = [f"{k // 1024}k" if k >= 1024 and k % 1024 == 0 else str(k) for k in kv]
    picture.update_xaxes(type="log")
    picture.update_xaxes(
        title=t("tokens in the batch"), tickvals=tokens, ticktext=list(map(str, tokens)), **LEFT
    )
    picture.update_xaxes(
        title=t("KV positions read"), tickvals=kv, ticktext=kilo, tickangle=0, **RIGHT
    )
    return titled(picture, findings.cost(curve))


def _line(
    x: Sequence[int], points: Sequence[StepCost], colour: str, name: str, unit: str
) -> dict[str, Any]:
    """A curve of medians with the spread of its repeats."""
    counted = {"number": "%{x:,}", "unit": t(unit), "time": "%{y:.3g}", "runs": "%{customdata[0]}"}
    said = t(
        "{number} {unit}: {time} ms, median of {runs}, the slowest {slowest} ms",
        **counted,
        slowest="%{customdata[1]:.3g}",
    )
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
        "customdata": [[len(p.step_s), max(p.step_s) * 1000] for p in points],
        "hovertemplate": said + UNNAMED,
    }


def load(data: Mapping[str, Any]) -> Figure:
    """The measured wait for a first token (left: TTFT p99) and the finished requests (right) at
    each rate. A hollow point was cut short: it is a lower bound. data: see
    `core.measure.load.sweep_load`.
    """
    names = list(dict.fromkeys(point["policy"] for point in data["points"]))
    served = t("{served} at {rate} requests/s", served="%{customdata}", rate="%{x:.3g}")
    done = t("{done} requests/s finished of {rate}, ", done="%{y:.3g}", rate="%{x:.3g}")
    picture = Figure.side_by_side(0.16)
    for name, hue in contender_hues(names).items():
        points, colour = [p for p in data["points"] if p["policy"] == name], HUES[hue]
        stroke = {"color": colour, "width": 2}
        ttft = [p["numbers"]["ttft_s"] for p in points]
        hollow = [bool(found.get("left_out")) for found in ttft]
        line: dict[str, Any] = {
            "mode": "lines+markers",
            "name": escaped(name),
            "legendgroup": name,
            "line": stroke,
            "marker": {
                "size": 8,
                "color": [PANEL if h else colour for h in hollow],
                "line": stroke,
            },
        }
        rates = [p["rate"] for p in points]
        picture.add_scatter(
            x=rates,
            y=[found["p99"] for found in ttft],
            customdata=[
                f"{'≥ ' if h else ''}{findings.seconds(found['p99'])}, "
                + t(f"{found['count']} of {p['offered']} served")
                for found, h, p in zip(ttft, hollow, points, strict=True)
            ],
            hovertemplate=served + NAMED,
            **LEFT,
            **line,
        )
        picture.add_scatter(
            x=rates,
            y=[p["numbers"]["requests_per_s"] for p in points],
            customdata=[
                t(f"{p['numbers']['output_tok_s'] or 0:,.0f} output tok/s") for p in points
            ],
            hovertemplate=f"{done}%{{customdata}}{NAMED}",
            showlegend=False,
            **RIGHT,
            **line,
        )
    picture.update_xaxes(title=t("requests offered a second"), rangemode="tozero")
    ticks = [t(findings.seconds(tick)) for tick in _SECONDS]
    picture.update_yaxes(title=t("TTFT p99"), type="log", tickvals=_SECONDS, ticktext=ticks, **LEFT)
    picture.update_yaxes(title=t("requests finished a second"), rangemode="tozero", **RIGHT)
    return titled(picture, verdicts.load(data), ("ttft_s", "requests_per_s"))
