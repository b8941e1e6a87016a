"""A recorded comparison that was altered by hand is refused: its rounds, what is said of them, and
the runs that they left behind.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.measure.compare import Comparison, fault_of
from worlds.comparison import measured

Told = dict[str, Any]


@pytest.fixture(scope="module")
def real() -> Comparison:
    return measured()


def told_of(comparison: Comparison) -> Told:
    return json.loads(json.dumps(comparison.to_json()))


def entry(told: Told) -> Any:
    return told["policies"]["continuous"]


SAID: dict[str, tuple[Callable[[Told], Any], str]] = {
    "another winner": (lambda t: t.update(fastest="nobody"), "fastest"),
    "more rounds": (lambda t: t.update(repeats=50), "repeats"),
    "outputs that differ": (lambda t: t.update(outputs_identical=False), "outputs_identical"),
    "a better median": (lambda t: entry(t)["wall_s"].update(median=1e-9), "wall_s of continuous"),
    "a better ratio": (
        lambda t: entry(t)["ratio_to_baseline"].update(median=9.9),
        "ratio_to_baseline of continuous",
    ),
    "a surer verdict": (lambda t: entry(t)["verdict"].update(chance=0.0), "verdict of continuous"),
}


@pytest.mark.parametrize("lie", SAID)
def test_what_is_said_follows_from_the_rounds(real: Comparison, lie: str) -> None:
    told = told_of(real)
    assert fault_of(real, told) is None
    tell, fact = SAID[lie]
    tell(told)
    assert fact in str(fault_of(real, told))


def slower(comparison: Comparison) -> None:
    comparison.walls["static"] = [wall + 1 for wall in comparison.walls["static"]]


def quicker(comparison: Comparison) -> None:
    comparison.walls["continuous"] = [wall / 10 for wall in comparison.walls["continuous"]]


def another_round(comparison: Comparison) -> None:
    comparison.shown["static"] = comparison.shown["static"] % 3 + 1


def less_waste(comparison: Comparison) -> None:
    comparison.medians["static"] = comparison.medians["static"] | {"padding_waste": 0.0}


def another_token(comparison: Comparison) -> None:
    run = comparison.runs["continuous"]
    request, tokens = next(iter(run.outputs.items()))
    comparison.runs["continuous"] = replace(
        run, outputs={**run.outputs, request: [tokens[0] + 1, *tokens[1:]]}
    )


@pytest.mark.parametrize("lie", [slower, quicker, another_round, less_waste, another_token])
def test_what_is_said_of_a_contender_is_what_its_run_shows(
    real: Comparison, lie: Callable[[Comparison], None]
) -> None:
    forged = replace(
        real,
        walls=dict(real.walls),
        runs=dict(real.runs),
        medians=copy.deepcopy(real.medians),
        shown=dict(real.shown),
    )
    lie(forged)
    assert fault_of(forged, told_of(forged)) is not None


def test_a_mean_may_differ_in_its_last_digit_and_no_more(real: Comparison) -> None:
    """Pythons before 3.12 add the same numbers to another one."""
    told, medians = told_of(real), copy.deepcopy(real.medians)
    metrics = medians["static"]
    metrics["kv_use"] = math.nextafter(metrics["kv_use"], 1)
    assert fault_of(replace(real, medians=medians), told) is None
    metrics["kv_use"] += 1e-9
    assert "kv_use otherwise than the run of static" in str(
        fault_of(replace(real, medians=medians), told)
    )
