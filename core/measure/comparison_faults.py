"""What a comparison on record contradicts: what is said of its rounds must follow from their times, and what is said of a contender from the run
that it left behind. Knows no files. Rounds that left no run behind are believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.measure.compare import Comparison, first_differences, nearest_to_median

_TIMED = (
    "wall_s",
    "output_tok_s",
    "total_tok_s",
    "requests_per_s",
    "ttft_s",
    "itl_s",
    "tpot_s",
    "e2e_s",
    "queue_s",
    "time_s",
    "goodput",
)
_AROUND = 0.05, 0.1  # seconds, and share of the run, by which a stopwatch may stop later than the last step


def fault_of(comparison: Comparison, told: Mapping[str, Any]) -> str | None:
    """What is wrong, as a sentence without its subject and full stop. told: what the record says beside, as `Comparison.to_json` has it."""
    follows = json.loads(json.dumps(comparison.to_json()))
    for name in ("baseline", "fastest", "repeats", "outputs_identical"):
        if told.get(name) != follows[name]:
            return f"says {name} otherwise than its rounds do"
    for name, entry in follows["policies"].items():
        if wrong := [
            fact for fact in ("wall_s", "ratio_to_baseline", "verdict") if told["policies"][name].get(fact) != entry[fact]
        ]:
            return f"says {wrong[0]} of {name} otherwise than its rounds do"
    for name, run in comparison.runs.items():
        if run.trace is not None and (fault := _fault_of_run(comparison, name)):
            return f"{fault} of {name}"
    if comparison.outputs_identical:
        traced = [(name, run) for name, run in comparison.runs.items() if run.trace is not None]
        for name, run in traced[1:]:
            if first_differences(traced[0][1], run, name):
                return f"says that outputs are identical, and those of {name} differ"
    return None


def _fault_of_run(comparison: Comparison, name: str) -> str | None:
    run, walls = comparison.runs[name], comparison.walls[name]
    assert run.trace is not None
    nearest = nearest_to_median(walls)
    if comparison.shown.get(name, nearest + 1) != nearest + 1:
        return "does not show the round nearest to the median"
    seconds, late = run.metrics["wall_s"], walls[nearest]
    if not seconds <= late + 1e-5 or not late <= seconds + max(_AROUND[0], _AROUND[1] * seconds):
        return f"has a round of {late:g} s and a run of {seconds:g} s"
    if run.trace.header.counts_steps and not run.trace.header.is_asynchronous:
        own = {key: value for key, value in run.metrics.items() if key not in _TIMED}
        if wrong := [key for key, value in own.items() if comparison.medians[name].get(key) != value]:
            return f"has {wrong[0]} otherwise than the run"
    return None
