"""Facts about a run of another engine: how far ours decides as it does."""

from __future__ import annotations

from functools import cache as remembered

from core.measure.divergence import divergence
from core.trace.trace import Trace
from visualizer.documents.comparison_files import RECORDED, load
from visualizer.lessons.facts.fact import fact
from visualizer.lessons.places import At


@fact
def decided_alike(at: At) -> int:
    """Steps before the first that our engine decides otherwise, under the same limits."""
    found = divergence(_ours(at.trace.header.workload), at.trace)
    return len(at.trace.events) if found is None else found.step


@remembered
def _ours(workload: str) -> Trace:
    """Our engine's run of a workload beside the other engines."""
    ours = load(RECORDED / f"engines-{workload}").comparison.runs["continuous"].trace
    assert ours is not None
    return ours
