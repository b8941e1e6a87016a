"""The packed pass of a policy that passes over requests without KV blocks: those behind them may still compute or join.

Decodes come first, then prompts that have begun, then those who wait. Running requests that were passed over then give way, the last of them
first, until there will be room for the others; they join the end of the queue, and nobody is admitted until somebody finishes. It is the rule
of transformers' continuous batching: `FIFOScheduler` and `OffloadingManager` (without CPU space) of transformers 5.23,
`generation/continuous_batching/scheduler.py` and `offloading_manager.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from core.scheduler.books import Books
from core.scheduler.plan import Plan
from core.scheduler.state import RequestState, RequestStatus
from core.trace.events import NOTHING_BINDS, Admitted, Limit, Stalled, Why


class _Starved(NamedTuple):
    """A running request that was passed over, and the blocks that it lacks."""

    state: RequestState
    lacks: int


def plan_passing_over(books: Books, in_flight: bool) -> Plan:
    """Plan the pass; if the plan is empty, only the requests that gave way have changed. in_flight: no request can give way in this step."""
    plan, starved, why = _pass(books)
    while not plan and not in_flight and _give_way(books, starved):
        plan, starved, why = _pass(books)
    if plan and not in_flight:
        _give_way(books, starved)
    if books.waiting.head():
        books.wait(_why(books, "recovery") if why is None or books.recovering else why)
    return plan


def _pass(books: Books) -> tuple[Plan, list[_Starved], Why | None]:
    """The plan, who was starved of blocks, and why the first of those who wait does so."""
    facts, pool, policy = books.facts, books.pool, books.policy
    facts.stalled.clear()
    facts.cut = "none"
    left, reads = books.token_budget, books.kv_reads
    scarce = pool.num_free / pool.num_blocks < policy.margin
    plan: Plan = []
    starved: list[_Starved] = []
    first: Why | None = None
    decoding = [s for s in books.running if not s.is_prefilling]
    over: Limit | None = None  # what has ended the search
    for state in [*decoding, *(s for s in books.running if s.is_prefilling), *books.waiting]:
        runs = state.status is RequestStatus.RUNNING
        if over is None and scarce and plan and (not runs or state.is_prefilling):
            over = "margin"
        count = min(state.num_pending, left)
        lacks = max(0, books.blocks_for(state.num_computed_tokens + count) - len(state.block_table.blocks))
        if over is not None:
            limit = over
        elif not runs and (books.recovering or not books.lanes.num_free):
            limit = "recovery" if books.recovering else "lanes"
        elif state.num_computed_tokens > reads:
            limit = "reads"
        else:
            limit = "blocks" if lacks > pool.num_free else "none"
        if limit != "none":
            why = _why(books, limit, state, left, reads, lacks)
            if runs:
                facts.stalled.append(Stalled(state.id, why))
                if limit == "blocks":
                    starved.append(_Starved(state, lacks))
            else:
                first = first or why
                if over is not None:
                    break
            continue
        cut = _why(books, "budget", state, left) if count < state.num_pending else NOTHING_BINDS
        if cut.limit == "budget":
            facts.cut = "budget"
        if not runs:
            books.start(state, ())
            facts.admitted.append(Admitted(state.id, state.held_lane, cut))
        books.grow(state, count)
        plan.append((state.held_lane, state, count))
        left, reads = left - count, reads - state.num_computed_tokens
        over = "budget" if not left else "reads" if reads <= 0 else "lanes" if len(plan) == books.lanes.count else None
    return plan, starved, first


def _give_way(books: Books, starved: list[_Starved]) -> bool:
    """Preempt the last of the starved until the others have the blocks that they lack; whether anybody gave way. One always goes on."""
    stay = list(starved)
    leave: list[RequestState] = []
    free = books.pool.num_free
    while stay and len(books.running) - len(leave) > 1 and sum(s.lacks for s in stay) > free:
        leave.append(stay.pop().state)
        free += len(leave[-1].block_table.blocks)
    gone = {state.id for state in leave}
    books.facts.stalled = [s for s in books.facts.stalled if s.request not in gone]
    for state in reversed(leave):
        books.preempt(state)
        books.recovering = True
    return bool(leave)


def _why(books: Books, limit: Limit, state: RequestState | None = None, left: int = 0, reads: int = 0, lacks: int = 0) -> Why:
    match limit:
        case "budget" if state:
            return Why("budget", left, state.num_pending, books.config.max_num_batched_tokens)
        case "reads" if state:
            return Why("reads", reads, state.num_computed_tokens, books.kv_reads)
        case "blocks":
            return Why("blocks", books.pool.num_free, lacks, books.pool.num_blocks)
        case "margin":
            return Why("margin", books.pool.num_free, int(books.policy.margin * books.pool.num_blocks), books.pool.num_blocks)
        case "lanes":
            return Why("lanes", 0, 1, books.lanes.count)
    return Why(limit, 0, 1, 1)
