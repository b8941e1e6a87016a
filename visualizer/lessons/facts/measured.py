"""Facts that were measured: the cost of a step, and what a leak in the mask does."""

from __future__ import annotations

import json
from functools import cache as remembered
from typing import Any

from core.assets import ASSETS
from visualizer.lessons.facts.fact import fact
from visualizer.lessons.places import At


@fact
def batch_cost(at: At) -> float:
    """How many times as long a step of the most tokens takes as a step of one, as the recorded cost curve measured it."""
    points = _measured()["cost_curve"]["by_tokens"]
    return points[-1]["median_s"] / points[0]["median_s"]


@fact
def batch_tokens(at: At) -> int:
    return _measured()["cost_curve"]["by_tokens"][-1]["tokens"]


@fact
def leak_differing(at: At) -> int:
    return _measured()["equivalence"]["leak"]["differing_tokens"]


@fact
def honest_differing(at: At) -> int:
    return _measured()["equivalence"]["honest"]["differing_tokens"]


@fact
def compared_tokens(at: At) -> int:
    return _measured()["equivalence"]["honest"]["tokens"]


@remembered
def _measured() -> dict[str, Any]:
    """The recorded comparison on the article's six requests."""
    return json.loads((ASSETS / "comparisons" / "gpt2-six" / "comparison.json").read_text(encoding="utf-8"))
