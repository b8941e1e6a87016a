"""What other engines do not record and is inferred: lanes, the queue and reasons, each by one rule
that both the conversion and the checks use.
"""

from collections.abc import Collection, Sequence
from itertools import count

from core.config import EngineConfig
from core.policy import Policy, RecordedPolicy
from core.trace.events import NOTHING_BINDS, UNRECORDED, LimitReached, StepEvent
from core.trace.header import GroupFacts, Header
from core.trace.run_state import RunState

_LANES = (
    "the lowest lane that is free, in order of admission: the engine numbers rows anew in every"
    " pass"
)
_WAITING = (
    "who is next and how many wait is recorded; the order of the others is inferred: new requests"
    " join the end, preempted ones the head"
)
_BY_PRIORITY = (
    "the lowest priority first, then whoever came first, as recorded for each request; who is next"
    " and how many wait is recorded, too"
)
_BY_SNAPSHOTS = (
    "who is next and how many wait is recorded; the order of the others is that of the latest"
    " snapshot of the queue, with new requests at the end and preempted ones at the head: by what"
    " the engine orders them is not recorded"
)
_REQUEUED = "new requests join the end, and so do preempted ones"
_REASONS = (
    "lanes if all are taken, else the token budget if it is spent, else KV blocks if fewer are free"
    " than the request needs; else why it waits, stalls or is cut is not recorded"
)


def inferred_by(policy: Policy) -> dict[str, str]:
    """The rules, by what each infers, as a header states them."""
    return {"lanes": _LANES, "waiting": _queue(policy), "reasons": _REASONS}


def _queue(policy: Policy) -> str:
    if policy.order_by == "priority" and not isinstance(policy, RecordedPolicy):
        return _BY_PRIORITY
    if policy.order_by != "arrival":
        return _BY_SNAPSHOTS
    return _REQUEUED if policy.requeue else _WAITING


def lowest_free(lanes: Collection[int]) -> int:
    """The lane that the next request takes. lanes: those that are taken."""
    return next(lane for lane in count() if lane not in lanes)


def why_admitted(
    length: int, missing: int, budget: tuple[int, int], longest: int | None
) -> LimitReached:
    """What limits the first chunk, of `length` tokens, of a request with `missing` tokens to
    compute. budget: (left after the step, total). longest: the longest chunk that the engine
    computes beside other requests, None if that is not recorded.
    """
    if length >= missing:
        return NOTHING_BINDS
    if budget[0] <= 0:
        return LimitReached("budget", length, missing, budget[1])
    if longest and length == longest:
        return LimitReached("chunk", longest, missing, longest)
    return UNRECORDED


def why_waiting(
    tokens: int,
    lanes: tuple[int, int],
    budget: tuple[int, int],
    blocks: tuple[int, int],
    config: EngineConfig,
    groups: Sequence[GroupFacts],
    alone: bool,
) -> LimitReached:
    """Why the head of the queue, with `tokens` to compute, waits. lanes, budget, blocks: (free,
    total) of each. groups: of the KV cache. alone: whether no request runs.
    """
    if lanes[0] <= 0:
        return LimitReached("lanes", 0, 1, lanes[1])
    if budget[0] <= 0:
        return LimitReached("budget", 0, tokens, budget[1])
    first = tokens if config.policy.reserve == "prompt" else min(tokens, budget[0])
    need = sum([group.blocks_for(first, config.block_size) for group in groups])
    kept = 0 if alone else int(config.policy.watermark * (blocks[1] + 1))
    if need > (free := blocks[0] - kept):
        return LimitReached("blocks", max(0, free), need, blocks[1])
    return UNRECORDED


def why_stalled(budget: tuple[int, int], blocks: tuple[int, int], gives_way: bool) -> LimitReached:
    """Why a running request computes nothing. gives_way: whether a request was preempted in this
    step, or requests without a free block are skipped.
    """
    if budget[0] <= 0:
        return LimitReached("budget", 0, 1, budget[1])
    return LimitReached("blocks", 0, 1, blocks[1]) if blocks[0] <= 0 and gives_way else UNRECORDED


def inferred_reasons(
    event: StepEvent, state: RunState, header: Header
) -> list[LimitReached | None]:
    """The inferred reasons: of the head of the queue, of each admitted request, and of each stalled
    one. state: while the passes run.
    """
    config, spent = header.config, event.budget.decode + event.budget.prefill
    budget = max(0, (event.budget.limit or 0) - spent), event.budget.limit or 0
    blocks = header.num_blocks - event.kv.used, header.num_blocks
    lanes = config.num_lanes - len(state.lanes), config.num_lanes
    head, chunks = event.waiting.request, {s.request: s for s in event.segments}
    groups, is_alone = header.groups, not state.lanes
    reasons: list[LimitReached | None] = [None]
    if head is not None:
        tokens = state.num_tokens[head]
        reasons = [why_waiting(tokens, lanes, budget, blocks, config, groups, is_alone)]
    longest = header.engine.long_prefill_token_threshold if header.engine else None
    for request in [a.request for a in event.admitted]:
        chunk = chunks.get(request)
        missing = state.num_tokens[request] - chunk.start if chunk else 0
        reasons.append(why_admitted(chunk.length, missing, budget, longest) if chunk else None)
    gives_way = bool(event.preempted) or config.policy.victim == "blocked"
    return [*reasons, *[why_stalled(budget, blocks, gives_way) for _ in event.stalled]]
