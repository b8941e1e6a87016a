"""The passes of a step, layout by layout: which requests compute in which pass, which join, and
which give way when KV blocks run out.

A layout is a generator: run each pass and report its result before asking for the next, since the
split layout decides its decode pass from the results of its prefill passes. The policy decides who
joins and who gives way; this module lays out the step.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from core.errors import PolicyFailed, shown
from core.policy import LIMITS, Capacity, Limit, LimitReached
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.scheduler_state import UNLIMITED, SchedulerState
from core.scheduler.state import RequestState
from core.trace.events import NOTHING_BINDS, Admitted, Stalled
from core.workload.request import Phase

# lane, request, tokens; one entry per lane, so sorting compares only lanes
Plan = list[tuple[int, RequestState, int]]
_PROMPTS_ALONE = LimitReached("phase", 0, 1, 1)


def passes(state: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    """The passes of this step under the policy's layout. in_flight: see `Scheduler.schedule`."""
    state.wave, is_idle = len(state.running), True
    for output in _LAYOUTS[state.policy.layout](state, in_flight):
        is_idle = False
        yield output
    if is_idle and not in_flight:
        state.check_progress()


# -- layouts ---------------------------------------------------------------------------------------


def _packed(state: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    plan: Plan = []
    if state.policy.preemption == "after":
        plan = transformers_fifo(state, in_flight)
    elif state.policy.mixed_batches or not (plan := _prompts_alone(state)):
        if state.policy.preemption == "before" and not _make_room(state, in_flight):
            return
        plan = _plan(state)
        while not plan and state.running and not in_flight:  # no request could continue
            state.preempt(_victim(state, state.running))
            plan = _plan(state)
    if plan:
        yield build_output(state, "packed", plan)


def _padded(state: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    plan: Plan = []
    schedule_running(state, state.running, UNLIMITED, plan)
    admit(state, UNLIMITED, plan)
    if plan:
        plan += [(s.held_lane, s, 0) for s in state.lanes if s.finish_reason is not None]
        yield build_output(state, "padded", plan)


def _split(state: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    decoding, prefilling = _by_phase(state)
    prefills: Plan = []
    left = schedule_running(state, prefilling, state.token_budget - len(decoding), prefills)
    left = admit(state, left, prefills)
    for prefill in prefills:
        yield build_output(state, "packed", [prefill])
    before = {*decoding}
    # the newly prefilled
    before.update([s for s in state.running if s not in before and s.is_decoding][:left])
    plan: Plan = []
    schedule_running(state, [s for s in state.running if s in before], UNLIMITED, plan)
    if plan:
        yield build_output(state, "padded", plan)


_LAYOUTS: dict[str, Callable[[SchedulerState, bool], Iterator[SchedulerOutput]]] = {
    "packed": _packed,
    "padded": _padded,
    "split": _split,
}


def _plan(state: SchedulerState) -> Plan:
    """What a packed pass may compute. If the plan is empty, no state has changed."""
    state.facts.clear_plan()
    plan: Plan = []
    if not state.policy.mixed_batches:
        schedule_running(state, state.running, state.token_budget, plan)
        if state.facts.preempted:
            # nothing can join: this records the reason for the head of the queue
            admit(state, state.token_budget, plan)
        return plan
    decoding, prefilling = _by_phase(state)
    left, prefill_first = state.token_budget, state.config.prefill_first
    if not prefill_first:
        left = schedule_running(state, decoding, left, plan)
    left = schedule_running(state, prefilling, left, plan)
    left = admit(
        state,
        left,
        plan,
        growing=sum([state.blocks_lacked(s, 1) for s in decoding]) if prefill_first else 0,
    )
    if prefill_first:
        schedule_running(state, decoding, left, plan)
    return plan


def _prompts_alone(state: SchedulerState) -> Plan:
    """A plan of prompts without decodes. If it is empty, no state has changed."""
    plan: Plan = []
    decoding, prefilling = _by_phase(state)
    left = schedule_running(state, prefilling, state.token_budget, plan)
    admit(state, left, plan)
    if plan:
        state.facts.stalled += [Stalled(s.id, _PROMPTS_ALONE) for s in decoding]
    return plan


# -- what a request computes -----------------------------------------------------------------------


def schedule_running(
    state: SchedulerState, requests: Sequence[RequestState], left: int, plan: Plan
) -> int:
    """Give each running request its next tokens, in order of arrival; returns the budget left."""
    size, facts, pool = state.config.block_size, state.facts, state.pool
    for request in requests:
        count = pending = len(request.token_ids) - request.num_computed_tokens
        if count > left:
            count, facts.cut = left, "budget"
            if not left:
                facts.stalled.append(
                    Stalled(
                        request.id,
                        LimitReached("budget", 0, pending, state.config.max_num_batched_tokens),
                    )
                )
                continue
        room = len(request.block_table.blocks) * size - request.num_computed_tokens
        if count > room:
            room += pool.num_free * size
            if not room:
                facts.stalled.append(
                    Stalled(request.id, LimitReached("blocks", 0, 1, pool.num_blocks))
                )
                continue
            if count > room:
                count, facts.cut = room, "blocks"
            state.grow(request, count)
        if state.config.prefix_caching:
            state.register(
                request, request.num_computed_tokens, request.num_computed_tokens + count
            )
        plan.append((request.held_lane, request, count))  # as `_compute`, without a call for each
        left -= count
    return left


def admit(state: SchedulerState, left: int, plan: Plan, growing: int = 0) -> int:
    """Admit the head of the queue until the policy objects; returns the remaining budget.

    growing: blocks that running requests still need in this step.
    """
    while request := state.waiting.head():
        cached: tuple[int, ...] = ()
        if state.config.prefix_caching and state.lanes.num_free:
            cached = state.pool.match(request.token_ids)
        if why := _why_not(state, request, state.capacity(left, cached, growing)):
            state.wait(why)
            break
        state.start(request, cached)
        left -= _first_chunk(state, request, left, plan)
    return left


def _why_not(
    state: SchedulerState, request: RequestState, capacity: Capacity
) -> LimitReached | None:
    """Why a request may not join, by the policy or under any; None if it may."""
    why = state.policy.admit(request, capacity)
    if why is None:
        return capacity.lacks(request)
    if not isinstance(why, LimitReached) or why.limit not in LIMITS or why.limit == "none":
        given = f"limit {shown(why.limit)}" if isinstance(why, LimitReached) else shown(why)
        raise PolicyFailed(
            f"The policy {state.policy.name} answers `admit` for {request.id!r} with {given}; "
            'it must be None to let it join, or a limit such as LimitReached("policy").'
        )
    return why


def _first_chunk(state: SchedulerState, request: RequestState, left: int, plan: Plan) -> int:
    """Schedule as many tokens of a newly admitted request as fit; returns their number."""
    count, why = request.num_uncomputed_tokens, NOTHING_BINDS
    if count > left:
        why = LimitReached("budget", left, count, state.config.max_num_batched_tokens)
        count, state.facts.cut = left, "budget"
    state.facts.admitted.append(Admitted(request.id, request.held_lane, why))
    _compute(state, request, count, plan)
    return count


def _compute(state: SchedulerState, request: RequestState, count: int, plan: Plan) -> None:
    state.grow(request, count)
    if state.config.prefix_caching:
        state.register(request, request.num_computed_tokens, request.num_computed_tokens + count)
    plan.append((request.held_lane, request, count))


def build_output(
    state: SchedulerState, layout: Literal["packed", "padded"], plan: Plan
) -> SchedulerOutput:
    """The output for a plan, in lane order; its tokens are counted in the facts."""
    scheduled, decode_tokens = [], 0
    for lane, request, count in sorted(plan):
        token_ids, start = request.token_ids, request.num_computed_tokens
        end, length = start + count, len(token_ids)
        phase: Phase = "prefill"
        if count == 1 and request.is_decoding:
            phase = "decode"
            decode_tokens += 1
        tokens = tuple(token_ids[start:end])
        samples = end == length and count > 0
        entry = ScheduledRequest(
            request.id, lane, phase, tokens, start, request.block_table, samples
        )
        if samples and request.request.sampling.looks_back:
            prompt = request.prompt_token_ids
            entry = entry._replace(prompt=prompt, generated=tuple(token_ids[len(prompt) :]))
        scheduled.append(entry)
    facts = state.facts
    facts.decode_tokens += decode_tokens
    facts.prefill_tokens += sum([entry[2] for entry in plan]) - decode_tokens
    facts.blocks_used = max(facts.blocks_used, state.pool.num_used)
    return SchedulerOutput(layout, tuple(scheduled))


def _by_phase(state: SchedulerState) -> tuple[list[RequestState], list[RequestState]]:
    """The running requests that decode, and those that prefill."""
    decoding: list[RequestState] = []
    prefilling: list[RequestState] = []
    for request in state.running:
        (decoding if request.is_decoding else prefilling).append(request)
    return decoding, prefilling


# -- who makes room --------------------------------------------------------------------------------


def _victim(state: SchedulerState, candidates: Collection[RequestState]) -> RequestState:
    request = state.policy.select_victim((*candidates,))
    for candidate in candidates:
        if candidate is request:
            return candidate
    raise PolicyFailed(
        f"The policy {state.policy.name} lets {shown(request)} give way, which is none of the"
        " requests that can."
    )


def _make_room(state: SchedulerState, in_flight: bool) -> bool:
    """Preempt until every request that continues in this step has the blocks for it. Returns False
    if that must wait for a step in flight.
    """
    if state.pool.num_free >= len(state.running) + state.token_budget // state.config.block_size:
        return True
    while _blocks_needed(state) > state.pool.num_free:
        if in_flight:
            return False
        state.preempt(_victim(state, state.running))
    return True


def _blocks_needed(state: SchedulerState) -> int:
    """Blocks that the running requests lack for what the budget lets them compute in this step."""
    decoding, prefilling = _by_phase(state)
    left, needed = state.token_budget, 0
    for request in prefilling + decoding if state.config.prefill_first else decoding + prefilling:
        count = min(request.num_uncomputed_tokens, left)
        left -= count
        needed += state.blocks_lacked(request, count)
    return needed


# -- passing over ----------------------------------------------------------------------------------


def transformers_fifo(state: SchedulerState, in_flight: bool) -> Plan:
    """A packed pass that skips requests without KV blocks: first decodes, then prompts that have
    begun, then waiting requests. Running requests that were skipped then give way until the others
    have room. in_flight: no request can give way in this step.
    """
    plan, blocked, why = _pass_over(state)
    while not in_flight and preempt_blocked(state, blocked) and not plan:
        plan, blocked, why = _pass_over(state)
    if state.waiting.head():
        state.wait(LimitReached("recovery", 0, 1, 1) if why is None or state.recovering else why)
    return plan


def _pass_over(state: SchedulerState) -> tuple[Plan, dict[RequestState, int], LimitReached | None]:
    """The plan, how many blocks running requests lack, and why the head of the queue waits."""
    state.facts.clear_plan()
    pool, policy = state.pool, state.policy
    left = state.token_budget
    reads = most_reads = (
        UNLIMITED
        if policy.kv_reads is None
        else round(policy.kv_reads * pool.num_blocks * state.config.block_size)
    )
    is_scarce = pool.num_free / pool.num_blocks < policy.margin
    plan: Plan = []
    blocked: dict[RequestState, int] = {}
    first: LimitReached | None = None
    over: Limit | None = None  # the limit that ended the search
    begun = sorted(state.running, key=lambda s: s.is_prefilling)
    for request in [*begun, *state.waiting]:
        runs = request.lane is not None
        pending = request.num_uncomputed_tokens
        why = None
        count = min(pending, left)
        if over is None and is_scarce and plan and (not runs or request.is_prefilling):
            over = "margin"
        if over == "margin":
            why = LimitReached(
                "margin", pool.num_free, int(policy.margin * pool.num_blocks), pool.num_blocks
            )
        elif over == "budget":
            why = LimitReached("budget", left, pending, state.config.max_num_batched_tokens)
        elif over == "lanes":
            why = LimitReached("lanes", 0, 1, state.lanes.count)
        elif over == "reads" or (runs and request.num_computed_tokens > reads):
            why = LimitReached("reads", reads, request.num_computed_tokens, most_reads)
        elif not runs:
            why = _why_not(state, request, state.capacity(left))
        elif (lacks := state.blocks_lacked(request, count)) > pool.num_free:
            why = LimitReached("blocks", pool.num_free, lacks, pool.num_blocks)
            blocked[request] = lacks
        if why and runs:
            state.facts.stalled.append(Stalled(request.id, why))
        elif why:
            first = first or why
            if why.limit != "blocks":
                break  # requests behind it cannot join either
        if why:
            continue
        if runs:
            state.facts.cut = "budget" if count < pending else state.facts.cut
            _compute(state, request, count, plan)
        else:
            state.start(request)
            _first_chunk(state, request, left, plan)
        left, reads = left - count, reads - request.num_computed_tokens
        if not left:
            over = "budget"
        elif reads <= 0:
            over = "reads"
        elif len(plan) == state.lanes.count:
            over = "lanes"
    return plan, blocked, first


def preempt_blocked(state: SchedulerState, blocked: dict[RequestState, int]) -> bool:
    """Preempt requests until the others have enough blocks, or one is left; returns whether."""
    leaving: list[RequestState] = []
    free = state.pool.num_free
    while blocked and len(state.running) - len(leaving) > 1 and sum(blocked.values()) > free:
        leaving.append(_victim(state, blocked))
        del blocked[leaving[-1]]
        free += leaving[-1].num_blocks
    gone = {request.id for request in leaving}
    state.facts.stalled = [s for s in state.facts.stalled if s.request not in gone]
    for request in reversed(leaving):
        state.preempt(request)
    return bool(leaving)
