"""`python tests/measure/plans.py`: what `plan` predicts, beside what was measured.

Of each comparison that ships, every run is planned for the policies of the others, whose requests
are the same and came at the same times, and the predictions are held against those runs. So is
every recording of vLLM under the same traffic. Of other recordings their own setting is simulated.
Runs no model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.account.request_times import SLOs
from core.cli.options import Json
from core.cli.output import ProgressReporter, finish, percent, print_line, table
from core.errors import InflightError
from core.measure.plan import numbers_of, plan
from core.recorders.convert import open_run
from core.trace.trace import Trace
from measure import script

ROOT = Path(__file__).resolve().parents[2]
APART = 0.2  # two settings that are this much apart, as measured, have to be ranked right
NEAR = 0.15
NUMBERS = ("ttft_s p50", "ttft_s p99", "itl_s p50", "e2e_s p50", "e2e_s p99")


class Prediction(NamedTuple):
    """of: what was predicted, from: by what. errors: by number, relative; None where nothing was
    measured. e2e: at p50, predicted and measured.
    """

    of: str
    by: str
    errors: dict[str, float | None]
    e2e: tuple[float, float]


def number(numbers: dict[str, Any], name: str) -> float | None:
    key, share = name.split()
    return numbers[key][share]


def errors(predicted: dict[str, Any], measured: dict[str, Any]) -> dict[str, float | None]:
    """By what share each number is predicted too long."""
    pairs = {name: (number(predicted, name), number(measured, name)) for name in NUMBERS}
    return {n: mine / real - 1 if mine and real else None for n, (mine, real) in pairs.items()}


def compared(folder: Path) -> Iterator[Prediction]:
    """Every run of a comparison of ours, predicted by each of the others."""
    runs = {
        path.name.partition("-")[2].removesuffix(".jsonl.gz"): Trace.load(path)
        for path in sorted(folder.glob("*.jsonl.gz"))
    }
    ours = {
        name: run
        for name, run in runs.items()
        if run.header.engine is None
        and (run.header.arrival_unit == "s" or not any(r.arrival for r in run.workload))
    }
    for by, of in permutations(ours, 2):
        target = ours[of].config
        if {ours[by].config.max_num_seqs, ours[by].config.block_size} != {
            target.max_num_seqs,
            target.block_size,
        }:
            continue
        try:
            made = plan(
                ours[by],
                policies=[target.policy],
                budgets=[target.max_num_batched_tokens],
                blocks=[ours[of].header.num_blocks],
            )
        except InflightError:
            continue
        found = next((p for p in made.points if p.numbers), made.again)
        measured = numbers_of(ours[of], frozenset(ours[of].asked), SLOs())
        assert found.numbers is not None
        e2e = found.numbers["e2e_s"]["p50"], measured["e2e_s"]["p50"]
        yield Prediction(f"{folder.name}: {of}", by, errors(found.numbers, measured), e2e)


def settings() -> Iterator[Prediction]:
    """Recordings of vLLM that had the same traffic, each predicted by each of the others."""
    runs = {
        path.name.partition(".")[0]: open_run(path)
        for path in sorted((ROOT / "tests/data/vllm-settings").glob("*.raw.jsonl.gz"))
    }
    measured = {name: plan(run).measured.numbers for name, run in runs.items()}
    for by, of in permutations(runs, 2):
        model, target = of.rpartition("-lanes")[0], runs[of].config
        if by.rpartition("-lanes")[0] != model:
            continue
        made = plan(runs[by], lanes=[target.max_num_seqs], budgets=[target.max_num_batched_tokens])
        # another run of the same setting is predicted too: no prediction can be nearer
        numbers, real = (*made.points, made.again)[0].numbers, measured[of]
        assert numbers is not None and real is not None
        e2e = numbers["e2e_s"]["p50"], real["e2e_s"]["p50"]
        yield Prediction(f"{model} by vLLM: {of}", by, errors(numbers, real), e2e)


def recorded() -> Iterator[Prediction]:
    """Each recording of vLLM, its own setting simulated."""
    for path in sorted((ROOT / "tests/data/vllm-http").glob("*.raw.jsonl.gz")):
        made = plan(open_run(path))
        ours, theirs = made.again.numbers, made.measured.numbers
        assert ours is not None and theirs is not None
        e2e = ours["e2e_s"]["p50"], theirs["e2e_s"]["p50"]
        name = path.name.partition(".")[0]
        yield Prediction(f"{name} by vLLM: its own setting", "itself", made.errors, e2e)


def ranked(found: list[Prediction]) -> tuple[int, int]:
    """Of the pairs of settings that one run predicts, and that are apart as measured: how many are
    ranked as they were, by E2E at p50, and how many there are.
    """
    right = total = 0
    for one, other in combinations(found, 2):
        same = one.by == other.by and one.of.partition(":")[0] == other.of.partition(":")[0]
        low, high = sorted((one.e2e[1], other.e2e[1]))
        if not same or high < low * (1 + APART):
            continue
        total += 1
        right += (one.e2e[0] < other.e2e[0]) == (one.e2e[1] < other.e2e[1])
    return right, total


def plans(json: Json = False) -> None:
    """Hold what `plan` predicts against what was measured."""
    folders = [p.parent for p in sorted((ROOT / "assets/comparisons").glob("*/comparison.json"))]
    with ProgressReporter("comparisons", len(folders) + 1) as work:
        found = []
        for n, folder in enumerate(folders):
            work.update(n, folder.name)
            found += compared(folder)
        work.update(len(folders), "vLLM")
        kinds = {"of our own, held out": found}
        for one in settings():
            kinds.setdefault(f"of {one.of.partition(':')[0]}, held out", []).append(one)
        kinds["of vLLM, of its own setting"] = list(recorded())
    data = {
        "schema": "plans/2",
        "predictions": {kind: [one._asdict() for one in some] for kind, some in kinds.items()},
        "ranked": {kind: ranked(some) for kind, some in kinds.items()},
    }

    def show(_: object) -> None:
        every = [one for some in kinds.values() for one in some]
        rows = [(p.of, p.by, *(percent(p.errors[name]) for name in NUMBERS)) for p in every]
        table(("predicted", "by", *NUMBERS), rows, right=NUMBERS)
        for kind, some in kinds.items():
            parts = [
                f"{name} {percent(median(off))} in the median, {sum(e <= NEAR for e in off)} of"
                f" {len(off)} within {percent(NEAR)}"
                for name in NUMBERS
                if (off := [abs(e) for p in some if (e := p.errors[name]) is not None])
            ]
            right, total = ranked(some)
            print_line(
                f"{len(some)} {kind}: {'; '.join(parts)}; {right} of {total} pairs that are"
                f" {percent(APART)} apart are ranked right."
            )

    finish(data, show, json)


if __name__ == "__main__":
    script(plans)
