"""Facts of one step."""

from __future__ import annotations

from visualizer.lessons.facts.fact import fact, positions_of
from visualizer.lessons.places import At


@fact
def step(at: At) -> int:
    return at.step


@fact
def rows(at: At) -> int:
    return at.event.passes[-1].rows


@fact
def width(at: At) -> int:
    return at.event.passes[-1].width


@fact
def positions(at: At) -> int:
    return sum(positions_of(p) for p in at.event.passes)


@fact
def tokens(at: At) -> int:
    """Real positions of the step, without padding."""
    return sum(p.tokens for p in at.event.passes)


@fact
def padding(at: At) -> int:
    return sum(p.padding for p in at.event.passes)


@fact
def pads_of_join(at: At) -> int:
    """(n − 1)(B − 1): what a prompt of n tokens costs the B − 1 rows beside it."""
    return (at.event.passes[-1].width - 1) * (at.event.passes[-1].rows - 1)


@fact
def beside(at: At) -> int:
    """Rows of the pass but one."""
    return at.event.passes[-1].rows - 1


@fact
def width_less_one(at: At) -> int:
    return at.event.passes[-1].width - 1


@fact
def cells(at: At) -> int:
    """Cells of the mask: queries × keys."""
    return at.trace.mask(at.step).num_cells


@fact
def allowed(at: At) -> int:
    """Cells of the mask that may be looked at."""
    return at.trace.mask(at.step).num_allowed


@fact
def blocked(at: At) -> int:
    mask = at.trace.mask(at.step)
    return mask.num_cells - mask.num_allowed


@fact
def running(at: At) -> int:
    return len(at.frame.lanes)


@fact
def waiting(at: At) -> int:
    return at.event.waiting.count


@fact
def decode_tokens(at: At) -> int:
    return at.event.budget.decode


@fact
def prefill_tokens(at: At) -> int:
    return at.event.budget.prefill


@fact
def budget_used(at: At) -> int:
    return at.event.budget.decode + at.event.budget.prefill


@fact
def budget_unused(at: At) -> int:
    return at.event.budget.unused


@fact
def budget_after_decodes(at: At) -> int:
    return at.config.max_num_batched_tokens - at.event.budget.decode


@fact
def decoding(at: At) -> int:
    return len({s.request for s in at.of("decode")})


@fact
def stalled(at: At) -> int:
    """Requests that hold a lane and compute nothing."""
    return len(at.event.stalled)


@fact
def finished_rows(at: At) -> int:
    return sum(len(p.finished_rows) for p in at.event.passes)


@fact
def blocks_used(at: At) -> int:
    return at.event.kv.used


@fact
def blocks_free(at: At) -> int:
    return at.event.kv.total - at.event.kv.used


@fact
def tokens_lost(at: At) -> int:
    return sum(p.tokens_lost for p in at.event.preempted)
