"""The passes of a step, layout by layout: who computes in which pass, and who makes room where KV blocks run out.

A layout is a generator: run each pass and report it before asking for the next, since the split layout decides its decode pass by what
its prefill passes wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from core.config import Layout
from core.scheduler.admission import admit
from core.scheduler.books import UNLIMITED, Books
from core.scheduler.output import SchedulerOutput
from core.scheduler.passing import plan_passing_over
from core.scheduler.plan import Plan, freeze, go_on
from core.scheduler.state import RequestState
from core.trace.events import Stalled, Why

_PROMPTS_ALONE = Why("phase", 0, 1, 1)


def passes(books: Books, in_flight: bool) -> Iterator[SchedulerOutput]:
    """The passes of this step under the policy's layout.

    in_flight: another step is not settled yet; nobody is preempted then, since its tokens are needed to compute them again.
    """
    return _PASSES[books.policy.layout](books, in_flight)


def _packed(books: Books, in_flight: bool) -> Iterator[SchedulerOutput]:
    if books.policy.mixing == "apart" or books.policy.preemption == "starved":
        plan = (plan_passing_over if books.policy.preemption == "starved" else _plan_apart)(books, in_flight)
        if plan:
            yield freeze(books, "packed", plan)
        return
    if books.policy.preemption == "newest" and not _make_room(books, in_flight):
        return
    plan = _plan(books)
    while not plan and books.running and not in_flight:
        books.preempt_newest()  # nothing at all could go on: the newest makes room
        plan = _plan(books)
    if plan:
        yield freeze(books, "packed", plan)


def _padded(books: Books, in_flight: bool) -> Iterator[SchedulerOutput]:
    plan: Plan = []
    go_on(books, books.running, UNLIMITED, plan)
    if books.policy.admission == "immediate" or not books.running:
        admit(books, UNLIMITED, plan)
    elif len(books.waiting):
        books.wait(Why("barrier", len(books.running), 0, books.lanes.count))
    if plan:
        plan += [(s.held_lane, s, 0) for s in books.lanes if s.finish_reason is not None]
        yield freeze(books, "padded", plan)


def _split(books: Books, in_flight: bool) -> Iterator[SchedulerOutput]:
    decoding = {s for s in books.running if s.is_decoding}
    left = books.token_budget - len(decoding)
    prefills: Plan = []
    left = go_on(books, [s for s in books.running if s not in decoding], left, prefills)
    left = admit(books, left, prefills)
    for prefill in prefills:
        yield freeze(books, "packed", [prefill])
    decoding.update([s for s in books.running if s not in decoding and s.is_decoding][:left])  # the newly prefilled
    plan: Plan = []
    go_on(books, [s for s in books.running if s in decoding], UNLIMITED, plan)
    if plan:
        yield freeze(books, "padded", plan)


_PASSES: dict[Layout, Callable[[Books, bool], Iterator[SchedulerOutput]]] = {
    "packed": _packed,
    "padded": _padded,
    "split": _split,
}


def _plan(books: Books) -> Plan:
    """What a packed pass may compute; an empty plan has changed nothing."""
    facts = books.facts
    facts.stalled.clear()
    facts.cut = "none"
    plan: Plan = []
    decoding, prefilling = _by_phase(books)
    left, prefill_first = books.token_budget, books.config.prefill_first
    if not prefill_first:
        left = go_on(books, decoding, left, plan)
    left = go_on(books, prefilling, left, plan)
    left = admit(books, left, plan, _num_growing(books, decoding) if prefill_first else 0)
    if prefill_first:
        go_on(books, decoding, left, plan)
    return plan


def _plan_apart(books: Books, in_flight: bool) -> Plan:
    """Prompts alone where there is one to compute, else decodes; an empty plan has changed nothing."""
    plan: Plan = []
    decoding, prefilling = _by_phase(books)
    left = go_on(books, prefilling, books.token_budget, plan)
    admit(books, left, plan)
    if plan:
        books.facts.stalled += [Stalled(s.id, _PROMPTS_ALONE) for s in decoding]
        return plan
    if books.policy.preemption == "newest" and not _make_room(books, in_flight):
        return []
    go_on(books, books.running, books.token_budget, plan)
    if books.facts.preempted:
        admit(books, books.token_budget, plan)  # nobody joins: it records who is first in the queue now
    return plan


def _make_room(books: Books, in_flight: bool) -> bool:
    """Preempt the newest until everybody who goes on in this step has the blocks for it; False if that has to wait for a step in flight."""
    free = books.pool.num_free
    if free >= len(books.running) + books.token_budget // books.config.block_size:
        return True
    while _needed(books) > books.pool.num_free:
        if in_flight:
            return False
        books.preempt_newest()
    return True


def _needed(books: Books) -> int:
    """Blocks that the running requests lack for what the budget lets them compute in this step."""
    decoding, prefilling = _by_phase(books)
    left, needed = books.token_budget, 0
    for state in prefilling + decoding if books.config.prefill_first else decoding + prefilling:
        count = min(state.num_pending, left)
        left -= count
        needed += max(0, books.blocks_for(state.num_computed_tokens + count) - len(state.block_table.blocks))
    return needed


def _by_phase(books: Books) -> tuple[list[RequestState], list[RequestState]]:
    """The running requests that decode, and those that prefill."""
    decoding: list[RequestState] = []
    prefilling: list[RequestState] = []
    for state in books.running:
        (decoding if state.is_decoding else prefilling).append(state)
    return decoding, prefilling


def _num_growing(books: Books, states: list[RequestState]) -> int:
    """Requests whose next token needs a new block."""
    return sum(s.num_computed_tokens == len(s.block_table.blocks) * books.config.block_size for s in states)
