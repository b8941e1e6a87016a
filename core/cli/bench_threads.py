"""`bench threads`: how the threads of a run should wait."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from core.bench.threads import CONDITIONS, measure, to_json
from core.cli.options import Json, Out, Quick, writable
from core.cli.output import Work, finish, line, seconds, table
from core.threads import WAYS


def threads(
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")] = 5,
    quick: Quick = False,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure how threads should wait: alone on the machine, beside a busy neighbour, and among other runs. Wants a quiet machine."""
    writable(out)
    with Work("measurements", len(WAYS) * len(CONDITIONS) * (repeats + 1)) as work:
        found = measure(repeats, quick, work.update)
    finish(to_json(found) | {"repeats": repeats, "quick": quick}, _print, out, json)


def _print(data: dict[str, Any]) -> None:
    names = [condition.name for condition in CONDITIONS]
    rows = [(way, *(seconds(of[name]) for name in names), f"{data['worst'][way]:.2f}×") for way, of in data["seconds"].items()]
    table(("threads", *names, "at worst"), rows, right=(*names, "at worst"))
    line("At worst: against the best way under the same condition. Runs are of eight mixed requests; all have ended.")
    best, serving = data["best"], data["serving"]
    line(f"Best where it fares worst: {best}. What serves (core/threads.py) uses {'it' if best == serving else serving}.")
