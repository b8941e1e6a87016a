"""Output of the command line: consoles, tables, numbers, progress. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

PLAIN_WIDTH = 160  # columns if there is no terminal
_GAP, _LEAST = 2, 16  # between columns; minimum width of a stretching column


def out() -> Console:
    """Standard output. Created for every use, because tests and pipes replace the stream."""
    return Console(highlight=False, width=_width(sys.stdout))


def err() -> Console:
    return Console(stderr=True, highlight=False, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() else PLAIN_WIDTH


def print_note(text: str) -> None:
    """One line on stderr, never wrapped."""
    err().print(Text(text), soft_wrap=True)


def print_line(text: str | Text = "") -> None:
    """One line on stdout, never wrapped."""
    out().print(Text(text) if isinstance(text, str) else text, soft_wrap=True)


def finish(data: Any, print_it: Callable[[Any], object], as_json: bool, save_to: Path | None = None) -> None:
    """End a command: save its result as JSON if requested, then print it, as JSON or for people."""
    if save_to is not None:
        save_to.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if as_json:
        sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        print_it(data)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, stretch: str | None = None, right: Iterable[str] = ()
) -> None:
    """A table on stdout. `stretch` names the column that is cut to fit the width, `right` those that hold numbers."""
    console, cells, numbers = out(), [list(row) for row in rows], frozenset(right)
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if stretch is not None:
        at = columns.index(stretch)
        others = sum(widths) - widths[at] + _GAP * (len(columns) - 1)
        widths[at] = max(_LEAST, min(widths[at], console.width - others))
    for index, row in enumerate((columns, *cells)):
        text = Text(style="bold" if index == 0 else "")
        for name, width, cell in zip(columns, widths, row, strict=True):
            part = Text(cell)
            part.truncate(width, overflow="ellipsis")
            part.align("right" if name in numbers else "left", width)
            text.append_text(part).append(" " * _GAP)
        text.rstrip()
        console.print(text, soft_wrap=True)


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def percentile(numbers: Mapping[str, Any] | None, name: str) -> str:
    """A percentile of `core.measure.metrics.distribution`: a lower bound if requests were left out."""
    if numbers is None or numbers[name] is None:
        return "–"
    return ("≥ " if numbers.get("left_out") else "") + seconds(numbers[name])


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


class ProgressReporter:
    """Progress of a known amount of work: a bar on a terminal, otherwise a plain line for every tenth, at most one a second."""

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._clock = what, max(1, total), clock
        self._console = err()
        self._bar: Progress | None = None
        self._tenth, self._last = 0, clock()

    def __enter__(self) -> ProgressReporter:
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(self._what, total=self._total, note="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
            return
        tenth, now = 10 * done // self._total, self._clock()
        if tenth > self._tenth and now - self._last >= 1:
            self._tenth, self._last = tenth, now
            print_note(f"{self._what} {done}/{self._total}{', ' + note if note else ''}")
