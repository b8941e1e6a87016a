"""Consoles, tables, numbers and progress: results go to stdout, everything else to stderr."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from core.errors import InflightError
from core.files import save_json
from core.trace.file import is_compressed

INTERRUPTED = 130  # exit code after Ctrl-C
PLAIN_WIDTH = 160  # columns if there is no terminal
# characters that terminals obey, and those that turn a line around
_CONTROLS = {
    code: repr(chr(code))[1:-1]
    for codes in (range(32), range(127, 160), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for code in codes
    if chr(code) not in "\t\n"
}


def open_streams() -> None:
    """Make sure that printing never fails on a closed stream or because of a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def out() -> Console:
    """Standard output. Created for every use, because tests and pipes replace the stream."""
    return _PlainConsole(highlight=False, width=_width(sys.stdout))


def err() -> Console:
    """The console on stderr, for everything but the result."""
    return _PlainConsole(stderr=True, highlight=False, width=_width(sys.stderr))


class _PlainConsole(Console):
    """A console that sends nothing but colours: names in files may contain any characters."""

    def render(self, *args: Any, **options: Any) -> Iterator[Segment]:
        for text, style, control in super().render(*args, **options):
            yield Segment(text if control else text.translate(_CONTROLS), style, control)


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() else PLAIN_WIDTH


def print_note(text: str) -> None:
    """One line on stderr, never wrapped."""
    err().print(Text(unbroken(text)), soft_wrap=True)


def print_line(text: str | Text = "") -> None:
    """One line on stdout, never wrapped."""
    out().print(Text(unbroken(text)) if isinstance(text, str) else text, soft_wrap=True)


def unbroken(text: str) -> str:
    """The text on one line, since text from a file could otherwise pretend to be a line of ours."""
    return text.replace("\n", r"\n")


def saved(save: Callable[[Path], object], path: Path | None) -> list[InflightError]:
    """Save to a path, if one was given. Returns an error, for `finish` to raise after the rest."""
    try:
        if path is not None:
            save(path)
    except InflightError as error:
        return [error]
    return []


def finish(
    data: Any,
    print_it: Callable[[Any], object],
    as_json: bool,
    save_to: Path | None = None,
    refused: Sequence[InflightError] = (),
) -> None:
    """End a command: save its result as JSON if requested, then print it, as JSON or for people. At
    the end the first of `refused` is raised.
    """
    refused = [*refused, *saved(lambda path: save_json(path, data), save_to)]
    if as_json:
        print_json(data)
    else:
        print_it(data)
    for error in refused:
        raise error


def print_json(data: Any) -> None:
    """Print one line of JSON on stdout, in ASCII if the stream cannot encode every character."""
    is_utf = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    sys.stdout.write(json.dumps(data, ensure_ascii=not is_utf, allow_nan=False) + "\n")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    stretch: Iterable[str] = (),
    right: Iterable[str] = (),
) -> None:
    """Print a table. stretch: the columns that are cut to fit; right: columns of numbers."""
    made, numbers = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0)), frozenset(right)
    cut = frozenset(stretch)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        made.add_column(Text(name), justify=justify, no_wrap=name not in cut)
    for row in rows:
        made.add_row(*(Text(unbroken(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    out().print(made)


def seconds(value: float | None) -> str:
    """A time in milliseconds or seconds; a dash for None."""
    if value is None:
        return "–"
    return f"{_fixed(value * 1000, 1)} ms" if value < 0.99995 else f"{value:.2f} s"


def percentile(numbers: Mapping[str, Any] | None, name: str) -> str:
    """A percentile of a distribution, marked as a lower bound if values are left out."""
    if numbers is None or numbers[name] is None:
        return "–"
    return ("≥ " if numbers.get("left_out") else "") + seconds(numbers[name])


def percent(value: float | None) -> str:
    """A share of 1 in percent; a dash for None."""
    return "–" if value is None else f"{_fixed(100 * value, 1)} %"


def number(value: float | None, digits: int = 1) -> str:
    """A number with commas between thousands, a fraction with so many decimals; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else _fixed(value, digits)


def _fixed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:,.{digits}f}"  # plus 0, and -0.0 is 0.0


class ProgressReporter:
    """Progress on stderr. With a known `total`: a bar on a terminal, otherwise a plain line for
    every tenth, at most one a second. Without: a spinner on a terminal after one second, otherwise
    a line after five.
    """

    def __init__(
        self, what: str, total: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._console = err()
        self._bar: Progress | None = None
        self._tenth, self._last = 0, clock()

    def __enter__(self) -> Self:
        on_terminal = self._console.is_terminal
        if self._total is None:
            self._waiting = threading.Timer(1 if on_terminal else 5, self._spin)
            self._waiting.daemon = True
            self._waiting.start()
        if on_terminal:
            elapsed, note = TimeElapsedColumn(), TextColumn("{task.fields[note]}", markup=False)
            text = TextColumn("{task.description}", markup=False)
            counts = (text, BarColumn(), MofNCompleteColumn(), elapsed, note)
            columns = (SpinnerColumn(), text, elapsed, note) if self._total is None else counts
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(self._what, total=self._total, note="")
            if self._total is not None:
                self._bar.start()
        return self

    def _spin(self) -> None:
        if self._bar is None:
            print_note(f"{self._what} …")
        else:
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._total is None:
            self._waiting.cancel()
            self._waiting.join()
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Show how far work without a known total has come, on a terminal."""
        if self._bar is not None:
            self._bar.update(self._task, note=text)

    def update(self, done: int, note: str = "") -> None:
        """Report how much of the total is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
            return
        total = max(1, self._total or 0)
        tenth, now = 10 * done // total, self._clock()
        if tenth > self._tenth and now - self._last >= 1:
            self._tenth, self._last = tenth, now
            print_note(f"{self._what} {done}/{total}{', ' + note if note else ''}")


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Show progress while libraries or a model are loaded. Ctrl-C then ends the process at once:
    there is nothing to keep, and transformers would mistake the interrupt for a missing module.
    """
    before = signal.getsignal(signal.SIGINT)
    is_ours = (
        before is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )
    with ProgressReporter(what) as work:

        def leave(*_: object) -> None:
            work.__exit__()
            print_note("Interrupted.")
            os._exit(INTERRUPTED)

        try:
            if is_ours:
                signal.signal(signal.SIGINT, leave)
            yield
        finally:
            if is_ours:
                signal.signal(signal.SIGINT, before)


def reading(lines: Iterable[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file, showing progress."""
    total = None if is_compressed(path) else path.stat().st_size >> 20
    with ProgressReporter(
        f"{path.name}, MiB read" if total else f"Reading {path.name}", total
    ) as work:
        read = 0
        for line in lines:
            before, read = read, read + len(line)  # near enough
            if total and read >> 20 > before >> 20:
                work.update(read >> 20)
            yield line
