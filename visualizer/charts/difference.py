"""Why one took less time than the other, as a sum: from the baseline's time to the other's, a bar for each part."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import plotly.graph_objects as go

from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.difference import Difference, difference
from visualizer.charts.contenders import colour, titled
from visualizer.charts.theme import HUES, INK, MUTED, tint
from visualizer.words import findings, verdicts
from visualizer.words.language import t

TITLE = "Why, as a sum"
_LETTERS_A_LINE = 22


class Bar(NamedTuple):
    """From `start` to `end`, in seconds; counted: what it is made of."""

    label: str
    start: float
    end: float
    counted: str = ""


def figure(comparison: Comparison) -> go.Figure:
    """Of the runs that race; raises InflightError where one of the two left no trace, or too short a one."""
    base, mine = findings.pair(comparison)
    traces = [comparison.runs[name].trace for name in (base, mine)]
    if base == mine or traces[0] is None or traces[1] is None:
        raise InflightError("Two runs on record are needed to tell why one took less time.")
    found = difference(traces[0], traces[1])
    made = bars(found, base, mine)
    ends = (colour(base, comparison), colour(mine, comparison))
    colours = [ends[0], *(HUES[2] if b.end < b.start else HUES[1] for b in made[1:-1]), ends[1]]
    picture = go.Figure()
    picture.add_bar(
        x=[round(abs(b.end - b.start), 6) for b in made],  # to the right, where there is room for the text beside it
        base=[round(min(b.start, b.end), 6) for b in made],
        y=["<br>".join(textwrap.wrap(b.label, _LETTERS_A_LINE)) for b in made],
        orientation="h",
        width=0.62,
        marker={"color": [tint(c, 0.35) for c in colours], "line": {"color": colours, "width": 1.5}},
        text=[_signed(b) if 0 < i < len(made) - 1 else findings.seconds(b.end) for i, b in enumerate(made)],
        textposition="auto",
        insidetextanchor="middle",
        textfont={"color": INK, "size": 12},
        outsidetextfont={"color": MUTED},
        customdata=[b.counted for b in made],
        hovertemplate="%{y}: %{text}%{customdata}<extra></extra>",
        cliponaxis=False,
    )
    longest = max(max(b.start, b.end) for b in made)
    picture.update_xaxes(title=t("seconds of the runs that race"), range=[0, 1.15 * longest])  # room for what stands beside a bar
    picture.update_yaxes(autorange="reversed")
    return titled(
        picture,
        verdicts.difference(found, base, mine),
        ("lane_steps", "positions"),
        showlegend=False,
        height=120 + 34 * len(made),
    )


def bars(found: Difference, base: str, mine: str) -> list[Bar]:
    """The two runs, and between them the parts that the sentence names, then everything else; each begins where the last one ended."""
    large = [part for side in verdicts.told(found) for part in side]
    rest = found.seconds - sum(p.seconds for p in large)
    made, at = [Bar(base, 0.0, found.before_s)], found.before_s
    for part in sorted(large, key=lambda p: p.seconds):
        counted = verdicts.counts(part)
        made.append(Bar(t(verdicts.PARTS[part.name]), at, at + part.seconds, counted and f", {counted}"))
        at += part.seconds
    made.append(Bar(t(verdicts.PARTS["rest"]), at, at + rest))
    return [*made, Bar(mine, 0.0, found.after_s)]


def _signed(bar: Bar) -> str:
    change = bar.end - bar.start
    return f"{'+' if change > 0 else '−'}{findings.seconds(abs(change))}"
