"""Facts about a run of another engine: how far ours decides as it does."""

from __future__ import annotations

from core.measure.divergence import divergence
from visualizer.documents.comparison_files import RECORDED, load
from visualizer.lessons.facts.fact import fact
from visualizer.lessons.places import At


@fact
def decided_alike(at: At) -> int:
    """Steps before the first that our engine decides otherwise, under the same limits."""
    comparison = load(RECORDED / f"engines-{at.trace.header.workload}").comparison
    ours = comparison.runs["continuous"].trace
    assert ours is not None
    found = divergence(ours, at.trace)
    return len(at.trace.events) if found is None else found.step
