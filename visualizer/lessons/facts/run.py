"""Facts of a whole run."""

from __future__ import annotations

from core.measure.metrics import metrics
from visualizer.lessons.facts.fact import Share, fact, positions_of
from visualizer.lessons.places import At


@fact
def steps(at: At) -> int:
    return len(at.trace.events)


@fact
def requests(at: At) -> int:
    return len(at.trace.prompts)


@fact
def lanes(at: At) -> int:
    return at.config.num_lanes


@fact
def budget(at: At) -> int:
    return at.config.max_num_batched_tokens


@fact
def block_size(at: At) -> int:
    return at.config.block_size


@fact
def blocks(at: At) -> int:
    """In the whole pool."""
    return at.event.kv.total


@fact
def output_tokens(at: At) -> int:
    return sum(len(e.sampled) for e in at.trace.events)


@fact
def padding_share(at: At) -> Share:
    """Padding in all that the run computed."""
    passes = [p for e in at.trace.events for p in e.passes]
    return Share(sum(p.padding for p in passes) / sum(map(positions_of, passes)))


@fact
def lane_steps(at: At) -> int:
    return metrics(at.trace)["lane_steps"]["total"]


@fact
def wasted_lane_steps(at: At) -> int:
    counts = metrics(at.trace)["lane_steps"]
    return counts["total"] - counts["useful"]


@fact
def occupancy(at: At) -> Share:
    counts = metrics(at.trace)["lane_steps"]
    return Share(counts["useful"] / counts["total"])


@fact
def preemptions(at: At) -> int:
    return sum(len(e.preempted) for e in at.trace.events)


@fact
def recomputed(at: At) -> int:
    """Positions computed again after preemptions."""
    return metrics(at.trace)["tokens_recomputed"]


@fact
def hits(at: At) -> int:
    """Positions found in the prefix cache."""
    return sum(h.num_cached_tokens for e in at.trace.events for h in e.kv.prefix_hits)


@fact
def shared_prefix(at: At) -> int:
    """Tokens with which all prompts begin alike."""
    prompts = list(at.trace.prompts.values())
    return next((i for i, ids in enumerate(zip(*prompts, strict=False)) if len(set(ids)) > 1), min(map(len, prompts)))


@fact
def all_positions(at: At) -> int:
    """Positions that the run computes, padding included."""
    return sum(positions_of(p) for e in at.trace.events for p in e.passes)


@fact
def widest_step(at: At) -> int:
    """Most positions that a single step computes."""
    return max(sum(positions_of(p) for p in e.passes) for e in at.trace.events)
