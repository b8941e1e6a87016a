"""`check`: does a trace hold?"""

from __future__ import annotations

import typer

from core.cli.options import Json, TraceFile
from core.cli.output import line, print_json, sentence
from core.errors import InflightError, InvalidTrace
from core.trace.trace import Trace


def check(trace: TraceFile, json: Json = False) -> None:
    """Check a trace against its checksums and against every rule that a run obeys; exit code 1 and the line if it fails."""
    if not trace.is_file():
        raise InflightError(f"There is no file {trace}.")
    try:
        found = Trace.load(trace)
    except InvalidTrace as error:
        if json:
            print_json({"valid": False, "line": error.line, "fault": str(error)})
        else:
            sentence(f"{trace.name}, {error}" if error.line else str(error))
        raise typer.Exit(1) from None
    tokens = sum(len(event.sampled) for event in found.events)
    if json:
        print_json({"valid": True, "complete": found.complete, "steps": len(found.events), "tokens": tokens})
    else:
        cut = "" if found.complete else "; the run was cut short"
        line(f"{trace.name} holds: {len(found.events)} steps, {tokens} tokens, {len(found.prompts)} requests{cut}.")
