"""The passes of a step, layout by layout: who computes in which pass, who joins, and who makes room where KV blocks run out.

A layout is a generator: run each pass and report it before asking for the next, since the split layout decides its decode pass by what
its prefill passes wrote. The policy decides who joins and who gives way; this module lays out the step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

from core.errors import PolicyFailed, shown
from core.policy import LIMITS, Limit, Room, Why
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.scheduler_state import UNLIMITED, SchedulerState
from core.scheduler.state import RequestState, RequestStatus
from core.trace.events import NOTHING_BINDS, Admitted, Stalled
from core.workload.request import Phase

Plan = list[
    tuple[int, RequestState, int]
]  # lane, request, tokens; one entry per lane, so sorting compares only lanes
_PROMPTS_ALONE = Why("phase", 0, 1, 1)


def passes(run: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    """The passes of this step under the policy's layout.

    in_flight: another step is not settled yet; no request is preempted then, because recomputing it needs that step's tokens.
    """
    run.wave, is_idle = len(run.running), True
    for output in _LAYOUTS[run.policy.layout](run, in_flight):
        is_idle = False
        yield output
    if is_idle and not in_flight:
        run.check_progress()


# -- layouts ---------------------------------------------------------------------------------------------------------


def _packed(run: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    plan: Plan = []
    if run.policy.preemption == "after":
        plan = transformers_fifo(run, in_flight)
    elif run.policy.mixed_batches or not (plan := _prompts_alone(run)):
        if run.policy.preemption == "before" and not _make_room(run, in_flight):
            return
        plan = _plan(run)
        while not plan and run.running and not in_flight:  # no request could continue
            run.preempt(_victim(run, run.running))
            plan = _plan(run)
    if plan:
        yield build_output(run, "packed", plan)


def _padded(run: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    plan: Plan = []
    schedule_running(run, run.running, UNLIMITED, plan)
    admit(run, UNLIMITED, plan)
    if plan:
        plan += [(s.held_lane, s, 0) for s in run.lanes if s.finish_reason is not None]
        yield build_output(run, "padded", plan)


def _split(run: SchedulerState, in_flight: bool) -> Iterator[SchedulerOutput]:
    decoding, prefilling = _by_phase(run)
    prefills: Plan = []
    left = schedule_running(run, prefilling, run.token_budget - len(decoding), prefills)
    left = admit(run, left, prefills)
    for prefill in prefills:
        yield build_output(run, "packed", [prefill])
    before = {*decoding}
    before.update(
        [s for s in run.running if s not in before and s.is_decoding][:left]
    )  # the newly prefilled
    plan: Plan = []
    schedule_running(run, [s for s in run.running if s in before], UNLIMITED, plan)
    if plan:
        yield build_output(run, "padded", plan)


_LAYOUTS: dict[str, Callable[[SchedulerState, bool], Iterator[SchedulerOutput]]] = {
    "packed": _packed,
    "padded": _padded,
    "split": _split,
}


def _plan(run: SchedulerState) -> Plan:
    """What a packed pass may compute; if the plan is empty, no state has changed."""
    run.facts.clear_plan()
    plan: Plan = []
    if not run.policy.mixed_batches:
        schedule_running(run, run.running, run.token_budget, plan)
        if run.facts.preempted:
            admit(
                run, run.token_budget, plan
            )  # nothing can join: this records the reason for the head of the queue
        return plan
    decoding, prefilling = _by_phase(run)
    left, prefill_first = run.token_budget, run.config.prefill_first
    if not prefill_first:
        left = schedule_running(run, decoding, left, plan)
    left = schedule_running(run, prefilling, left, plan)
    left = admit(
        run,
        left,
        plan,
        growing=sum([run.blocks_lacked(s, 1) for s in decoding]) if prefill_first else 0,
    )
    if prefill_first:
        schedule_running(run, decoding, left, plan)
    return plan


def _prompts_alone(run: SchedulerState) -> Plan:
    """A plan of prompts only; if it is empty, no state has changed."""
    plan: Plan = []
    decoding, prefilling = _by_phase(run)
    left = schedule_running(run, prefilling, run.token_budget, plan)
    admit(run, left, plan)
    if plan:
        run.facts.stalled += [Stalled(s.id, _PROMPTS_ALONE) for s in decoding]
    return plan


# -- what a request computes -----------------------------------------------------------------------------------------


def schedule_running(
    run: SchedulerState, states: Sequence[RequestState], left: int, plan: Plan
) -> int:
    """Give each running request its next tokens, first come, first served; returns the remaining budget."""
    size, facts, pool = run.config.block_size, run.facts, run.pool
    for state in states:
        count = pending = len(state.token_ids) - state.num_computed_tokens
        if count > left:
            count, facts.cut = left, "budget"
            if not left:
                facts.stalled.append(
                    Stalled(state.id, Why("budget", 0, pending, run.config.max_num_batched_tokens))
                )
                continue
        room = len(state.block_table.blocks) * size - state.num_computed_tokens
        if count > room:
            room += pool.num_free * size
            if not room:
                facts.stalled.append(Stalled(state.id, Why("blocks", 0, 1, pool.num_blocks)))
                continue
            if count > room:
                count, facts.cut = room, "blocks"
            run.grow(state, count)
        if run.config.prefix_caching:
            run.register(state, state.num_computed_tokens, state.num_computed_tokens + count)
        plan.append((state.held_lane, state, count))  # as `_compute`, without a call for each
        left -= count
    return left


def admit(run: SchedulerState, left: int, plan: Plan, growing: int = 0) -> int:
    """Let the head of the queue join as long as the policy does not object; returns the remaining budget.

    growing: blocks that running requests still need in this step.
    """
    while state := run.waiting.head():
        cached = (
            run.pool.match(state.token_ids)
            if run.config.prefix_caching and run.lanes.num_free
            else ()
        )
        if why := _why_not(run, state, run.room(left, cached, growing)):
            run.wait(why)
            break
        run.start(state, cached)
        left -= _first_chunk(run, state, left, plan)
    return left


def _why_not(run: SchedulerState, state: RequestState, room: Room) -> Why | None:
    """The policy's objection to a request that asks to join, or what it lacks under any policy."""
    why = run.policy.admit(state, room)
    if why is None:
        return room.lacks(state)
    if not isinstance(why, Why) or why.limit not in LIMITS:
        raise PolicyFailed(
            f"The policy {run.policy.name} answers `admit` for {state.id!r} with {shown(why)}; "
            f"it must be None or a Why with one of these limits: {', '.join(LIMITS)}."
        )
    return why


def _first_chunk(run: SchedulerState, state: RequestState, left: int, plan: Plan) -> int:
    """Schedule as much as fits of a newly admitted request; returns the number of tokens."""
    count, why = state.num_uncomputed_tokens, NOTHING_BINDS
    if count > left:
        why = Why("budget", left, count, run.config.max_num_batched_tokens)
        count, run.facts.cut = left, "budget"
    run.facts.admitted.append(Admitted(state.id, state.held_lane, why))
    _compute(run, state, count, plan)
    return count


def _compute(run: SchedulerState, state: RequestState, count: int, plan: Plan) -> None:
    run.grow(state, count)
    if run.config.prefix_caching:
        run.register(state, state.num_computed_tokens, state.num_computed_tokens + count)
    plan.append((state.held_lane, state, count))


def build_output(
    run: SchedulerState, layout: Literal["packed", "padded"], plan: Plan
) -> SchedulerOutput:
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
        entry = ScheduledRequest(
            state.request.id, lane, phase, tokens, start, state.block_table, samples
        )
        if samples and state.request.sampling.looks_back:
            prompt = state.prompt_token_ids
            entry = entry._replace(prompt=prompt, generated=tuple(token_ids[len(prompt) :]))
        scheduled.append(entry)
    facts = run.facts
    facts.decode_tokens += decode_tokens
    facts.prefill_tokens += sum([entry[2] for entry in plan]) - decode_tokens
    facts.blocks_used = max(facts.blocks_used, run.pool.num_used)
    return SchedulerOutput(layout, tuple(scheduled))


def _by_phase(run: SchedulerState) -> tuple[list[RequestState], list[RequestState]]:
    """The running requests that decode, and those that prefill."""
    decoding: list[RequestState] = []
    prefilling: list[RequestState] = []
    for state in run.running:
        (decoding if state.is_decoding else prefilling).append(state)
    return decoding, prefilling


# -- who makes room --------------------------------------------------------------------------------------------------


def _victim(run: SchedulerState, candidates: Collection[RequestState]) -> RequestState:
    """The candidate that the policy selects to give way."""
    state = run.policy.select_victim((*candidates,))
    for candidate in candidates:
        if candidate is state:
            return candidate
    raise PolicyFailed(
        f"The policy {run.policy.name} lets {shown(state)} give way, which is none of the requests that can."
    )


def _make_room(run: SchedulerState, in_flight: bool) -> bool:
    """Preempt until every request that continues in this step has the blocks for it; False if that has to wait for a step in flight."""
    if run.pool.num_free >= len(run.running) + run.token_budget // run.config.block_size:
        return True
    while _blocks_needed(run) > run.pool.num_free:
        if in_flight:
            return False
        run.preempt(_victim(run, run.running))
    return True


def _blocks_needed(run: SchedulerState) -> int:
    """Blocks that the running requests lack for what the budget lets them compute in this step."""
    decoding, prefilling = _by_phase(run)
    left, needed = run.token_budget, 0
    for state in prefilling + decoding if run.config.prefill_first else decoding + prefilling:
        count = min(state.num_uncomputed_tokens, left)
        left -= count
        needed += run.blocks_lacked(state, count)
    return needed


# -- passing over ----------------------------------------------------------------------------------------------------


def transformers_fifo(run: SchedulerState, in_flight: bool) -> Plan:
    """A packed pass that skips requests without KV blocks: decodes first, then prompts that have begun, then waiting requests. Running
    requests that were skipped then give way until the others have room. in_flight: no request can give way in this step.
    """
    plan, blocked, why = _pass_over(run)
    while not plan and not in_flight and preempt_blocked(run, blocked):
        plan, blocked, why = _pass_over(run)
    if plan and not in_flight:
        preempt_blocked(run, blocked)
    if run.waiting.head():
        run.wait(Why("recovery", 0, 1, 1) if why is None or run.recovering else why)
    return plan


def _pass_over(run: SchedulerState) -> tuple[Plan, dict[RequestState, int], Why | None]:
    """The plan, the running requests that lack blocks and how many, and why the head of the queue waits."""
    run.facts.clear_plan()
    pool, policy = run.pool, run.policy
    left = run.token_budget
    reads = most_reads = (
        UNLIMITED
        if policy.kv_reads is None
        else round(policy.kv_reads * pool.num_blocks * run.config.block_size)
    )
    is_scarce = pool.num_free / pool.num_blocks < policy.margin
    plan: Plan = []
    blocked: dict[RequestState, int] = {}
    first: Why | None = None
    over: Limit | None = None  # what ended the search
    begun = sorted(run.running, key=lambda s: s.is_prefilling)
    for state in [*begun, *run.waiting]:
        runs, pending, why = (
            state.status is RequestStatus.RUNNING,
            state.num_uncomputed_tokens,
            None,
        )
        count = min(pending, left)
        if over is None and is_scarce and plan and (not runs or state.is_prefilling):
            over = "margin"
        if over == "margin":
            why = Why(
                "margin", pool.num_free, int(policy.margin * pool.num_blocks), pool.num_blocks
            )
        elif over == "budget":
            why = Why("budget", left, pending, run.config.max_num_batched_tokens)
        elif over == "lanes":
            why = Why("lanes", 0, 1, run.lanes.count)
        elif over == "reads" or (runs and state.num_computed_tokens > reads):
            why = Why("reads", reads, state.num_computed_tokens, most_reads)
        elif not runs:
            why = _why_not(run, state, run.room(left))
        elif (lacks := run.blocks_lacked(state, count)) > pool.num_free:
            why = Why("blocks", pool.num_free, lacks, pool.num_blocks)
            blocked[state] = lacks
        if why and runs:
            run.facts.stalled.append(Stalled(state.id, why))
        elif why:
            first = first or why
            if why.limit != "blocks":
                break  # requests behind it cannot join either
        if why:
            continue
        if runs:
            run.facts.cut = "budget" if count < pending else run.facts.cut
            _compute(run, state, count, plan)
        else:
            run.start(state)
            _first_chunk(run, state, left, plan)
        left, reads = left - count, reads - state.num_computed_tokens
        over = (
            "budget"
            if not left
            else "reads"
            if reads <= 0
            else "lanes"
            if len(plan) == run.lanes.count
            else None
        )
    return plan, blocked, first


def preempt_blocked(run: SchedulerState, blocked: dict[RequestState, int]) -> bool:
    """Preempt requests that lack blocks until the others have enough; whether any gave way. One always continues."""
    leaving: list[RequestState] = []
    free = run.pool.num_free
    while blocked and len(run.running) - len(leaving) > 1 and sum(blocked.values()) > free:
        leaving.append(_victim(run, blocked))
        del blocked[leaving[-1]]
        free += leaving[-1].num_blocks
    gone = {state.id for state in leaving}
    run.facts.stalled = [s for s in run.facts.stalled if s.request not in gone]
    for state in reversed(leaving):
        run.preempt(state)
    return bool(leaving)
