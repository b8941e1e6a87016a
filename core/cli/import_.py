"""`import`: another engine's recording as a trace."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import Json
from core.cli.output import ProgressReporter, finish, print_line, print_note
from core.errors import InflightError
from core.files import require_writable
from core.recorders.compare import STEP_FACTS, compare_steps, compare_totals, rank_of
from core.recorders.convert import checked_trace, open_all
from core.recorders.raw import Recording, read_raw
from core.recorders.texts import named_tokenizer
from core.trace.messages import english
from core.trace.phrases import ALIGNMENTS
from core.trace.ranks import Ranks
from core.trace.trace import Trace

RawFiles = Annotated[
    list[Path],
    typer.Argument(
        help="Raw recordings: every part and every rank of one run.", show_default=False
    ),
]


def import_(
    raw: RawFiles,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Save the trace here; with several ranks, one file each.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare every step of the trace with the raw lines; exit code 1 if any differs.",
        ),
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help=(
                "With --verify: vLLM's /metrics at the end, whose counters the totals are compared"
                " with."
            ),
            show_default=False,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Folder or hub id of a tokenizer.", show_default="the model's, if available"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Convert a recording by `inflight-vllm` or another recorder into a trace that the page and
    `show` open, and check it.

    Steps that are against a rule are shown, and counted as warnings; a recording that cannot be
    read leaves no file.
    """
    if out is None and not compare:
        raise InflightError(
            "--out says where to save the trace; --verify alone compares it with the recording."
        )
    if metrics is not None and not compare:
        raise InflightError("--metrics belongs to --verify.")
    require_writable(out, read=raw)
    with ProgressReporter("Reading"):
        recordings = read_raw(raw)
        given = named_tokenizer(tokenizer) if tokenizer else None
        paths = {recording.rank: out for recording in recordings}
        if out is not None and len(recordings) > 1:
            paths = {rank: out.with_name(f"{out.stem}.rank{rank}{out.suffix}") for rank in paths}
        require_writable(*paths.values(), read=raw)
        opened = open_all(
            (recording.name, partial(checked_trace, recording, given)) for recording in recordings
        )
    ranks = Ranks.of(opened.traces, opened.refused)
    by_rank = {recording.rank: recording for recording in recordings}
    rows = []
    for rank in ranks.ranks:
        if path := paths[rank.number]:
            rank.trace.save(path)
        row = _row(by_rank[rank.number], rank.trace, path)
        if compare:
            mine = [file for file in raw if rank_of(file) == rank.number]
            row["compared"] = [asdict(found) for found in compare_steps(mine, rank.trace)]
        rows.append(row)
    if metrics is not None:
        totals = compare_totals(metrics, [rank.trace for rank in ranks.ranks])
        rows[-1]["compared"] += [asdict(found) for found in totals]
        if not totals:
            print_note("The totals are not compared, as steps are missing in this recording.")
    for fault in ranks.faults if ranks.count > 1 else recordings[0].faults:
        print_note(fault)
    if len(ranks.ranks) > 1:
        print_note(ALIGNMENTS[ranks.alignment])
    finish({"schema": "import/1", "traces": rows}, _print, json)
    if any(found["differ"] for row in rows for found in row["compared"]):
        raise typer.Exit(1)


def _print(found: dict[str, Any]) -> None:
    for row in found["traces"]:
        warned = f", {row['warnings']:,} [warning|warnings]" if row["warnings"] else ""
        counts = english(
            f"{row['steps']:,} [step|steps], {row['requests']:,} [request|requests],"
            f" {row['tokens']:,} [token|tokens], {row['preemptions']:,} [preemption|preemptions]"
            f"{warned}"
        )
        print_line(f"{row['path'] or row['recording']}: {row['engine']}, {counts}.")
        for found in row["compared"]:
            same = f"the same in {found['count']:,}" if found["fact"] in STEP_FACTS else "the same"
            if found["apart"]:
                same += f", but for {found['apart']:,} last tokens of requests ended from outside"
            differs = f"differ in {found['differ']:,} of {found['count']:,}; {found['first']}"
            print_line(f"    {found['means']}: {differs if found['differ'] else same}")


def _row(recording: Recording, trace: Trace, path: Path | None) -> dict[str, Any]:
    return {
        "path": path and str(path),
        "recording": recording.name,
        "engine": str(trace.header.engine),
        "rank": recording.rank,
        "steps": len(trace.events),
        "requests": len(trace.asked),
        "tokens": sum(len(event.tokens) for event in trace.events),
        "preemptions": sum(len(event.preempted) for event in trace.events),
        "warnings": sum(len(event.warnings) for event in trace.events),
        "complete": trace.complete,
        "faults": recording.faults,
        "compared": [],
    }
