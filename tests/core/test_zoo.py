"""The rules of other engines as policies, each against what its source says.

no-evict: TensorRT-LLM, cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp at 02a10fe,
`GuaranteedNoEvictScheduler`. mini-sglang: python/minisgl/scheduler/prefill.py at 02b130b and
decode.py at 8d430ac. nano-vllm: nanovllm/engine/scheduler.py at 06005bd. Its `max_num_seqs` bounds
a batch of prompts and not those that run; here it is lanes. transformers: `FIFOScheduler` of
src/transformers/generation/continuous_batching/scheduler.py and `OffloadingManager` of
offloading_manager.py at 5.23.0, against which tests/core/test_agree.py holds it decision by
decision; continuous is vLLM's own rule: there too.

What of transformers' rule is not expressed: its `max_requests_per_batch` bounds a batch, so that
now and then more requests run than that, while a lane is ours for as long as a request runs; blocks
shared by equal prefixes; copies of blocks in the CPU's memory (`cpu_offload_space`); its second
order, `prefill_first`. Its KV-read budget is the whole pool, which without shared prefixes nobody
can exceed: it binds in tests alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import EngineConfig
from core.config import POLICIES
from core.policy import LimitReached
from worlds.small import SchedulerWorld, Step, world_of

TIGHT = {"num_blocks": 8, "max_num_seqs": 3, "block_size": 4, "max_num_batched_tokens": 16}
PRESSURE = ((4, 9), (4, 6), (4, 12, 1), (11, 5, 2), (8, 8, 3))
APART = [name for name, policy in POLICIES.items() if not policy.mixed_batches]


def is_decode(step: Step, request: str) -> bool:
    return any(
        s.request == request and s.phase == "decode" for o in step.outputs for s in o.scheduled
    )


def phases(step: Step) -> set[str]:
    return {s.phase for o in step.outputs for s in o.scheduled}


def test_no_evict_admits_whoever_can_run_to_its_end_and_preempts_nobody() -> None:
    world = world_of(
        "no-evict",
        ((4, 9), (4, 9), (1, 2)),
        num_blocks=6,
        max_num_seqs=3,
        block_size=4,
        max_num_batched_tokens=16,
    )
    facts = world.step().facts  # 13 tokens are 4 blocks; 2 are left, and r1 may come to need 4
    assert [a.request for a in facts.admitted] == ["r0"]
    assert (
        facts.waiting.request,
        facts.waiting.why.limit,
        facts.waiting.why.have,
        facts.waiting.why.need,
    ) == (
        "r1",
        "blocks",
        2,
        4,
    )
    # and r2, which would fit, waits behind it: the first that does not fit ends the search
    world.run()
    assert [r for step in world.steps for r in step.admitted] == ["r0", "r1", "r2"]
    assert not any(step.facts.preempted or step.facts.stalled for step in world.steps)
    together = next(step for step in world.steps if step.admitted == ["r1", "r2"])
    assert phases(together) == {"prefill"} and is_decode(world.steps[1], "r0")


def test_mini_sglang_reads_a_prompt_in_chunks_while_everybody_else_freezes() -> None:
    """`schedule_next_batch` of prefill comes first, and a chunked request stays at the head of its
    list.
    """
    world = world_of(
        "mini-sglang",
        ((2, 9), (10, 2, 2)),
        max_num_seqs=2,
        max_num_batched_tokens=4,
        block_size=1,
        num_blocks=30,
    )
    steps = world.run().steps
    assert [step.passes for step in steps[:6]] == [
        [(("r0", 2),)],
        [(("r0", 1),)],
        [(("r1", 4),)],
        [(("r1", 4),)],
        [(("r1", 2),)],
        [(("r0", 1), ("r1", 1))],
    ]
    assert [[(s.request, s.why.limit) for s in step.facts.stalled] for step in steps[2:6]] == [
        [("r0", "phase")]
    ] * 3 + [[]]


def test_mini_sglang_reserves_room_for_the_output() -> None:
    """estimated_len + reserved_size > available_size: r1 may come to need 8 slots, and of 12 r0 may
    take 7.
    """
    world = world_of("mini-sglang", ((3, 4), (5, 3)), max_num_seqs=2, block_size=1, num_blocks=12)
    facts = world.step().facts
    assert (
        [a.request for a in facts.admitted] == ["r0"]
        and facts.waiting.why.need == 8
        and facts.waiting.why.have == 5
    )
    assert not any(step.facts.preempted for step in world.run().steps)


def test_nano_vllm_computes_whole_prompts_alone_or_decodes_alone() -> None:
    world = world_of(
        "nano-vllm",
        ((2, 9), (6, 2, 1), (4, 2, 1)),
        max_num_seqs=3,
        max_num_batched_tokens=8,
        block_size=4,
    )
    steps = world.run().steps
    assert [step.passes for step in steps[:4]] == [
        [(("r0", 2),)],
        [(("r1", 6),)],  # r2 does not fit whole into what is left of 8
        [(("r2", 4),)],
        [(("r0", 1), ("r1", 1), ("r2", 1))],
    ]
    assert (
        steps[1].facts.waiting.why == (steps[1].facts.waiting.why.limit, 2, 4, 8)
        and steps[1].facts.waiting.why.limit == "budget"
    )


def test_nano_vllm_preempts_the_newest_in_a_decode_step_alone() -> None:
    world = world_of("nano-vllm", PRESSURE, **TIGHT).run()
    assert sum(len(step.facts.preempted) for step in world.steps) >= 1
    for step in world.steps:
        if step.facts.preempted:
            assert phases(step) == {"decode"} and not step.admitted
            assert step.facts.waiting.request == step.facts.preempted[-1].request


def test_nano_vllm_cuts_only_what_no_step_has_room_for() -> None:
    """There such a prompt would wait for ever."""
    world = world_of("nano-vllm", ((9, 2), (3, 2)), max_num_seqs=2, max_num_batched_tokens=8).run()
    assert world.chunks("r0") == [8, 1, 1] and world.chunks("r1") == [3, 1]


@pytest.mark.parametrize("policy", APART)
def test_no_step_mixes_prompts_and_decodes(policy) -> None:
    steps = world_of(policy, PRESSURE, **TIGHT).run().steps
    assert all(len(phases(step)) == 1 for step in steps)
    why = {s.why for step in steps for s in step.facts.stalled if s.why.limit == "phase"}
    assert why == {LimitReached("phase", 0, 1, 1)}


def test_on_one_workload_each_pays_in_its_own_way() -> None:
    """Who preempts, who freezes, who waits: the same requests on a pool that is too small."""

    def paid(policy: str) -> tuple[int, int, int]:
        world: SchedulerWorld = world_of(policy, PRESSURE, **TIGHT).run()
        preempted = sum(len(step.facts.preempted) for step in world.steps)
        frozen = sum(
            s.why.limit in ("phase", "blocks") for step in world.steps for s in step.facts.stalled
        )
        waited = sum(step.facts.waiting.count for step in world.steps)
        return preempted, frozen, waited

    costs = {
        name: paid(name)
        for name in ("continuous", "stall", "no-evict", "mini-sglang", "nano-vllm", "transformers")
    }
    assert costs["no-evict"][:2] == (0, 0) and costs["no-evict"][2] > costs["continuous"][2]
    assert costs["mini-sglang"][0] == 0 < costs["mini-sglang"][1]
    assert costs["continuous"][0] > 0 == costs["continuous"][1] and costs["stall"][1] > 0
    assert costs["nano-vllm"][0] > 0 < costs["nano-vllm"][1]
    assert costs["transformers"][0] > 0


def test_transformers_passes_over_who_lacks_blocks_and_admits_nobody_until_somebody_ends() -> None:
    """r1 and r2 need blocks that r0 took: the last of them gives way, joins the end behind r3, and
    all wait for an end.
    """
    world = world_of(
        "transformers", ((4, 9), (4, 9), (3, 9), (1, 2)), num_blocks=5, max_num_seqs=3, block_size=4
    )
    steps = world.run().steps
    first = next(t for t in steps if t.facts.preempted)
    assert [p.request for p in first.facts.preempted] == ["r2"]
    ended = next(t.number for t in steps if t.facts.finished)
    assert not any(t.admitted for t in steps if first.number <= t.number <= ended)
    assert any(t.facts.waiting.why and t.facts.waiting.why.limit == "recovery" for t in steps)
    again = [r for t in steps if t.number > first.number for r in t.admitted]
    assert again.index("r3") < again.index("r2")


def test_transformers_keeps_the_last_blocks_for_decodes() -> None:
    """3 of 8 blocks are 37 %: below a margin of half, a prompt joins only where nobody decodes."""
    world = world_of(
        "transformers", ((18, 4), (3, 4, 1)), num_blocks=8, max_num_seqs=2, block_size=4
    )
    assert world.step().admitted == ["r0"]
    world.scheduler._state.policy = replace(world.scheduler.policy, margin=0.5)
    waits = world.step().facts.waiting
    assert waits.request == "r1" and (waits.why.limit, waits.why.have, waits.why.need) == (
        "margin",
        3,
        4,
    )


def test_transformers_reads_no_more_of_the_cache_than_it_may() -> None:
    world = world_of("transformers", ((6, 4), (6, 4)), num_blocks=8, max_num_seqs=2, block_size=4)
    world.step()
    world.scheduler._state.policy = replace(world.scheduler.policy, kv_reads=8 / 32)
    step = world.step()  # 6 of 8 are read for r0, and r1 would need 6 more
    assert step.passes == [(("r0", 1),)] and [(s.request, *s.why) for s in step.facts.stalled] == [
        ("r1", "reads", 2, 6, 8)
    ]


def test_where_all_that_may_be_read_is_read_nobody_joins_who_has_nothing_to_read() -> None:
    world = world_of("transformers", ((6, 4), (6, 4, 1)), num_blocks=8, max_num_seqs=2)
    world.step()
    policy, size = world.scheduler.policy, world.scheduler.config.block_size
    for may_read, passes in ((6, [(("r0", 1),)]), (8, [(("r0", 1), ("r1", 6))])):
        world.scheduler._state.policy = replace(policy, kv_reads=may_read / (8 * size))
        step = world.step()
        assert step.passes == passes
        waits = step.facts.waiting
        assert waits.why == (("reads", 0, 0, 6) if may_read == 6 else None)


def test_what_a_policy_takes_follows_from_its_fields() -> None:
    assert (
        "chunked_prefill" not in POLICIES["nano-vllm"].knobs
        and "prefill_first" not in POLICIES["mini-sglang"].knobs
    )
    assert "prefix_caching" in EngineConfig("no-evict", prefix_caching=True).policy.knobs
    lanes = {name for name, policy in POLICIES.items() if "max_num_seqs" not in policy.knobs}
    assert lanes == {"sequential"}
