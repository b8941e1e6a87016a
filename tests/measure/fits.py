"""`python tests/measure/fits.py`: how far a cost fitted to one recorded run is off for another one.
Runs no model: it reads recordings.

Of the runs of one model on one machine, each is fitted and asked for the total of every other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.cli.options import Json
from core.cli.output import ProgressReporter, finish, percent, table
from core.config import DEFAULT_MODEL, SMOLLM2
from core.errors import InflightError
from core.recorders.convert import open_run
from core.simulate.fitted import fit, measured, time_between_steps
from measure import script

ROOT = Path(__file__).resolve().parents[2]

WITHIN = 0.95  # of a run's passes have to lie within what was measured
OURS = sorted((ROOT / "assets/traces").glob("*.jsonl"))
VLLM = [
    ROOT / f"tests/data/vllm-http/{name}.raw.jsonl.gz"
    for name in ("async", "priority-pressure", "long-prefill", "reset-running", "true-async")
]


def total_errors(
    files: Iterable[Path], ours: bool, model: str = DEFAULT_MODEL
) -> list[tuple[float, bool]]:
    """For each pair of runs of a model in float32: by what share the other's total is off, and
    whether it lies within what was measured.
    """
    runs = [
        run
        for run in map(open_run, files)
        if (run.header.model.name, run.header.dtype, run.header.engine is None)
        == (model, "float32", ours)
    ]
    found = []
    for run in runs:
        try:
            cost = fit(run)
        except InflightError:
            continue  # too few passes
        for other in runs:
            if other is run:
                continue
            passes = measured(other.events, cost.kv_bytes_per_token)
            took = sum(p.seconds for p in passes) + time_between_steps(other.events) * len(
                {p.step for p in passes}
            )
            within = sum(not cost.beyond(p.load) for p in passes) >= WITHIN * len(passes)
            found.append((sum(cost.seconds(p.load) for p in passes) / took - 1, within))
    return found


def said(errors: list[float]) -> dict[str, float]:
    sizes = sorted(map(abs, errors))
    return {
        "pairs": len(sizes),
        "median": median(sizes),
        "nine_in_ten": sizes[int(0.9 * len(sizes))],
        "worst": sizes[-1],
    }


def fits(json: Json = False) -> None:
    """Fit a cost to each of some recorded runs, and say how far it is off for the total time of
    each other one.
    """
    rows = {}
    kinds = (
        ("ours", OURS, True),
        ("ours, SmolLM2", OURS, True, SMOLLM2),
        ("vLLM under HTTP traffic", VLLM, False),
    )
    with ProgressReporter("kinds of runs", len(kinds)) as work:
        for done, (name, *runs) in enumerate(kinds):
            work.update(done, name)
            found = total_errors(*runs)
            rows[name] = said([error for error, _ in found])
            rows[f"{name}, where {WITHIN:.0%} of the passes were within what was measured"] = said(
                [e for e, within in found if within]
            )

    def print_rows(data: dict[str, dict[str, float]]) -> None:
        columns = ("runs", "pairs", "median", "nine in ten", "worst")
        table(
            columns,
            [(n, str(r["pairs"]), *map(percent, list(r.values())[1:])) for n, r in data.items()],
            right=columns[1:],
        )

    finish(rows, print_rows, json)


if __name__ == "__main__":
    script(fits)
