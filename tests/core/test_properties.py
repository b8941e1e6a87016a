"""Random workloads, limits, cancels and stops through the real engine on a model that remembers;
every rule after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import Engine, EngineConfig, Request, StepEvent, Workload
from core.config import POLICIES
from core.scheduler.state import RequestState
from worlds.delays import adds_up
from worlds.examples import examples
from worlds.integrity import check_integrity, keeps_arrival_order
from worlds.small import MemoryModel, SchedulerWorld, checker_of, generate, memory_engine, request

ROOM = 60  # tokens: the longest request fits the smallest pool


@dataclass(frozen=True)
class Case:
    config: EngineConfig
    requests: tuple[Request, ...]
    cancels: tuple[tuple[int, int], ...]  # (step, request number)


@st.composite
def cases(
    draw,
    policies: Sequence[str] = (
        *POLICIES,
        *(p.name for p in POLICIES.values() if p.preemption != "never"),
    ),
) -> Case:
    policy = draw(st.sampled_from(policies))
    lanes = draw(st.integers(1, 5))
    size = draw(st.sampled_from([1, 2, 4, 16]))
    prefill_first = "prefill_first" in POLICIES[policy].knobs and draw(st.booleans())
    chunked = draw(st.booleans())
    budget = draw(
        st.integers(1 if prefill_first else lanes, 24) if chunked else st.integers(24, 40)
    )
    config = EngineConfig(
        policy=policy,
        max_num_seqs=lanes,
        max_num_batched_tokens=budget,
        block_size=size,
        num_blocks=-(-ROOM // size) // draw(st.sampled_from([1, 1, 2])) + draw(st.integers(0, 6)),
        chunked_prefill=chunked,
        prefix_caching=POLICIES[policy].prefix_caching and draw(st.booleans()),
        prefill_first=prefill_first,
    )
    longest = min(ROOM, config.num_blocks * size)
    stem = draw(st.lists(st.integers(4, 12), min_size=24, max_size=24))
    made = []
    for index in range(draw(st.integers(1, 9))):
        length = draw(st.integers(1, min(24, longest - 1)))
        common = draw(st.integers(0, length)) if draw(st.booleans()) else 0
        ids = (
            *stem[:common],
            *draw(st.lists(st.integers(4, 12), min_size=length - common, max_size=length - common)),
        )
        new = draw(st.integers(1, longest - length))
        made.append(
            request(f"r{index}", ids, new, draw(st.integers(0, 12)), ignore_eos=draw(st.booleans()))
        )
    cancels = draw(
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, len(made) - 1)), max_size=3)
    )
    return Case(config, tuple(made), tuple(cancels))


class Watch:
    """Follows the events of a run with books of its own."""

    def __init__(self, engine: Engine, case: Case) -> None:
        self.engine, self.case = engine, case
        self.checker = checker_of(engine.trace)
        self.computed: Counter[tuple[str, int]] = Counter()  # (request, position) -> times
        self.recomputable: Counter[tuple[str, int]] = Counter()  # computed before a preemption
        self.cached: set[tuple[str, int]] = set()
        self.admitted: list[str] = []

    def see(self, event: StepEvent) -> None:
        config, scheduler = self.case.config, self.engine._loop.scheduler
        check_integrity(scheduler)
        assert self.checker.fault(event) is None
        tokens = sum(s.length for s in event.segments)
        if config.policy.token_budget:
            assert tokens <= config.max_num_batched_tokens
        assert (
            len(scheduler.running) <= config.num_lanes
            and event.kv.used <= config.num_blocks == event.kv.total
        )
        for p in event.preempted:
            for (name, position), times in self.computed.items():
                if name == p.request and position < p.tokens_lost:
                    self.recomputable[name, position] = times
            self.cached -= {c for c in self.cached if c[0] == p.request}
        # nothing could go on without it: the step computes with the preempted one's blocks
        if event.preempted:
            if not config.policy.requeue:
                assert event.waiting.request == event.preempted[-1].request
            owned = sum(event.kv.changes[i].released for i in range(len(event.kv.changes)))
            assert owned >= len(event.preempted)
        for hit in event.kv.prefix_hits:
            self.cached |= {(hit.request, p) for p in range(hit.num_cached_tokens)}
        for s in event.segments:
            assert s.kv_len == s.start + s.length
            for position in range(s.start, s.kv_len):
                self.computed[s.request, position] += 1
                assert (
                    self.computed[s.request, position] <= self.recomputable[s.request, position] + 1
                ), "computed twice for nothing"
        for index in range(len(event.passes)):
            lanes = [s.lane for s in event.segments if s.pass_index == index]
            assert lanes == sorted(lanes)
        self._order(event)

    def _order(self, event: StepEvent) -> None:
        """Whoever runs came before everyone who waits, where they are admitted as they arrive."""
        if not keeps_arrival_order(self.case.config.policy):
            return
        scheduler = self.engine._loop.scheduler
        waiting = list(scheduler.waiting)
        if waiting and scheduler.running:
            assert max(s.arrival_index for s in scheduler.running) < min(
                s.arrival_index for s in waiting
            )

    def end(self) -> None:
        trace, finished = self.engine.trace, {}
        for event in trace.events:
            for f in event.finished:
                assert f.request not in finished
                finished[f.request] = f.finish_reason
        for r in self.case.requests:
            alone, got, reason = generate(r), trace.outputs[r.id], finished[r.id]
            if reason == "cancelled":
                assert got == alone[: len(got)]
                continue
            assert got == alone
            assert reason == (
                "length"
                if len(got) == r.sampling.max_new_tokens and (r.sampling.ignore_eos or got[-1] != 3)
                else "stop"
            )
            held = {p for (name, p) in set(self.computed) | self.cached if name == r.id}
            assert held == set(range(len(r.prompt_token_ids) + len(got) - 1))
        adds_up(self.engine.trace)
        scheduler = self.engine._loop.scheduler
        assert not scheduler.pool.num_used
        assert not scheduler.lanes.held and not len(scheduler.waiting)
        check_integrity(scheduler)


def follow(case: Case) -> Engine:
    engine = Engine(MemoryModel(context=ROOM), None, case.config)
    stream = engine.stream(Workload(case.requests))
    watch = Watch(engine, case)
    todo = sorted(case.cancels)
    while True:
        while todo and todo[0][0] <= engine.num_steps:
            engine.cancel(f"r{todo.pop(0)[1]}")
            check_integrity(engine._loop.scheduler)
        event = next(stream, None)
        if event is None:
            break
        watch.see(event)
        assert engine.num_steps < 2000
    watch.end()
    return engine


@pytest.mark.slow
@pytest.mark.timeout(0)  # it ends by its examples, however slow the machine
@given(cases())
@settings(max_examples=300, deadline=None)
def test_every_rule_after_every_step(case: Case) -> None:
    follow(case)


@given(cases())
@examples(60)
def test_the_reason_given_for_the_head_of_the_queue_is_true(case: Case) -> None:
    """Checked at the moment of the decision, from the scheduler's own books of before and after."""
    world = SchedulerWorld(case.config, case.requests, case.config.num_blocks)
    scheduler, config = world.scheduler, case.config
    recovering = False
    while world.has_work:
        step = world.step()
        facts, why = step.facts, step.facts.waiting.why
        door_shut = recovering or bool(facts.preempted)
        recovering = door_shut and not facts.finished
        if why is None:
            assert facts.waiting.count == 0
            continue
        head: RequestState = world.states[facts.waiting.request]
        released = {c.request for c in facts.block_changes if c.released} - {
            p.request for p in facts.preempted
        }
        lanes_held = len(scheduler.lanes.held) + len(released)
        decode, prefill = facts.decode_tokens, facts.prefill_tokens
        assert scheduler.waiting.head() is head
        match why.limit:
            case "lanes":
                assert lanes_held == config.num_lanes == why.total and why.have == 0
            case "barrier":
                assert config.policy.admission == "barrier" and why.have >= 1
            case "prefill":
                assert config.policy.one_prefill
            case "budget":
                assert why.have < why.need and why.total == config.max_num_batched_tokens
                # A spent budget ends the search for who may be passed over, before lanes are looked
                # at.
                assert lanes_held < config.num_lanes or (
                    config.policy.preemption == "after" and why.have == 0
                )
                if not config.prefill_first and config.policy.layout == "packed":
                    assert why.have == config.max_num_batched_tokens - decode - prefill
            case "blocks":
                assert why.have < why.need and why.total == config.num_blocks
                whole = -(-head.num_tokens // config.block_size)
                # what it found in the prefix cache it does not need
                if config.policy.reserve == "prompt":
                    assert 1 <= why.need <= whole if config.prefix_caching else why.need == whole
            case "margin":
                assert (
                    why.have < config.policy.margin * config.num_blocks
                    and why.total == config.num_blocks
                )
            case "recovery":  # somebody gave way, and nobody has finished since
                assert config.policy.preemption == "after" and door_shut
            case _:
                raise AssertionError(why)


@given(cases([p.name for p in POLICIES.values() if p.preemption == "before"]))
@examples(60)
def test_after_a_preemption_everybody_who_is_left_goes_on(case: Case) -> None:
    """Whoever is in the budget has its blocks, nobody joins, and the last to be preempted would not
    have fitted in.
    """
    world = SchedulerWorld(case.config, case.requests, case.config.num_blocks)
    while world.has_work:
        facts = world.step().facts
        assert not any(s.why.limit == "blocks" for s in facts.stalled)
        if facts.preempted:
            assert not facts.admitted
            last = -(
                -world.states[facts.preempted[-1].request].num_tokens // case.config.block_size
            )
            assert case.config.prefix_caching or case.config.num_blocks - facts.blocks_used < last


@given(cases([p.name for p in POLICIES.values() if p.preemption == "idle"]))
@examples(60)
def test_preemption_only_when_nothing_at_all_could_go_on(case: Case) -> None:
    """Just before a preemption every running request is at the end of its blocks and none is
    free.
    """
    world = SchedulerWorld(case.config, case.requests, case.config.num_blocks)
    scheduler = world.scheduler
    preempt = scheduler._state.preempt

    def watched(state) -> None:
        assert scheduler.pool.num_free == 0
        for s in scheduler.running:
            assert s.num_computed_tokens == len(s.block_table.blocks) * case.config.block_size
        preempt(state)

    scheduler._state.preempt = watched
    world.run()


def test_pressure_preempts_and_stays_exact() -> None:
    """The random cases above do reach preemption, prefix hits and stalls; this one always does."""
    rows = [request(f"r{i}", tuple(range(4, 12)), 14, i) for i in range(5)]
    for policy, caching in product(("continuous", "stall"), (False, True)):
        config = EngineConfig(policy, 4, 9, block_size=4, num_blocks=9, prefix_caching=caching)
        engine = follow(Case(config, tuple(rows), ()))
        events = engine.trace.events
        assert sum(len(e.preempted) for e in events) >= 3 and any(e.stalled for e in events) == (
            policy == "stall"
        )
        assert caching == any(e.kv.prefix_hits for e in events)


def test_logits_that_are_not_finite_end_one_request_alone() -> None:
    for policy in POLICIES:
        engine = memory_engine(
            policy, model=MemoryModel(fails_after=13), max_num_seqs=3, max_num_batched_tokens=16
        )
        made = (request("fine", 4, 6), request("bad", 10, 9), request("too", 2, 8))
        trace = engine.run(Workload(made))
        ends = {f.request: f.finish_reason for e in trace.events for f in e.finished}
        assert ends == {"fine": "length", "bad": "error", "too": "length"}
        assert (
            trace.outputs["fine"] == generate(made[0])
            and trace.outputs["bad"] == generate(made[1])[:3]
        )
        checker = checker_of(trace)
        assert [checker.fault(e) for e in trace.events] == [None] * len(trace.events)
