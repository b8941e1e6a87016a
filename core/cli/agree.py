"""`agree`: does our scheduler decide as the recorded one did?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.cli.options import Json
from core.cli.output import line, print_json
from core.errors import InflightError
from core.measure.agree import agree as replayed


def agree(
    workloads: Annotated[Path, typer.Argument(help="Recorded workloads, .jsonl or .jsonl.gz.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Replay recorded workloads of another engine's scheduler on ours, decision by decision; exit code 1 if any differs."""
    if not workloads.is_file():
        raise InflightError(f"There is no file {workloads}.")
    found = replayed(workloads)
    if json:
        print_json(found.to_json())
    else:
        line(
            f"{found.identical:,} of {found.workloads:,} workloads are decided alike in every step; the other engine took {found.steps:,} steps."
        )
        for kind, count in found.first_differences.items():
            line(f"    {count:,} differ first in: {kind}")
    if found.identical < found.workloads:
        raise typer.Exit(1)
