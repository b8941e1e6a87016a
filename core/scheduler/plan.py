"""What one pass will compute: the next tokens of running requests, chosen within budget and blocks, frozen in lane order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from core.scheduler.books import Books
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import RequestState
from core.trace.events import Stalled, Why
from core.workload.request import Phase

Plan = list[tuple[int, RequestState, int]]  # lane, request, tokens; one entry a lane, so that sorting never looks further


def go_on(books: Books, states: Sequence[RequestState], left: int, plan: Plan) -> int:
    """Give each running request its next tokens, first come, first served; the budget that is left."""
    size, facts = books.config.block_size, books.facts
    for state in states:
        count = pending = len(state.token_ids) - state.num_computed_tokens
        if count > left:
            count, facts.cut = left, "budget"
            if not left:
                facts.stalled.append(Stalled(state.id, Why("budget", 0, pending, books.config.max_num_batched_tokens)))
                continue
        room = len(state.block_table.blocks) * size - state.num_computed_tokens
        if count > room:
            room += books.pool.num_free * size
            if not room:
                facts.stalled.append(Stalled(state.id, Why("blocks", 0, 1, books.pool.num_blocks)))
                continue
            if count > room:
                count, facts.cut = room, "blocks"
            books.grow(state, count)
        if books.config.prefix_caching:
            books.register(state, state.num_computed_tokens, state.num_computed_tokens + count)
        plan.append((state.held_lane, state, count))
        left -= count
    return left


def freeze(books: Books, layout: Literal["packed", "padded"], plan: Plan) -> SchedulerOutput:
    """A plan in lane order, counted in the facts."""
    scheduled, decode_tokens = [], 0
    for lane, state, count in sorted(plan):
        token_ids, start = state.token_ids, state.num_computed_tokens
        end, length = start + count, len(token_ids)
        phase: Phase = "prefill"
        if count == 1 and end == length and state.is_decoding:
            phase = "decode"
            decode_tokens += 1
        tokens = tuple(token_ids[start:end])
        samples = end == length and count > 0
        entry = ScheduledRequest(state.request.id, lane, phase, tokens, start, state.block_table, samples)
        if samples and state.request.sampling.looks_back:
            prompt = state.prompt_token_ids
            entry = entry._replace(prompt=prompt, generated=tuple(token_ids[len(prompt) :]))
        scheduled.append(entry)
    facts = books.facts
    facts.decode_tokens += decode_tokens
    facts.prefill_tokens += sum([entry[2] for entry in plan]) - decode_tokens
    facts.blocks_used = max(facts.blocks_used, books.pool.num_used)
    return SchedulerOutput(layout, tuple(scheduled))
