"""Runs of many requests, reduced to totals event by event, in constant memory."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from core.account.request_times import SLOs
from core.cli.output import number, percent, print_line, reading, seconds
from core.cli.report import circumstances, goodput_lines, headline
from core.errors import InvalidTrace
from core.simulate.totals import RunTotals
from core.trace.events import StepEvent
from core.trace.file import BREAKS_OFF, End, Reader, lines_of
from core.trace.header import Header
from core.trace.messages import english
from core.trace.trace import Trace

# up to this number a run is kept whole, with exact numbers and a row for each request
MOST_REQUESTS = 10_000


def is_long(path: Path) -> bool:
    """Whether a file is a trace of ours with more requests than that."""
    try:
        lines = lines_of(path)
        header = next(lines, "")
        if not header.startswith('{"kind":"header"'):
            return False
        asked = islice(
            (line for line in lines if line.startswith('{"kind":"request"')), MOST_REQUESTS, None
        )
        return '"engine":{' not in header and next(asked, None) is not None
    except InvalidTrace:
        return False


def print_file(path: Path, slos: SLOs | None) -> None:
    """Print the totals of a trace, read line by line. Raises InvalidTrace."""
    reader = Reader(reading(lines_of(path), path))
    totals = RunTotals(slos)
    end = End(complete=False)
    for record in reader.records():
        if isinstance(record, StepEvent):
            totals.add(record)
        elif isinstance(record, End):
            end = record
    print_long(reader.header, totals, end.complete)
    if not end.is_written:
        print_line(BREAKS_OFF)


def print_long(header: Header, totals: RunTotals, complete: bool) -> None:
    """Print what ran, and its totals."""
    print_line(headline(Trace(header, {}, [])))
    print_line()
    print_totals(totals.to_json())
    for text in circumstances(header):
        print_line(text)
    print_line("Only totals are shown, their percentiles to within one percent.")
    if not complete:
        print_line("This run was cut short.")


def print_totals(totals: Mapping[str, Any]) -> None:
    """Print `RunTotals` as lines."""
    print_line(
        english(
            f"{totals['finished']:,} [request|requests], {totals['output_tokens']:,} [token|tokens]"
            f" in {totals['steps']:,} [step|steps]: {totals['wall_s']:,.1f} seconds,"
            f" {number(totals['output_tok_s'])} tok/s, {number(totals['requests_per_s'], 2)}"
            f" requests/s, {totals['preemptions']:,} [preemption|preemptions], KV use"
            f" {percent(totals['kv_use'])}"
        )
    )
    for name in ("ttft_s", "itl_s", "e2e_s"):
        n = totals[name]
        print_line(
            f"{name.removesuffix('_s').upper()}: p50 {seconds(n['p50'])}, p90 {seconds(n['p90'])},"
            f" p99 {seconds(n['p99'])}, at most {seconds(n['max'])}"
        )
    for line in goodput_lines(totals):
        print_line(line)
