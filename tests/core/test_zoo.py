"""The rules of other engines as policies, each against what its source says.

no-evict: TensorRT-LLM, cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp at 02a10fe, `GuaranteedNoEvictScheduler`.
mini-sglang: python/minisgl/scheduler/prefill.py at 02b130b and decode.py at 8d430ac.
nano-vllm: nanovllm/engine/scheduler.py at 06005bd. Its `max_num_seqs` bounds a batch of prompts and not those that run; here it is lanes.
continuous is vLLM's own rule: tests/core/test_agree.py.
"""

from __future__ import annotations

import pytest

from core import EngineConfig
from core.config import POLICIES
from worlds.small import Line, Turn, line

TIGHT = {"num_blocks": 8, "max_num_seqs": 3, "block_size": 4, "max_num_batched_tokens": 16}
PRESSURE = ((4, 9), (4, 6), (4, 12, 1), (11, 5, 2), (8, 8, 3))
APART = [name for name, policy in POLICIES.items() if policy.mixing == "apart"]


def is_decode(turn: Turn, request: str) -> bool:
    return any(s.request == request and s.phase == "decode" for o in turn.outputs for s in o.scheduled)


def phases(turn: Turn) -> set[str]:
    return {s.phase for o in turn.outputs for s in o.scheduled}


def test_no_evict_admits_whoever_can_run_to_its_end_and_preempts_nobody() -> None:
    world = line("no-evict", ((4, 9), (4, 9), (1, 2)), num_blocks=6, max_num_seqs=3, block_size=4, max_num_batched_tokens=16)
    facts = world.turn().facts  # 13 tokens are 4 blocks; 2 are left, and r1 may come to need 4
    assert [a.request for a in facts.admitted] == ["r0"]
    assert (facts.waiting.request, facts.waiting.why.limit, facts.waiting.why.have, facts.waiting.why.need) == (
        "r1",
        "blocks",
        2,
        4,
    )
    world.run()  # and r2, which would fit, waits behind it: the first that does not fit ends the search
    assert [r for t in world.turns for r in t.admitted] == ["r0", "r1", "r2"]
    assert not any(t.facts.preempted or t.facts.stalled for t in world.turns)
    together = next(t for t in world.turns if t.admitted == ["r1", "r2"])
    assert phases(together) == {"prefill"} and is_decode(world.turns[1], "r0")


def test_mini_sglang_reads_a_prompt_in_chunks_while_everybody_else_freezes() -> None:
    """`schedule_next_batch` of prefill comes first, and a chunked request stays at the head of its list."""
    world = line("mini-sglang", ((2, 9), (10, 2, 2)), max_num_seqs=2, max_num_batched_tokens=4, block_size=1, num_blocks=30)
    turns = world.run().turns
    assert [t.passes for t in turns[:6]] == [
        [(("r0", 2),)], [(("r0", 1),)],
        [(("r1", 4),)], [(("r1", 4),)], [(("r1", 2),)],
        [(("r0", 1), ("r1", 1))],
    ]  # fmt: skip
    assert [[(s.request, s.why.limit) for s in t.facts.stalled] for t in turns[2:6]] == [[("r0", "phase")]] * 3 + [[]]


def test_mini_sglang_reserves_room_for_the_output() -> None:
    """estimated_len + reserved_size > available_size: r1 may come to need 8 slots, and of 12 r0 may take 7."""
    world = line("mini-sglang", ((3, 4), (5, 3)), max_num_seqs=2, block_size=1, num_blocks=12)
    facts = world.turn().facts
    assert [a.request for a in facts.admitted] == ["r0"] and facts.waiting.why.need == 8 and facts.waiting.why.have == 5
    assert not any(t.facts.preempted for t in world.run().turns)


def test_nano_vllm_computes_whole_prompts_alone_or_decodes_alone() -> None:
    world = line("nano-vllm", ((2, 9), (6, 2, 1), (4, 2, 1)), max_num_seqs=3, max_num_batched_tokens=8, block_size=4)
    turns = world.run().turns
    assert [t.passes for t in turns[:4]] == [
        [(("r0", 2),)],
        [(("r1", 6),)],  # r2 does not fit whole into what is left of 8
        [(("r2", 4),)],
        [(("r0", 1), ("r1", 1), ("r2", 1))],
    ]
    assert (
        turns[1].facts.waiting.why == (turns[1].facts.waiting.why.limit, 2, 4, 8) and turns[1].facts.waiting.why.limit == "budget"
    )


def test_nano_vllm_preempts_the_newest_in_a_decode_step_alone() -> None:
    world = line("nano-vllm", PRESSURE, **TIGHT).run()
    assert sum(len(t.facts.preempted) for t in world.turns) >= 1
    for turn in world.turns:
        if turn.facts.preempted:
            assert phases(turn) == {"decode"} and not turn.admitted
            assert turn.facts.waiting.request == turn.facts.preempted[-1].request


def test_nano_vllm_cuts_only_what_no_step_has_room_for() -> None:
    """There such a prompt would wait for ever."""
    world = line("nano-vllm", ((9, 2), (3, 2)), max_num_seqs=2, max_num_batched_tokens=8).run()
    assert world.chunks("r0") == [8, 1, 1] and world.chunks("r1") == [3, 1]


@pytest.mark.parametrize("policy", APART)
def test_no_step_mixes_prompts_and_decodes(policy) -> None:
    turns = line(policy, PRESSURE, **TIGHT).run().turns
    assert all(len(phases(t)) == 1 for t in turns)
    assert any(s.why.limit == "phase" for t in turns for s in t.facts.stalled)


def test_on_one_workload_each_pays_in_its_own_way() -> None:
    """Who preempts, who freezes, who waits: the same requests on a pool that is too small."""

    def paid(policy: str) -> tuple[int, int, int]:
        world: Line = line(policy, PRESSURE, **TIGHT).run()
        preempted = sum(len(t.facts.preempted) for t in world.turns)
        frozen = sum(s.why.limit in ("phase", "blocks") for t in world.turns for s in t.facts.stalled)
        waited = sum(t.facts.waiting.count for t in world.turns)
        return preempted, frozen, waited

    costs = {name: paid(name) for name in ("continuous", "stall", "no-evict", "mini-sglang", "nano-vllm")}
    assert costs["no-evict"][:2] == (0, 0) and costs["no-evict"][2] > costs["continuous"][2]
    assert costs["mini-sglang"][0] == 0 < costs["mini-sglang"][1]
    assert costs["continuous"][0] > 0 == costs["continuous"][1] and costs["stall"][1] > 0
    assert costs["nano-vllm"][0] > 0 < costs["nano-vllm"][1]


def test_what_a_policy_takes_follows_from_its_fields() -> None:
    assert "chunked_prefill" not in POLICIES["nano-vllm"].knobs and "prefill_first" not in POLICIES["mini-sglang"].knobs
    assert "prefix_caching" in EngineConfig("no-evict", prefix_caching=True).batching.knobs
