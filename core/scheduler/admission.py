"""Admission: who joins, and what keeps the head of the waiting queue from joining. Looks at the head alone, under every order."""

from __future__ import annotations

from core.scheduler.books import Books
from core.scheduler.plan import Plan
from core.scheduler.state import RequestState
from core.trace.events import NOTHING_BINDS, Admitted, Why


def admit(books: Books, left: int, plan: Plan, growing: int = 0) -> int:
    """Let waiting requests into free lanes while lanes, budget and blocks allow; the budget that is left.

    growing: blocks that running requests still need in this step.
    """
    while state := books.waiting.head():
        why = _no_lane(books)
        matched = books.pool.match(state.token_ids) if books.config.prefix_caching and not why else ()
        why = why or _no_room(books, state, matched, left, growing)
        if why:
            books.wait(why)
            break
        books.start(state, matched)
        left -= _first_chunk(books, state, left, plan)
    return left


def _no_lane(books: Books) -> Why | None:
    """What keeps anybody from being admitted, if anything."""
    if not books.lanes.num_free:
        return Why("lanes", 0, 1, books.lanes.count)
    if books.policy.one_prefill and not all(s.is_decoding for s in books.running):
        return Why("prefill", 0, 1, 1)
    return None


def _no_room(books: Books, state: RequestState, matched: tuple[int, ...], left: int, growing: int) -> Why | None:
    """The limit, if any, that keeps the head of the queue waiting though a lane is free. matched: its cached blocks."""
    config, pool = books.config, books.pool
    budget = config.max_num_batched_tokens
    pending = state.num_tokens - len(matched) * config.block_size
    whole = not books.cuts_prompts and pending <= budget  # a longer recomputation has to be cut all the same
    if left <= 0 or (whole and left < pending):
        return Why("budget", max(0, left), pending, budget)
    if books.policy.reserve == "output":
        need = books.blocks_for(state.max_num_tokens)
        free = pool.num_blocks - sum(books.blocks_for(s.max_num_tokens) for s in books.lanes)
    else:
        tokens = state.num_tokens if books.policy.reserve == "prompt" else state.num_tokens - pending + min(pending, left)
        need = books.blocks_for(tokens) - len(matched)
        kept = int(books.policy.watermark * (pool.num_blocks + 1)) if books.running else 0  # vLLM counts its null block, too
        free = pool.num_free - pool.num_unused(matched) - growing - kept
        if books.facts.preempted or any(s.why.limit == "blocks" for s in books.facts.stalled):
            free = 0  # blocks are short for those who run already
    return Why("blocks", max(0, free), need, pool.num_blocks) if need > free else None


def _first_chunk(books: Books, state: RequestState, left: int, plan: Plan) -> int:
    """Schedule what fits of a request that has just been admitted; the tokens that takes."""
    count, why = state.num_pending, NOTHING_BINDS
    if count > left:
        why = Why("budget", left, count, books.config.max_num_batched_tokens)
        count, books.facts.cut = left, "budget"
    books.grow(state, count)
    if books.config.prefix_caching:
        books.register(state, state.num_computed_tokens, state.num_computed_tokens + count)
    plan.append((state.held_lane, state, count))
    books.facts.admitted.append(Admitted(state.id, state.held_lane, why))
    return count
