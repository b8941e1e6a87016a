"""One pass of a step in letters: the packed row and the mask, for a terminal. Reads a trace, knows no command line.

    D = r3  lane 0  prefill(10)  'Once' ' upon' …
    B = r1  lane 1  decode(1)    ' to'

    keys: BBBBBBBBBB CCCCCCCCCCCC | DDDDDDDDDD B C
    D p0  .......... ............ | #......... . .

Long stretches of keys and queries are folded to their ends (`…`, `⋮`), so that a mask of any size fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.text import Text

from core.errors import InflightError
from core.trace.events import Segment, StepEvent
from core.trace.mask import Mask, Order, rows_of
from core.trace.messages import english
from core.trace.phrases import letters
from core.trace.trace import Trace

MOST_CELLS = 50_000_000  # of a mask that is derived whole
MOST_ROWS = 48
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


@dataclass(frozen=True)
class _Run:
    """Neighbouring keys or queries of one request: `first` … `end - 1` of the mask's axis. new: computed in this pass."""

    request: str
    first: int
    end: int
    new: bool
    pads: bool = False

    def __len__(self) -> int:
        return self.end - self.first


def step_json(trace: Trace, step: int, pass_index: int, order: Order, layer: int | None) -> dict[str, Any]:
    """The pass as plain data: segments, labels, and the mask as strings of 0 and 1."""
    event = _checked(trace, step, pass_index)
    mask = trace.mask(step, pass_index, order, layer)
    return {
        "step": step,
        "pass": pass_index,
        "layout": event.passes[pass_index].layout,
        "segments": [s._asdict() for s in event.segments if s.pass_index == pass_index],
        "queries": [list(q) for q in mask.queries],
        "keys": [list(k) for k in mask.keys],
        "allowed": ["".join("1" if cell else "0" for cell in row) for row in mask.allowed],
    }


def mask_lines(
    trace: Trace, step: int, pass_index: int = 0, order: Order = "request", layer: int | None = None, width: int | None = 120
) -> list[Text]:
    """The pass line by line. width: columns to fold into; None folds nothing.

    Raises InflightError for a step or pass that is not there, or a mask too large to derive.
    """
    event = _checked(trace, step, pass_index)
    forward = event.passes[pass_index]
    segments = [s for s in event.segments if s.pass_index == pass_index]
    names, styles = letters(trace), _styles(segments)
    mask = trace.mask(step, pass_index, order, layer)
    cached = sum(s.start for s in segments)
    shape = f"[{forward.rows}, {forward.width}]"
    lines = [
        Text(),
        Text(
            f"STEP {step}"
            + (f", pass {pass_index} of {len(event.passes)}" if len(event.passes) > 1 else "")
            + f": {_what(segments)}",
            style="bold",
        ),
    ]
    computed = f"{forward.tokens} tokens computed, {cached} cached"
    if forward.layout == "padded":
        lines.append(
            Text(
                f"{computed}; {forward.rows} rows of shape {shape}, {forward.padding} of {forward.rows * forward.width} positions are padding"
            )
        )
    else:
        lines.append(Text(english(f"{computed}; {len(segments)} [request|requests] packed into one row of shape {shape}")))
    lines.append(Text())
    for row in rows_of(forward, segments):
        lines.append(_row(trace, row, forward.width if forward.layout == "padded" else 0, names, styles, width))
    lines += [Text(), Text("block-diagonal causal mask (row = query, column = key)   # attend   . blocked")]
    lines.append(Text("keys: " + ("all cached | all new" if order == "cached-new" else "by request, cached | new")))
    lines += _grid(mask, segments, order, names, styles, width)
    return lines


def _checked(trace: Trace, step: int, pass_index: int) -> StepEvent:
    event = trace.event(step)
    if not 0 <= pass_index < len(event.passes):
        count = len(event.passes)
        raise InflightError(english(f"Step {step} has {count} [pass|passes], numbered from 0, so there is no pass {pass_index}."))
    forward = event.passes[pass_index]
    keys = sum(s.kv_len for s in event.segments if s.pass_index == pass_index)
    queries = forward.rows * forward.width
    if queries * keys > MOST_CELLS:
        raise InflightError(f"The mask of step {step} has {queries:,} × {keys:,} cells; at most {MOST_CELLS:,} are drawn here.")
    return event


def _what(segments: list[Segment]) -> str:
    phases = {s.phase for s in segments}
    if phases == {"prefill", "decode"}:
        return "prefill and decode in one pass"
    return "prefill" if phases == {"prefill"} else "decode"


def _styles(segments: list[Segment]) -> dict[str, str]:
    return {s.request: COLOURS[i % len(COLOURS)] for i, s in enumerate(segments)}


def _row(trace: Trace, row: Any, padded_width: int, names: dict[str, str], styles: dict[str, str], width: int | None) -> Text:
    """Who this row or segment is, and its tokens."""
    style = styles.get(row.request, "dim")
    text = Text(f"  {names[row.request]:>2} = {row.request}", style=style)
    if not isinstance(row, Segment):
        return text.append(f"  lane {row.lane}  finished, computed as padding until the wave ends")
    pads = f"<pad>×{padded_width - row.length} " if padded_width > row.length else ""
    tokens = [repr(trace.token_text(row.request, p)) for p in range(row.start, row.kv_len)]
    text.append(f"  lane {row.lane}  {f'{row.phase}({row.length})':<12} ")
    room = None if width is None else max(20, width - len(text) - len(pads))
    return text.append(pads, style="dim").append(_fold_words(tokens, room), style="default")


def _fold_words(words: list[str], room: int | None) -> str:
    whole = " ".join(words)
    if room is None or len(whole) <= room:
        return whole
    kept = ""
    for count, word in enumerate(words):
        more = f" … {len(words) - count} more"
        if len(kept) + 1 + len(word) + len(more) > room:
            return kept + more
        kept += (" " if kept else "") + word
    return kept


def _grid(
    mask: Mask, segments: list[Segment], order: Order, names: dict[str, str], styles: dict[str, str], width: int | None
) -> list[Text]:
    starts = {s.request: s.start for s in segments}
    columns = _runs([(k.request, k.position, k.position is not None and k.position >= starts[k.request]) for k in mask.keys])
    rows = _runs([(q.request, q.position, True) for q in mask.queries])
    label = max([len("keys:"), *(len(_label(q, names)) for q in mask.queries)])
    hidden: list[str] = []
    cells, drawn = 10**9, columns
    if width is not None:
        room = width - label - 1
        drawn, hidden = _that_fit(columns, order, room)
        cells = _longest_that_fits(drawn, order, room)
    most = 10**9 if width is None else max(3, MOST_ROWS // max(1, len(rows)))
    header = Text("keys:".rjust(label) + " ")
    for index, run in enumerate(drawn):
        name = names[run.request]
        shown = min(len(run), cells)
        head = (name * shown)[:shown] if len(name) == 1 else name[:shown].ljust(shown, "·")
        header.append(_gap(drawn, index, order)).append(_folded_name(head, run, cells), style=styles[run.request])
    lines = [header]
    skipped = set(hidden)
    for run in rows:
        if run.request in skipped:
            continue
        for position in _ends(run, most if not run.pads else 1):
            if position is None:
                lines.append(Text(f"{'⋮':>{label}} {len(run) - most + 1} more rows of {names[run.request]}", style="dim"))
                continue
            query = mask.queries[position]
            style = styles.get(query.request, "dim") if query.position is not None else "dim"
            text = Text(_label(query, names).rjust(label) + " ", style=style)
            for index, keys in enumerate(drawn):
                text.append(_gap(drawn, index, order), style="default")
                for column in _ends(keys, cells):
                    if column is None:
                        text.append("…", style="dim")
                    else:
                        allowed = mask.allowed[position][column]
                        text.append("#" if allowed else ".", style=styles[keys.request] if allowed else "dim")
            if run.pads and len(run) > 1:
                text.append(f"   ×{len(run)}", style="dim")
            lines.append(text)
    folded = sum(len(run) - cells + 1 for run in drawn if len(run) > cells)
    if folded:
        lines.append(Text(f"… stands for keys folded away, {folded:,} in all; --full draws every one", style="dim"))
    if hidden:
        lines.append(
            Text(
                f"{len(hidden)} more requests are not drawn ({', '.join(names[r] for r in hidden[:12])}{' …' if len(hidden) > 12 else ''}); --full draws them",
                style="dim",
            )
        )
    return lines


def _runs(items: list[tuple[str, int | None, bool]]) -> list[_Run]:
    runs, at = [], 0
    for (request, pads, new), group in groupby(items, key=lambda item: (item[0], item[1] is None, item[2])):
        end = at + len(list(group))
        runs.append(_Run(request, at, end, new, pads))
        at = end
    return runs


def _gap(runs: list[_Run], index: int, order: Order) -> str:
    """What stands before a run of keys: a space between requests, a bar where cached keys end and new ones begin."""
    if index == 0:
        return ""
    before, run = runs[index - 1], runs[index]
    if run.new != before.new and (order == "cached-new" or run.request == before.request):
        return " | " if order == "cached-new" else "|"
    return " "


def _width(runs: list[_Run], order: Order, cells: int) -> int:
    return sum(min(len(run), cells) + len(_gap(runs, i, order)) for i, run in enumerate(runs))


def _longest_that_fits(runs: list[_Run], order: Order, room: int) -> int:
    """Into how many cells each run is folded."""
    longest = max((len(run) for run in runs), default=1)
    if _width(runs, order, longest) <= room:
        return longest
    low, high = 3, longest
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if _width(runs, order, middle) <= room else (low, middle)
    return low


def _that_fit(runs: list[_Run], order: Order, room: int) -> tuple[list[_Run], list[str]]:
    """The runs of as many requests as can be drawn at all, and the requests that cannot."""
    requests = list(dict.fromkeys(run.request for run in runs))
    kept = len(requests)
    while kept > 1 and _width([r for r in runs if r.request in set(requests[:kept])], order, 3) > room:
        kept -= 1
    wanted = set(requests[:kept])
    return [run for run in runs if run.request in wanted], requests[kept:]


def _ends(run: _Run, cells: int) -> list[int | None]:
    """Indices of a run, its middle folded to None where it is longer than `cells`; one cell is the first index alone."""
    if len(run) <= cells:
        return list(range(run.first, run.end))
    if cells == 1:
        return [run.first]
    head = cells // 2
    tail = cells - 1 - head
    return [*range(run.first, run.first + head), None, *range(run.end - tail, run.end)]


def _folded_name(head: str, run: _Run, cells: int) -> str:
    if len(run) <= cells:
        return head
    at = cells // 2
    return head[:at] + "…" + head[at + 1 :]


def _label(query: Any, names: dict[str, str]) -> str:
    return f"{names[query.request]} pad" if query.position is None else f"{names[query.request]} p{query.position}"
