"""Reasons that another engine does not record, inferred by one rule, which both the conversion and the checks use."""

from __future__ import annotations

from core.config import EngineConfig
from core.trace.events import NOTHING_BINDS, StepEvent, Why
from core.trace.run_state import RunState

REASONS = "lanes if all are taken, else the token budget if it is spent, else KV blocks"
"""The rule in words, as the header of a trace names it."""


def why_admitted(length: int, missing: int, budget: int) -> Why:
    """What limits the first chunk, of `length` tokens, of a request with `missing` tokens to compute."""
    return Why("budget", length, missing, budget) if length < missing else NOTHING_BINDS


def why_waiting(tokens: int, lanes: tuple[int, int], budget: tuple[int, int], blocks: tuple[int, int], block_size: int) -> Why:
    """Why the head of the queue, with `tokens` to compute, waits. lanes, budget, blocks: (free, total) of each."""
    if lanes[0] <= 0:
        return Why("lanes", 0, 1, lanes[1])
    if budget[0] <= 0:
        return Why("budget", 0, tokens, budget[1])
    return Why("blocks", blocks[0], -(-tokens // block_size), blocks[1])


def why_stalled(budget: tuple[int, int], blocks: tuple[int, int]) -> Why:
    """Why a running request computes nothing."""
    return Why("budget", 0, 1, budget[1]) if budget[0] <= 0 else Why("blocks", blocks[0], 1, blocks[1])


def inferred_reasons(event: StepEvent, state: RunState, config: EngineConfig, num_blocks: int) -> list[Why | None]:
    """The reasons of a step: for the head of the queue, for admitted requests, for stalled ones. state: while its passes run."""
    spent = event.budget.decode + event.budget.prefill
    budget = (event.budget.limit or 0) - spent, event.budget.limit or 0
    blocks = num_blocks - event.kv.used, num_blocks
    lanes = config.num_lanes - len(state.lanes), config.num_lanes
    head, chunks = event.waiting.request, {s.request: s for s in event.segments}
    reasons = [None if head is None else why_waiting(state.num_tokens[head], lanes, budget, blocks, config.block_size)]
    for request in [a.request for a in event.admitted]:
        chunk = chunks.get(request)
        reasons.append(why_admitted(chunk.length, state.num_tokens[request] - chunk.start, budget[1]) if chunk else None)
    return [*reasons, *[why_stalled(budget, blocks) for _ in event.stalled]]
