"""One pass of a step in letters: the packed row and the mask, for a terminal.

    D = r3  lane 0  prefill(10)  'Once' ' upon' …
    B = r1  lane 1  decode(1)    ' to'

    keys: BBBBBBBBBB CCCCCCCCCCCC | DDDDDDDDDD B C
    D p0  .......... ............ | #......... . .

Long stretches of keys and queries are shortened to their ends (`…`, `⋮`), so that a mask of any
size fits.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.text import Text

from core.cli.output import unbroken
from core.errors import InflightError, shown
from core.trace.events import Segment, StepEvent
from core.trace.mask import Mask, Order, rows_of
from core.trace.messages import english
from core.trace.phrases import letters
from core.trace.trace import NO_TEXT, NOT_USED, Trace

MOST_CELLS = 50_000_000  # of a mask that is computed here
MOST_ROWS = 48
_ALL = 10**9
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


@dataclass(frozen=True)
class _Stretch:
    """Adjacent keys or queries of a request, `first` … `end - 1`. new: computed now."""

    request: str
    first: int
    end: int
    new: bool
    pads: bool = False

    def __len__(self) -> int:
        return self.end - self.first

    def folded(self, cells: int) -> list[int | None]:
        """Its indices; if there are more than `cells`, the middle is replaced by one None."""
        if len(self) <= cells:
            return list(range(self.first, self.end))
        if cells == 1:
            return [self.first]
        head = cells // 2
        tail = cells - 1 - head
        return [*range(self.first, self.first + head), None, *range(self.end - tail, self.end)]


def step_json(
    trace: Trace, step: int, pass_index: int, order: Order, layer: int | None
) -> dict[str, Any]:
    """The pass as plain data: segments, labels, and the mask as strings of 0 and 1."""
    event = _checked(trace, step, pass_index)
    mask = trace.mask(step, pass_index, order, layer)
    return {
        "step": step,
        "pass": pass_index,
        "layout": event.passes[pass_index].layout,
        "warnings": list(event.warnings),
        "segments": [s._asdict() for s in event.segments if s.pass_index == pass_index],
        "queries": [list(q) for q in mask.queries],
        "keys": [list(k) for k in mask.keys],
        "allowed": ["".join("1" if cell else "0" for cell in row) for row in mask.allowed],
    }


def mask_lines(
    trace: Trace,
    step: int,
    pass_index: int = 0,
    order: Order = "request",
    layer: int | None = None,
    width: int | None = 120,
) -> list[Text]:
    """The lines of the pass. width: columns to fit into; None shortens nothing.

    Raises InflightError for a step or pass that does not exist, or a mask too large to compute.
    """
    event = _checked(trace, step, pass_index)
    forward = event.passes[pass_index]
    segments = [s for s in event.segments if s.pass_index == pass_index]
    names = letters(trace)
    styles = {s.request: COLOURS[i % len(COLOURS)] for i, s in enumerate(segments)}
    mask = trace.mask(step, pass_index, order, layer)
    cached = sum(s.start for s in segments)
    shape = f"[{forward.rows}, {forward.width}]"
    which = f", pass {pass_index} of {len(event.passes)}" if len(event.passes) > 1 else ""
    computed = english(f"{forward.tokens} [token|tokens] computed, {cached} cached")
    if forward.layout == "padded":
        positions = forward.rows * forward.width
        layout = english(
            f"{forward.rows} [row|rows] of shape {shape}, {forward.padding} of {positions}"
            " [position is|positions are] padding"
        )
    else:
        layout = english(f"{len(segments)} [request|requests] packed into one row of shape {shape}")
    lines = [
        Text(),
        Text(f"STEP {step}{which}: {_what(segments)}", style="bold"),
        Text(f"{computed}; {layout}"),
        *(Text(unbroken(warning), style="yellow") for warning in event.warnings),
        Text(),
    ]
    padded_width = forward.width if forward.layout == "padded" else 0
    for row in rows_of(forward, segments):
        own = (q for q in mask.queries if q.request == row.request)
        words = [q.text for q in own if q.position is not None]
        lines.append(_row(row, words, padded_width, names, styles, width))
    sorted_by = "all cached | all new" if order == "cached-new" else "by request, cached | new"
    starts = {s.request: s.start for s in segments}
    return [
        *lines,
        Text(),
        Text("block-diagonal causal mask (row = query, column = key)   # attend   . blocked"),
        Text(f"keys: {sorted_by}"),
        *_Grid(mask, starts, order, names, styles, width).lines(),
    ]


def _checked(trace: Trace, step: int, pass_index: int) -> StepEvent:
    event = trace.event(step)
    if not 0 <= pass_index < len(event.passes):
        count = len(event.passes)
        raise InflightError(
            english(
                f"Step {step} has {count} [pass|passes], numbered from 0, so there is no pass"
                f" {shown(pass_index)}."
            )
        )
    forward = event.passes[pass_index]
    keys = sum(s.kv_len for s in event.segments if s.pass_index == pass_index)
    queries = forward.rows * forward.width
    if queries * keys > MOST_CELLS:
        raise InflightError(
            f"The mask of step {step} has {queries:,} × {keys:,} cells; at most {MOST_CELLS:,} are"
            " drawn here."
        )
    return event


def _what(segments: list[Segment]) -> str:
    phases = {s.phase for s in segments}
    if phases == {"prefill", "decode"}:
        return "prefill and decode in one pass"
    return "prefill" if phases == {"prefill"} else "decode"


def _row(
    row: Any,
    words: list[str],
    padded_width: int,
    names: dict[str, str],
    styles: dict[str, str],
    width: int | None,
) -> Text:
    """A line with the request of this row or segment, and its tokens."""
    style = styles.get(row.request, "dim")
    text = Text(f"  {names[row.request]:>2} = {unbroken(row.request)}", style=style)
    if not isinstance(row, Segment):
        return text.append(f"  lane {row.lane}  finished, computed as padding until the wave ends")
    pads = f"<pad>×{padded_width - row.length} " if padded_width > row.length else ""
    tokens = [word if word is NO_TEXT or word is NOT_USED else repr(word) for word in words]
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


class _Grid:
    """The mask, its keys and queries shortened to a width (None shortens nothing)."""

    def __init__(
        self,
        mask: Mask,
        starts: Mapping[str, int],
        order: Order,
        names: dict[str, str],
        styles: dict[str, str],
        width: int | None,
    ) -> None:
        self._mask, self._order, self._names, self._styles = mask, order, names, styles
        self._rows = _stretches((q.request, q.position, True) for q in mask.queries)
        self._keys = _stretches(
            (k.request, k.position, k.position is not None and k.position >= starts[k.request])
            for k in mask.keys
        )
        self._label = max([len("keys:"), *(len(self._name(q)) for q in mask.queries)])
        self._most_cells = self._most_rows = _ALL
        self._hidden: list[str] = []
        if width is not None:
            self._most_rows = max(3, MOST_ROWS // max(1, len(self._rows)))
            self._fold_keys(width - self._label - 1)

    def _fold_keys(self, room: int) -> None:
        """Leave out requests that do not fit at all, and shorten the others' keys to fit."""
        requests, keys = list(dict.fromkeys(keys.request for keys in self._keys)), self._keys
        kept = len(requests)
        while kept > 1 and self._width(3) > room:
            kept -= 1
            shown = set(requests[:kept])
            self._keys = [stretch for stretch in keys if stretch.request in shown]
        self._hidden = requests[kept:]
        sizes = range(3, max(map(len, self._keys), default=0) + 1)
        self._most_cells = 2 + max(1, bisect_right(sizes, room, key=self._width))

    def _width(self, cells: int) -> int:
        return sum(min(len(keys), cells) + len(self._gap(i)) for i, keys in enumerate(self._keys))

    def lines(self) -> Iterator[Text]:
        """A line with the requests of the keys, one per query, and notes on what is left out."""
        header = Text("keys:".rjust(self._label) + " ")
        for index, keys in enumerate(self._keys):
            header.append(self._gap(index)).append(
                self._letters(keys), style=self._styles[keys.request]
            )
        yield header
        for rows in self._rows:
            if rows.request in self._hidden:
                continue
            for query in rows.folded(1 if rows.pads else self._most_rows):
                if query is None:
                    more = len(rows) - self._most_rows + 1
                    yield Text(
                        f"{'⋮':>{self._label}} {more} more rows of {self._names[rows.request]}",
                        style="dim",
                    )
                else:
                    repeated = f"   ×{len(rows)}" if rows.pads and len(rows) > 1 else ""
                    yield self._row(query).append(repeated, style="dim")
        if folded := sum(
            len(keys) - self._most_cells + 1 for keys in self._keys if len(keys) > self._most_cells
        ):
            yield Text(
                f"… stands for folded keys, {folded:,} in all; --full draws every one", style="dim"
            )
        if hidden := self._hidden:
            names = ", ".join(self._names[request] for request in hidden[:12]) + (
                " …" if len(hidden) > 12 else ""
            )
            which = f"{len(hidden):,} more [request is|requests are] not drawn ({names})"
            yield Text(english(f"{which}; --full draws [={len(hidden)} it|them]"), style="dim")

    def _row(self, index: int) -> Text:
        query, allowed = self._mask.queries[index], self._mask.allowed[index]
        style = self._styles.get(query.request, "dim") if query.position is not None else "dim"
        text = Text(self._name(query).rjust(self._label) + " ", style=style)
        for number, keys in enumerate(self._keys):
            text.append(self._gap(number), style="default")
            for key in keys.folded(self._most_cells):
                attends = key is not None and allowed[key]
                text.append(
                    "…" if key is None else "#" if attends else ".",
                    style=self._styles[keys.request] if attends else "dim",
                )
        return text

    def _letters(self, keys: _Stretch) -> str:
        """The request's letter above every key, shortened as the keys are."""
        name, shown = self._names[keys.request], min(len(keys), self._most_cells)
        letters = name * shown if len(name) == 1 else name[:shown].ljust(shown, "·")
        middle = shown // 2
        return letters if len(keys) <= shown else letters[:middle] + "…" + letters[middle + 1 :]

    def _gap(self, index: int) -> str:
        """What separates stretches of keys: a space between requests, a bar before new keys."""
        if index == 0:
            return ""
        before, keys = self._keys[index - 1], self._keys[index]
        if keys.new != before.new and (
            self._order == "cached-new" or keys.request == before.request
        ):
            return " | " if self._order == "cached-new" else "|"
        return " "

    def _name(self, query: Any) -> str:
        return (
            f"{self._names[query.request]}"
            f" {'pad' if query.position is None else f'p{query.position}'}"
        )


def _stretches(items: Iterable[tuple[str, int | None, bool]]) -> list[_Stretch]:
    found, at = [], 0
    for (request, pads, new), group in groupby(
        items, key=lambda item: (item[0], item[1] is None, item[2])
    ):
        end = at + len(list(group))
        found.append(_Stretch(request, at, end, new, pads))
        at = end
    return found
