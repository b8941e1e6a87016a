"""KV blocks by hand-computed cases, with no model at all: who gets them, who gives way where they
run out, and what is shared.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import POLICIES, EngineConfig
from core.scheduler.scheduler import Scheduler
from core.scheduler.scheduler_state import SchedulerState
from core.scheduler.state import UNREAD, BlockTable, RequestState
from core.trace.events import LimitReached
from worlds.small import SchedulerWorld, request, requests, world_of


def test_the_blocks_in_use_are_the_most_of_any_pass() -> None:
    """r0 ends with its prompt, and its two blocks are free again when r1's decode is planned."""
    world = world_of("split", ((6, 1), (5, 2)), num_blocks=8, block_size=4, max_num_seqs=2)
    step = world.step()
    assert len(step.passes) == 3 and step.facts.blocks_used == 4


# -- who gives way ---------------------------------------------------------------------------------


def test_prefill_first_leaves_the_blocks_that_decodes_are_about_to_need() -> None:
    """r0's fifth token needs the last block, though r1 is planned before it."""
    world = world_of(
        "continuous", ((4, 6), (3, 2, 1)), num_blocks=2, block_size=4, prefill_first=True
    )
    world.step()
    step = world.step()
    assert step.passes == [(("r0", 1),)] and step.facts.waiting.why == LimitReached(
        "blocks", 0, 1, 2
    )


@pytest.mark.parametrize("policy", ["continuous", "stall"])
def test_preemption_takes_the_newest(policy) -> None:
    # Blocks of 4, four of them. Both hold 1 block and 4 positions after step 0; each takes a second
    # in step 1; all full after step 4.
    world = world_of(policy, ((4, 7), (4, 7)), num_blocks=4, max_num_seqs=2, block_size=4)
    for _ in range(5):
        assert not world.step().facts.preempted
    step = world.step()
    assert [(p.request, p.tokens_lost, p.lane) for p in step.facts.preempted] == [("r1", 8, 1)]
    assert step.passes == [(("r0", 1),)]
    assert (step.facts.waiting.count, step.facts.waiting.request, step.facts.waiting.why) == (
        1,
        "r1",
        LimitReached("blocks", 0, 3, 4),
    )
    state = world.states["r1"]
    assert state.lane is None and state.num_tokens == state.num_prompt_tokens + 5
    assert state.num_computed_tokens == 0
    world.run()
    assert world.chunks("r1") == [4, 1, 1, 1, 1, 9, 1]
    assert world.states["r1"].num_computed_tokens == 10


def test_the_newest_makes_room_the_moment_an_older_one_lacks_a_block() -> None:
    # r0 needs a block in step 1, and r1 has one. Three of r1's tokens are computed again in step 4,
    # when r0 is through.
    world = world_of("continuous", ((4, 4), (2, 3)), num_blocks=2, max_num_seqs=2, block_size=4)
    world.step()
    step = world.step()
    assert step.passes == [(("r0", 1),)] and not step.facts.stalled
    assert [(p.request, p.tokens_lost) for p in step.facts.preempted] == [("r1", 2)]
    world.run()
    assert world.finish_steps == {"r0": 3, "r1": 5} and world.chunks("r1") == [2, 3, 1]


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    # r2 is preempted for r0's second block; r3 would fit into a lane and a block, but r2 is the
    # head and has to come back first.
    world = world_of(
        "continuous",
        ((4, 9), (4, 9), (8, 2), (1, 1, 1)),
        num_blocks=4,
        max_num_seqs=4,
        block_size=4,
    )
    world.step()
    step = world.step()
    assert [p.request for p in step.facts.preempted] == ["r2"] and not step.facts.admitted
    assert step.facts.waiting.count == 2 and step.facts.waiting.request == "r2"


def test_under_stall_nobody_is_preempted_while_another_can_go_on() -> None:
    # r0 needs a block in step 1; r1 (2 positions) still has room in its own, so r0 stalls until r1
    # is through.
    world = world_of("stall", ((4, 4), (2, 3)), num_blocks=2, max_num_seqs=2, block_size=4)
    world.step()
    step = world.step()
    assert step.passes == [(("r1", 1),)]
    assert [(s.request, s.why) for s in step.facts.stalled] == [
        ("r0", LimitReached("blocks", 0, 1, 2))
    ]
    world.run()
    assert not any(step.facts.preempted for step in world.steps)
    assert world.finish_steps == {"r1": 2, "r0": 5}


def test_under_stall_blocks_cut_a_prompt_and_are_named() -> None:
    world = world_of(
        "stall",
        ((4, 5), (12, 2)),
        num_blocks=4,
        max_num_seqs=2,
        block_size=4,
        max_num_batched_tokens=10,
    )
    assert world.step().facts.budget(10).binding == "budget"  # 4 + 6
    step = world.step()  # r0 takes a second block, r1 its last: 8 positions
    assert step.passes == [(("r0", 1), ("r1", 2))] and step.facts.budget(10).binding == "blocks"
    world.run()


def test_the_older_policies_promise_room_to_the_end() -> None:
    for policy in ("static", "dynamic", "split", "split-chunked"):
        world = world_of(
            policy,
            ((4, 8), (4, 8), (4, 8)),
            num_blocks=6,
            max_num_seqs=3,
            block_size=4,
            max_num_batched_tokens=32,
        )
        facts = world.step().facts
        assert facts.waiting.request == ("r1" if policy == "split-chunked" else "r2")
        assert world.step().facts.waiting.why.limit == {
            "static": "barrier",
            "split-chunked": "prefill",
        }.get(policy, "blocks")
        assert not any(step.facts.preempted for step in world.run().steps)


# -- what is shared --------------------------------------------------------------------------------


def test_prefix_hits() -> None:
    shared = tuple(range(4, 14))
    world = world_of(
        "continuous",
        ((shared, 2, 0), ((*shared, 40), 2, 1), (shared[:9], 2, 2)),
        block_size=4,
        prefix_caching=True,
    ).run()
    hits = {h.request: h.num_cached_tokens for step in world.steps for h in step.facts.prefix_hits}
    assert hits == {"r1": 8, "r2": 8}
    assert world.chunks("r1") == [3, 1] and world.chunks("r2") == [1, 1]


@pytest.mark.parametrize(("caching", "taken"), [(False, (0, 1)), (True, (2, 3))])
def test_what_is_cached_is_kept_and_nothing_else_is(caching: bool, taken: tuple[int, ...]) -> None:
    """The blocks of r1, of other tokens, which comes when r0 has left."""
    rows = (([5] * 8, 1, 0), ([6] * 8, 1, 3))
    world = world_of("continuous", rows, block_size=4, prefix_caching=caching).run()
    changes = [change for step in world.steps for change in step.facts.block_changes]
    assert [change.added for change in changes] == [(0, 1), (), taken, ()]


@pytest.mark.parametrize(("caching", "admitted"), [(True, [["r0"], ["r1"]]), (False, [["r0"], []])])
def test_what_is_cached_takes_nothing_of_the_budget(
    caching: bool, admitted: list[list[str]]
) -> None:
    """Of a budget of 12 r0's decode takes one, and r1's prompt of 12 cannot be cut: 4 are left of
    it where the two blocks that it shares with r0 are cached.
    """
    rows = ((range(4, 12), 3, 0), ((*range(4, 12), 40, 41, 42, 43), 2, 1))
    limits = {"max_num_batched_tokens": 12, "chunked_prefill": False, "block_size": 4}
    world = world_of("continuous", rows, prefix_caching=caching, **limits)
    assert [world.step().admitted for _ in range(2)] == admitted


def test_a_block_that_decoding_filled_is_found_by_all_its_tokens() -> None:
    """r0's second block holds two tokens of its prompt and two that it wrote; no other two are
    taken for them.
    """
    prompt = tuple(range(4, 10))
    rows = ((prompt, 6, 0), ((*prompt, 1, 1, 9), 2, 8), ((*prompt, 1, 2, 9), 2, 9))
    world = world_of("continuous", rows, block_size=4, prefix_caching=True).run()
    assert {
        h.request: h.num_cached_tokens for step in world.steps for h in step.facts.prefix_hits
    } == {"r1": 8, "r2": 4}


def test_a_whole_prompt_in_the_cache_leaves_one_block_to_compute() -> None:
    world = world_of(
        "continuous",
        ((tuple(range(8)), 2, 0), (tuple(range(8)), 2, 3)),
        block_size=4,
        prefix_caching=True,
    ).run()
    assert world.chunks("r1") == [4, 1]


def test_cache_at_finish_is_prompt_and_generated_less_one() -> None:
    for policy in POLICIES:
        world = world_of(
            policy, ((5, 3), (9, 1), (2, 6, 2)), max_num_seqs=2, max_num_batched_tokens=8
        ).run()
        for state in world.states.values():
            assert state.num_computed_tokens == state.num_tokens - 1


def test_a_prefix_is_shared_in_the_very_step_that_computes_it() -> None:
    shared = tuple(range(4, 12))
    world = world_of(
        "continuous", ((shared, 2), ((*shared, 40), 2)), block_size=4, prefix_caching=True
    )
    step = world.step()
    assert step.passes == [(("r0", 8), ("r1", 1))]
    assert [(h.request, h.num_cached_tokens) for h in step.facts.prefix_hits] == [("r1", 8)]


# -- what must be free -----------------------------------------------------------------------------


@pytest.mark.parametrize(("watermark", "admitted"), [(0.0, ["r0", "r1"]), (0.2, ["r0"])])
def test_a_watermark_keeps_blocks_free_for_those_who_run(watermark, admitted) -> None:
    policy = replace(POLICIES["continuous"], watermark=watermark)
    # 11 blocks as vLLM counts: 2 stay free
    scheduler = Scheduler(EngineConfig(policy, block_size=4), 10)
    for one in requests((20, 2), (20, 2)):
        scheduler.add(RequestState(one, one.prompt_token_ids or ()))
    (output,) = scheduler.schedule()
    assert [s.request for s in output.scheduled] == admitted


@pytest.mark.parametrize(("reserve", "admitted"), [("prompt", ["r0"]), ("chunk", ["r0", "r1"])])
def test_what_must_be_free_to_be_admitted(reserve, admitted) -> None:
    policy = replace(POLICIES["continuous"], reserve=reserve)
    scheduler = Scheduler(EngineConfig(policy, block_size=4, max_num_batched_tokens=12), 4)
    for one in requests((8, 2), (12, 2)):
        scheduler.add(RequestState(one, one.prompt_token_ids or ()))
    (output,) = scheduler.schedule()
    assert [s.request for s in output.scheduled] == admitted


def test_blocks_that_are_shared_and_in_use_are_not_taken_from_those_that_are_free() -> None:
    """r0 holds three of four blocks once it decodes, two of them with the prompt that r1 begins
    with, which lacks one more.
    """
    limits = {"block_size": 4, "prefix_caching": True}
    world = world_of("continuous", ((8, 4), (9, 2, 1)), num_blocks=4, **limits)
    assert [world.step().admitted for _ in range(2)] == [["r0"], ["r1"]]


def test_of_those_who_end_together_the_first_admitted_loses_its_cache_first() -> None:
    """Two blocks each of four; a newcomer's block is the tail of r0's."""
    prompts = [tuple(range(first, first + 8)) for first in (10, 20)]
    asked = [request(f"r{i}", prompt, 1) for i, prompt in enumerate(prompts)]
    config = EngineConfig(block_size=4, prefix_caching=True)
    world = SchedulerWorld(config, [*asked, request("late", (1, 2, 3), 1, arrival=1)], num_blocks=4)
    world.run()
    assert [len(world.scheduler.pool.match([*prompt, 1])) for prompt in prompts] == [1, 2]
    # also where it has the later lane: r1 comes when the first has left lane 0
    asked = [
        request("first", (1,), 1),
        request("r0", prompts[0], 2),
        request("r1", prompts[1], 1, arrival=1),
        request("late", (1, 2, 3, 4, 5), 1, arrival=2),
    ]
    world = SchedulerWorld(config, asked, num_blocks=5)
    world.run()
    assert world.finish_steps == {"first": 0, "r0": 1, "r1": 1, "late": 2}
    assert [len(world.scheduler.pool.match([*prompt, 1])) for prompt in prompts] == [1, 2]


def test_whoever_comes_back_reads_what_it_had_generated_too_before_it_decodes() -> None:
    """Eight blocks of a token: r1 gives way with 5 tokens, 2 of them its prompt, and reads 4 of
    them in the step in which it comes back.
    """
    world = world_of(
        "continuous",
        ((2, 6), (2, 6)),
        num_blocks=8,
        block_size=1,
        max_num_seqs=2,
        max_num_batched_tokens=4,
    )
    while sum(step.admitted.count("r1") for step in world.steps) < 2:
        world.step()
    assert world.chunks("r1")[-1] == 4 and world.states["r1"].is_prefilling


def test_a_long_run_may_preempt_more_often_than_any_step_could() -> None:
    """A policy is given up once requests have given way as often as lanes and tokens of the pool
    together, 8 here, without a token for anybody.
    """
    world = world_of("continuous", ((2, 4),) * 24, num_blocks=6, block_size=1, max_num_seqs=2).run()
    assert sum(len(step.facts.preempted) for step in world.steps) > 8


def test_several_who_give_way_in_one_step_wait_in_the_order_in_which_they_came() -> None:
    """Four hold a block each, and each needs a second one: two make room for the two others."""
    world = world_of("transformers", ((4, 3),) * 4, num_blocks=4, block_size=4, max_num_seqs=4)
    given = [[p.request for p in world.step().facts.preempted] for _ in range(2)]
    assert given == [[], ["r2", "r3"]]
    assert [state.id for state in world.scheduler.waiting] == ["r2", "r3"]


@pytest.mark.parametrize(("leaves", "joins"), [("r3", []), ("r0", ["r2", "r3", "r1"])])
def test_only_who_ran_ends_with_its_own_end_that_nobody_joins(leaves, joins) -> None:
    """`r1` has given way; `r0` goes on, and there is room for `r2` and `r3`, who wait."""
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 16, "block_size": 1}
    rows = ((8, 15), (8, 15), (2, 3, 5), (2, 3, 5))
    world = world_of("transformers", rows, num_blocks=24, **limits)
    while not (given := world.step().facts.preempted):
        pass
    assert [p.request for p in given] == ["r1"] and len(world.scheduler.waiting) == 3
    world.scheduler.cancel(leaves)
    assert world.step().admitted == joins


def test_a_block_is_found_by_its_content_once_its_last_token_has_been_read() -> None:
    """A step that is launched ahead of the one before it does not know that token yet."""
    config = EngineConfig(prefix_caching=True, block_size=4)
    state = SchedulerState(config, 9)
    (asked,) = requests((3, 2))
    ahead = RequestState(asked, (5, 6, 7))
    ahead.token_ids.append(UNREAD)
    ahead.block_table = BlockTable(state.pool.allocate(1))
    state.register(ahead, 0, 4)
    assert state.pool.match([5, 6, 7, 8, 9]) == ()
    ahead.token_ids[3] = 8
    state.register(ahead, 0, 4)
    assert state.pool.match([5, 6, 7, 8, 9]) == ahead.block_table.blocks
