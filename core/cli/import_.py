"""`import`: another engine's recording as a trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import Json
from core.cli.output import finish, print_line, print_note
from core.recorders.convert import those_that_open, to_trace
from core.recorders.raw import Recording, read_raw
from core.recorders.texts import named_tokenizer
from core.trace.messages import english
from core.trace.phrases import ALIGNMENTS
from core.trace.ranks import Ranks
from core.trace.trace import Trace

RawFiles = Annotated[list[Path], typer.Argument(help="Raw recordings: every part and every rank of one run.", show_default=False)]


def import_(
    raw: RawFiles,
    out: Annotated[Path, typer.Option("--out", "-o", help="Save the trace here; with several ranks, one file each.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or hub id of a tokenizer.", show_default="the model's, if available")
    ] = None,
    json: Json = False,
) -> None:
    """Convert a recording by `inflight-vllm` or another recorder into a trace that the page and `show` open, and check it."""
    recordings = read_raw(raw)
    given = named_tokenizer(tokenizer) if tokenizer else None
    opened = those_that_open((recording.name, partial(to_trace, recording, given)) for recording in recordings)
    ranks = Ranks.of(opened.traces, opened.refused)
    by_rank = {recording.rank: recording for recording in recordings}
    rows = []
    for rank, trace in ((rank.number, rank.trace) for rank in ranks.ranks):
        recording = by_rank[rank]
        path = out if len(recordings) == 1 else out.with_name(f"{out.stem}.rank{rank}{out.suffix}")
        trace.save(path)
        Trace.load(path)  # the rules of every trace apply: a file that breaks them is not passed on
        rows.append(_row(recording, trace, path))
    for fault in ranks.faults if ranks.count > 1 else recordings[0].faults:
        print_note(fault)
    if len(ranks.ranks) > 1:
        print_note(ALIGNMENTS[ranks.alignment])
    finish(rows, _print, json)


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print_line(
            f"{row['path']}: {row['engine']}, {row['steps']} steps, {row['requests']} requests, {row['tokens']} tokens, "
            f"{english(str(row['preemptions']) + ' [preemption|preemptions]')}."
        )


def _row(recording: Recording, trace: Trace, path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "engine": str(trace.header.engine),
        "rank": recording.rank,
        "steps": len(trace.events),
        "requests": len(trace.asked),
        "tokens": sum(len(event.tokens) for event in trace.events),
        "preemptions": sum(len(event.preempted) for event in trace.events),
        "complete": trace.complete,
        "faults": recording.faults,
    }
