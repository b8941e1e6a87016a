"""One step as an interactive figure: for each of its passes the packed row and, below it, the
attention mask. Everything comes from the trace; colours and letters are those of the page.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from core.errors import InflightError
from core.trace.mask import Mask, Position
from core.trace.messages import english
from core.trace.phrases import letters as letters_of
from core.trace.trace import Trace
from visualizer.charts.figure import Figure
from visualizer.charts.theme import (
    EMPTY,
    HUES,
    INK,
    MUTED,
    RULE,
    TEMPLATE,
    UNNAMED,
    deal,
    escaped,
    tint,
)
from visualizer.words.captions import captions, plain

MAX_CELLS = 60_000
_ROW_PIXELS, _SPACE_PIXELS = 15, 210
_WRITTEN = 90  # up to this many positions, ticks show tokens; for more, only letters
NOTHING = len(HUES)  # grey, after the hues: wasted work for a request that had stopped
CELLS: Sequence[str] = [EMPTY, *(c for hue in (*HUES, MUTED) for c in (tint(hue, 0.5), hue))]
"""The colours of cells: empty, then each hue in pale and in full."""


def step_figure(trace: Trace, step: int) -> Figure:
    """The figure of a step; raises InflightError for an unknown step or too large masks."""
    event = trace.event(step)
    masks = [trace.mask(step, index) for index in range(len(event.passes))]
    cells = sum(m.num_cells for m in masks)
    if cells > MAX_CELLS:
        raise InflightError(
            f"The mask of step {step} has {cells:,} cells; a figure holds at most {MAX_CELLS:,}."
            " The player draws it in tiles."
        )
    letters = letters_of(trace)
    hues = {**deal(trace), **{o.request: NOTHING for o in event.overrun}}
    heights = [h for m in masks for h in (60, max(120, _ROW_PIXELS * len(m.queries)))]
    figure = Figure.stacked(heights or [1], gap=0.4 / max(1, len(heights)))
    beside = {"automargin": True}  # labels are as long as the tokens
    for index, mask in enumerate(masks):
        row, below = 2 * index + 1, 2 * index + 2
        figure.add_heatmap(row, **_packed_row(mask, hues, letters))
        figure.add_heatmap(below, **_mask(mask, hues, letters))
        figure.update_xaxes(row, **_letters_at(mask.queries, letters), side="top")
        figure.update_yaxes(row, showticklabels=False, title=f"pass {index}")
        keys, queries = _named(mask.keys, letters, along=True), _named(mask.queries, letters)
        counted = {"text": english(f"{len(mask.keys)} [key|keys]"), "standoff": 10}
        figure.update_xaxes(below, **keys, **beside, title=counted)
        counted = {"text": english(f"{len(mask.queries)} [query|queries]"), "standoff": 10}
        figure.update_yaxes(below, **queries, **beside, title=counted, autorange="reversed")
    said = next(
        c["say"] for e, c in zip(trace.events, captions(trace), strict=True) if e.step == step
    )
    simulated = "Simulated. " if trace.header.is_simulated else ""
    figure.update_layout(
        template=TEMPLATE,
        title=f"{simulated}Step {step}: {escaped(plain(said, lambda r: letters.get(r, '?')))}",
        height=_SPACE_PIXELS + sum(heights),
        showlegend=False,
    )
    return figure


def _packed_row(mask: Mask, hues: dict[str, int], letters: dict[str, str]) -> dict[str, Any]:
    """Every computed position in packed order; pads are empty."""
    packed: dict[str, Any] = {
        "z": [[_code(q, hues, 2) for q in mask.queries]],
        "customdata": [
            [
                _label(q, letters) + (" · overrun" if hues.get(q.request) == NOTHING else "")
                for q in mask.queries
            ]
        ],
        "hovertemplate": "%{customdata}" + UNNAMED,
        "xgap": 1,
    }
    if len(mask.queries) <= _WRITTEN:
        packed |= {"text": [[_token(q) for q in mask.queries]], "texttemplate": "%{text}"}
    return packed | coloured()


def _mask(mask: Mask, hues: dict[str, int], letters: dict[str, str]) -> dict[str, Any]:
    """Queries by keys: cached pale, new full, blocked empty; hover texts give reasons."""
    new = {(q.request, q.position) for q in mask.queries}
    columns = [_code(k, hues, 2 if (k.request, k.position) in new else 1) for k in mask.keys]
    return {
        "z": [
            [code if allowed else 0 for code, allowed in zip(columns, row, strict=True)]
            for row in mask.allowed
        ],
        "text": [
            [_reason(query, key, allowed) for key, allowed in zip(mask.keys, row, strict=True)]
            for query, row in zip(mask.queries, mask.allowed, strict=True)
        ],  # why each cell is allowed or blocked
        "x": [_label(k, letters) for k in mask.keys],
        "y": [f"{i}: {_label(q, letters)}" for i, q in enumerate(mask.queries)],
        "hovertemplate": "query %{y}<br>key %{x}<br>%{text}" + UNNAMED,
        **coloured(),
    }


def _named(
    positions: Sequence[Position], letters: dict[str, str], along: bool = False
) -> dict[str, Any]:
    """Ticks with letter and token if legible, otherwise letters. along: vertical."""
    if len(positions) > _WRITTEN:
        return _letters_at(positions, letters)
    return {
        "tickvals": list(range(len(positions))),
        "ticktext": [f"{letters.get(p.request, '?')} {_token(p)}" for p in positions],
        "tickfont": {"size": 11},
        "tickangle": -90 if along else 0,
    }


def _letters_at(positions: Sequence[Position], letters: dict[str, str]) -> dict[str, Any]:
    """An axis whose ticks are the requests' letters, each in the middle of its positions."""
    runs = [list(run) for _, run in groupby(enumerate(positions), key=lambda at: at[1].request)]
    middles = [(run[0][0] + run[-1][0]) / 2 for run in runs]
    return {
        "tickvals": middles,
        "ticktext": [f"<b>{letters.get(run[0][1].request, '?')}</b>" for run in runs],
    }


def _token(position: Position) -> str:
    """A position's token as it is shown in a cell, escaped."""
    return "pad" if position.position is None else escaped((position.text.strip() or "␣")[:14])


def _reason(query: Position, key: Position, allowed: bool) -> str:
    if query.position is None or key.position is None:
        return "blocked: padding"
    if allowed and key.request != query.request:
        return "allowed: by the leak, a token of another request"
    if allowed and key.position == query.position:
        return "allowed: the token itself"
    if allowed:
        return "allowed: an earlier token of the same request"
    if key.request != query.request:
        return "blocked: another request"
    return "blocked: the future" if key.position > query.position else "blocked: outside the window"


def _code(position: Position, hues: dict[str, int], shade: int) -> int:
    """An index into `CELLS`. shade: 1 for pale, 2 for full."""
    return 0 if position.position is None else 2 * hues.get(position.request, 0) + shade


def coloured() -> dict[str, Any]:
    """The style of a heatmap whose numbers are indexes into `CELLS`."""
    steps = len(CELLS)
    return {
        "colorscale": [(e / steps, c) for i, c in enumerate(CELLS) for e in (i, i + 1)],
        "zmin": -0.5,
        "zmax": steps - 0.5,
        "showscale": False,
        "hoverlabel": {"font": {"color": INK}, "bordercolor": RULE},
    }


def _label(position: Position, letters: dict[str, str]) -> str:
    """Letter, position and text of a token, escaped."""
    name = letters.get(position.request, "?")
    if position.position is None:
        return f"{name} · padding"
    return f"{name} · {position.position} · {escaped(position.text)}"
