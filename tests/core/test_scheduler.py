"""Who computes what under every policy, by hand-computed cases, with no model at all. KV blocks:
`test_scheduler_kv.py`.
"""

from __future__ import annotations

import random

import pytest

from core.config import POLICIES, EngineConfig
from core.errors import InvalidConfig
from core.scheduler.output import SchedulerOutput, StepFacts
from core.scheduler.scheduler import Scheduler
from core.scheduler.scheduler_state import Lanes
from core.scheduler.state import RequestState
from core.trace.events import LimitReached, Stalled
from core.workload.request import Request, SamplingParams
from worlds import small
from worlds.integrity import check_integrity
from worlds.small import world_of


def finish_by_request(policy: str, rows, **limits) -> list[int]:
    steps = world_of(policy, rows, **limits).run().finish_steps
    return [steps[f"r{i}"] for i in range(len(rows))]


# -- the articles' numbers, by token counts --------------------------------------------------------

CHUNKED_4 = ((5, 10), (17, 8), (26, 6), (4, 12))
GPT2_SIX = ((5, 6), (5, 50), (7, 300), (10, 30), (8, 180), (7, 45))


def padding(output: SchedulerOutput) -> int:
    """Positions that belong to no request."""
    return output.rows * output.width - sum(len(s.tokens) for s in output.scheduled)


@pytest.mark.parametrize(
    ("policy", "rows", "limits", "steps"),
    [
        ("split", ((9, 17, 0), (9, 22, 0), (12, 15, 3)), {"max_num_seqs": 4}, [15, 20, 16]),
        (
            "split-chunked",
            ((9, 17), (9, 22), (12, 15)),
            {"max_num_seqs": 4, "max_num_batched_tokens": 32},
            [15, 21, 15],
        ),
        (
            "split-chunked",
            ((5, 15, 0), (20, 5, 1)),
            {"max_num_seqs": 4, "max_num_batched_tokens": 8},
            [13, 6],
        ),
        (
            "split-chunked",
            CHUNKED_4,
            {"max_num_seqs": 4, "max_num_batched_tokens": 10},
            [8, 8, 10, 17],
        ),
        (
            "split-chunked",
            tuple((*row, t) for row, t in zip(CHUNKED_4, (0, 2, 5, 8), strict=True)),
            {"max_num_seqs": 4, "max_num_batched_tokens": 10},
            [8, 9, 12, 19],
        ),
        ("continuous", GPT2_SIX, {"max_num_seqs": 3}, [5, 49, 299, 35, 215, 94]),
        ("static", GPT2_SIX, {"max_num_seqs": 3}, [5, 49, 299, 329, 479, 344]),
        ("sequential", ((5, 20), (5, 15), (5, 25)), {"max_num_seqs": 3}, [19, 34, 59]),
        ("continuous", ((5, 20), (5, 15), (5, 25)), {"max_num_seqs": 3}, [19, 14, 24]),
    ],
)
def test_finishing_steps(policy, rows, limits, steps) -> None:
    assert finish_by_request(policy, rows, **limits) == steps


def test_gpt2_six_joins_and_occupancy() -> None:
    continuous = world_of("continuous", GPT2_SIX, max_num_seqs=3).run()
    joined = {r: step.number for step in continuous.steps for r in step.admitted}
    assert [joined[f"r{i}"] for i in (3, 4, 5)] == [6, 36, 50] and len(continuous.steps) == 300
    static = world_of("static", GPT2_SIX, max_num_seqs=3).run()
    assert len(static.steps) == 480
    assert sum(n > 0 for step in static.steps for p in step.passes for _, n in p) == 611
    assert sum(len(p) for step in static.steps for p in step.passes) == 1440


def test_chunks_of_one_prompt() -> None:
    assert world_of(
        "split-chunked", ((20, 5),), max_num_seqs=4, max_num_batched_tokens=8
    ).run().chunks("r0")[:3] == [8, 8, 4]
    assert world_of("continuous", ((7, 2),), max_num_seqs=1, max_num_batched_tokens=4).run().chunks(
        "r0"
    )[:2] == [4, 3]


@pytest.mark.parametrize("policy", ["split-chunked", "continuous"])
def test_a_long_prompt_takes_what_three_decodes_leave(policy) -> None:
    rows = ((1, 20), (1, 20), (1, 20), (20, 5, 4))
    world = world_of(policy, rows, max_num_seqs=4, max_num_batched_tokens=10).run()
    assert world.chunks("r3")[:3] == [7, 7, 6]


def test_the_first_decodes_in_every_step_while_a_prompt_is_chunked() -> None:
    world = world_of(
        "split-chunked", ((5, 15, 0), (20, 5, 1)), max_num_seqs=4, max_num_batched_tokens=8
    ).run()
    assert world.chunks("r1")[:3] == [7, 7, 6]
    assert all(("r0", 1) in step.passes[-1] for step in world.steps[1:13])


def test_budget_512_leaves_209() -> None:
    world = world_of(
        "continuous", ((4, 9), (4, 9), (4, 9), (100, 3, 2), (200, 3, 2)), max_num_batched_tokens=512
    ).run()
    budget = world.steps[2].facts.budget(512)
    assert (budget.decode, budget.prefill, budget.unused, budget.binding) == (3, 300, 209, "none")


def test_a_spent_budget_binds_whatever_else_the_first_waiting_request_lacks() -> None:
    world = world_of(
        "continuous", ((5, 9), (20, 9), (3, 2)), max_num_seqs=2, max_num_batched_tokens=8
    )
    bound = [
        world.step().facts.budget(8) for _ in range(5)
    ]  # 5 + 3, 1 + 7, 1 + 7, 1 + 3, 1 + 1; r2 waits for a lane all the while
    assert [b.unused for b in bound] == [0, 0, 0, 4, 6]
    assert [b.binding for b in bound] == ["budget", "budget", "budget", "lanes", "lanes"]


@pytest.mark.parametrize(
    ("max_num_seqs", "max_num_batched_tokens", "why"),
    [
        (1, 4, LimitReached("lanes", 0, 1, 1)),
        (2, 4, LimitReached("budget", 0, 9, 4)),
        (2, 9, LimitReached("blocks", 1, 3, 3)),
    ],
)
def test_of_the_limits_that_bind_lanes_are_named_first_then_the_budget(
    max_num_seqs, max_num_batched_tokens, why
) -> None:
    limits = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "block_size": 4,
    }
    assert (
        world_of("continuous", ((8, 3), (9, 3)), num_blocks=3, **limits).step().facts.waiting.why
        == why
    )


def test_where_requests_are_passed_over_lanes_are_named_before_a_scarce_pool() -> None:
    """r0 has 7 of the 8 blocks: of those left fewer are free than the 15% that are kept for
    decodes.
    """
    for lanes, why in ((1, LimitReached("lanes", 0, 1, 1)), (2, LimitReached("margin", 1, 1, 8))):
        world = world_of(
            "transformers", ((25, 4), (4, 3, 1)), num_blocks=8, max_num_seqs=lanes, block_size=4
        )
        world.step()
        assert world.step().facts.waiting.why == why


# -- padding ---------------------------------------------------------------------------------------


def test_a_joining_prompt_pads_every_decoding_row() -> None:
    seven = world_of("dynamic", ((5, 20),) * 7 + ((100, 3, 2),), max_num_seqs=8).run()
    assert padding(seven.steps[2].outputs[0]) == 693
    two = world_of("dynamic", ((5, 20), (5, 20), (10, 3, 2)), max_num_seqs=3).run()
    output = two.steps[2].outputs[0]
    assert (output.rows * output.width, padding(output)) == (30, 18)
    packed = world_of(
        "continuous", ((5, 20),) * 7 + ((100, 3, 2),), max_num_seqs=8, max_num_batched_tokens=512
    ).run()
    assert padding(packed.steps[2].outputs[0]) == 0


def test_static_pads_prompts_and_computes_finished_rows_until_the_barrier() -> None:
    world = world_of("static", ((5, 2), (3, 4), (4, 1), (2, 2)), max_num_seqs=3).run()
    assert [step.outputs[0].width for step in world.steps] == [5, 1, 1, 1, 2, 1]
    assert [step.passes[0] for step in world.steps] == [
        (("r0", 5), ("r1", 3), ("r2", 4)),
        (("r0", 1), ("r1", 1), ("r2", 0)),
        (("r0", 0), ("r1", 1), ("r2", 0)),
        (("r0", 0), ("r1", 1), ("r2", 0)),
        (("r3", 2),),
        (("r3", 1),),
    ]
    assert [step.facts.waiting.why.limit for step in world.steps[:4]] == [
        "lanes",
        "barrier",
        "barrier",
        "barrier",
    ]
    assert world.steps[1].facts.waiting.why == LimitReached("barrier", 2, 0, 3)


def test_static_wave_starts_with_those_who_wait() -> None:
    world = world_of("static", ((5, 4, 0), (5, 2, 1), (5, 2, 1)), max_num_seqs=3).run()
    assert [step.admitted for step in world.steps] == [["r0"], [], [], [], ["r1", "r2"], []]


def test_dynamic_refills_at_once() -> None:
    world = world_of("dynamic", ((5, 2), (5, 5), (4, 2)), max_num_seqs=2).run()
    assert world.steps[2].passes == [(("r2", 4), ("r1", 1))]
    assert padding(world.steps[2].outputs[0]) == 3


# -- split -----------------------------------------------------------------------------------------


def test_split_prefills_alone_and_decodes_in_the_same_step() -> None:
    world = world_of("split", ((5, 3), (7, 1), (4, 2, 1)), max_num_seqs=3)
    assert world.step().passes == [(("r0", 5),), (("r1", 7),), (("r0", 1),)]
    assert world.step().passes == [(("r2", 4),), (("r0", 1), ("r2", 1))]
    assert world.finish_steps == {"r1": 0, "r0": 1, "r2": 1}


def test_split_chunked_decodes_the_newcomer_only_if_budget_remains() -> None:
    exact = world_of("split-chunked", ((8, 3),), max_num_seqs=1, max_num_batched_tokens=8)
    assert exact.step().passes == [(("r0", 8),)]
    spare = world_of("split-chunked", ((7, 3),), max_num_seqs=1, max_num_batched_tokens=8)
    assert spare.step().passes == [(("r0", 7),), (("r0", 1),)]


def test_split_chunked_takes_one_prompt_at_a_time() -> None:
    world = world_of("split-chunked", ((12, 3), (2, 3)), max_num_seqs=2, max_num_batched_tokens=8)
    assert world.step().facts.waiting.why == LimitReached("prefill", 0, 1, 1)
    step = world.step()
    assert step.passes[0] == (("r0", 4),) and step.facts.waiting.why.limit == "prefill"
    assert world.step().passes[0] == (("r1", 2),)


# -- continuous ------------------------------------------------------------------------------------


def test_packed_order_is_lane_order() -> None:
    world = world_of("continuous", ((5, 2), (5, 9), (3, 4), (2, 2)), max_num_seqs=2).run()
    assert world.steps[2].passes == [(("r2", 3), ("r1", 1))]


def test_the_lowest_free_lane_is_taken() -> None:
    lanes, states = Lanes(4), [RequestState(small.request(f"r{i}", 1), (4,)) for i in range(7)]
    assert [lanes.take(state) for state in states[:4]] == [0, 1, 2, 3] and lanes.num_free == 0
    for lane in (3, 1, 2):
        lanes.give_back(lane)
    assert [lanes.take(state) for state in states[4:]] == [1, 2, 3]
    assert [state.id for state in lanes] == ["r0", "r4", "r5", "r6"]


def test_prefill_first_lets_decodes_wait() -> None:
    rows = ((2, 9), (2, 9), (12, 2, 1))
    first = world_of(
        "continuous", rows, max_num_seqs=3, max_num_batched_tokens=6, prefill_first=True
    )
    first.step()
    step = first.step()
    assert step.passes == [(("r2", 6),)]
    assert [(s.request, s.why) for s in step.facts.stalled] == [
        ("r0", LimitReached("budget", 0, 1, 6)),
        ("r1", LimitReached("budget", 0, 1, 6)),
    ]
    then = world_of("continuous", rows, max_num_seqs=3, max_num_batched_tokens=6)
    then.step()
    assert then.step().passes == [(("r0", 1), ("r1", 1), ("r2", 4))]


def test_without_chunking_a_prompt_waits_for_its_whole_budget() -> None:
    world = world_of(
        "continuous",
        ((6, 3), (6, 3)),
        max_num_seqs=2,
        max_num_batched_tokens=8,
        chunked_prefill=False,
    )
    step = world.step()
    assert step.passes == [(("r0", 6),)] and step.facts.waiting.why == LimitReached(
        "budget", 2, 6, 8
    )
    assert world.step().passes == [(("r0", 1), ("r1", 6))]


def test_first_come_first_served_is_by_arrival_not_by_name() -> None:
    """r1 arrives first, so it is the older one: r0 is preempted for it."""
    world = world_of(
        "continuous", ((4, 8, 1), (4, 8, 0)), num_blocks=4, max_num_seqs=2, block_size=4
    ).run()
    preempted = [p.request for step in world.steps for p in step.facts.preempted]
    assert preempted and set(preempted) == {"r0"}


# -- order of admission ----------------------------------------------------------------------------


def test_the_shortest_prompt_joins_first() -> None:
    world = world_of("shortest-first", ((9, 2), (3, 2), (7, 2), (3, 2)), max_num_seqs=1).run()
    assert [step.admitted for step in world.steps if step.admitted] == [
        ["r1"],
        ["r3"],
        ["r2"],
        ["r0"],
    ]
    assert world.steps[0].facts.waiting.request == "r3"


def test_nobody_starves_behind_shorter_prompts() -> None:
    """Eight may overtake; cancelled ones among them count as gone, and a preempted request comes
    before everybody.
    """
    rows = ((20, 1), *((2, 1),) * 12)
    world = world_of("shortest-first", rows, max_num_seqs=1).run()
    order = [r for step in world.steps for r in step.admitted]
    assert order.index("r0") == POLICIES["shortest-first"].aging == 8
    plain = world_of("continuous", rows, max_num_seqs=1).run()
    assert plain.steps[0].admitted == ["r0"]


def test_the_preempted_come_before_the_shortest() -> None:
    world = world_of(
        "shortest-first", ((4, 7), (4, 7), (1, 1, 6)), num_blocks=4, max_num_seqs=2, block_size=4
    ).run()
    admitted = [r for step in world.steps for r in step.admitted]
    assert admitted == ["r0", "r1", "r1", "r2"]


# -- cancelling ------------------------------------------------------------------------------------


def test_cancel_wherever_it_is() -> None:
    world = world_of("continuous", ((4, 9), (4, 9), (4, 9)), max_num_seqs=1)
    world.step()
    assert world.scheduler.cancel("r1") and world.scheduler.cancel("r0")
    assert not world.scheduler.cancel("r1") and not world.scheduler.cancel("nobody")
    check_integrity(world.scheduler)
    step = world.step()
    assert [f[:2] for f in step.facts.finished] == [("r1", "cancelled"), ("r0", "cancelled")]
    assert step.admitted == ["r2"] and step.facts.waiting.count == 0


def test_cancel_everything_ends_with_a_fact() -> None:
    world = world_of("continuous", ((4, 9), (4, 9)), max_num_seqs=1)
    world.step()
    for request in ("r0", "r1"):
        world.scheduler.cancel(request)
    assert world.has_work  # there is still something to tell
    step = world.step()
    assert not step.passes and len(step.facts.finished) == 2 and not world.has_work


def test_static_cancel_keeps_the_row_until_the_barrier() -> None:
    world = world_of("static", ((4, 3), (4, 3), (2, 1)), max_num_seqs=2)
    world.step()
    world.scheduler.cancel("r0")
    assert world.step().passes == [(("r0", 0), ("r1", 1))]
    world.run()
    assert world.steps[3].admitted == ["r2"]


@pytest.mark.parametrize("eos", [frozenset({1, 40}), frozenset({0, 1})])
def test_each_of_several_end_tokens_ends_a_request(eos) -> None:
    """The world answers with token 1, whether it is the least of them or the largest."""
    scheduler = Scheduler(EngineConfig(), 64, eos)
    for name, ignores in (("ends", False), ("goes on", True)):
        scheduler.add(RequestState(small.request(name, 3, 4, ignore_eos=ignores), (4, 5, 6)))
    (output,) = scheduler.schedule()
    scheduler.update_from_output(output, [1, 1])
    assert [f[:2] for f in scheduler.end_step().finished] == [("ends", "stop")]
    (output,) = scheduler.schedule()
    scheduler.update_from_output(output, [2])
    assert not scheduler.end_step().finished


def test_error_and_stop_end_a_request() -> None:
    scheduler = Scheduler(EngineConfig(), 10, frozenset({9}))
    for name in "abc":
        params = SamplingParams(max_new_tokens=5, ignore_eos=name == "c")
        scheduler.add(RequestState(Request(name, prompt_token_ids=(1, 2), sampling=params), (1, 2)))
    (output,) = scheduler.schedule()
    scheduler.update_from_output(output, [None, 9, 9])
    assert [f[:2] for f in scheduler.end_step().finished] == [("a", "error"), ("b", "stop")]
    check_integrity(scheduler)
    (output,) = scheduler.schedule()
    scheduler.update_from_output(output, [5], frozenset({"c"}))
    assert [f[:2] for f in scheduler.end_step().finished] == [("c", "stop")]


# -- cost ------------------------------------------------------------------------------------------


class TouchedState(RequestState):
    """A request that counts how often anything of it is read."""

    touched = 0
    __slots__ = ()

    def __getattribute__(self, name: str):
        TouchedState.touched += 1
        return super().__getattribute__(name)


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_step_never_looks_at_the_waiting_queue(policy) -> None:
    """The work of a step is the same with 10 and with 100,000 waiting: only the head is looked
    at.
    """

    def touches(waiting: int) -> int:
        scheduler = Scheduler(EngineConfig(policy=policy, max_num_seqs=4), 1000)
        made = [
            Request(f"r{i}", prompt_token_ids=(1,) * 10, sampling=SamplingParams(max_new_tokens=50))
            for i in range(14)
        ]
        for i in range(4 + waiting):
            scheduler.add(TouchedState(made[min(i, 13)], (1,) * 10))
        TouchedState.touched = 0
        for _ in range(5):
            for output in scheduler.schedule():
                scheduler.update_from_output(output, [1] * sum(s.samples for s in output.scheduled))
            scheduler.end_step()
        return TouchedState.touched

    assert touches(10) == touches(100_000 if policy == "continuous" else 1000)


def test_cancelling_does_not_search_the_queue() -> None:
    scheduler = Scheduler(EngineConfig(max_num_seqs=1), 100)
    for i in range(1000):
        scheduler.add(
            TouchedState(
                Request(f"r{i}", prompt_token_ids=(1,), sampling=SamplingParams(max_new_tokens=5)),
                (1,),
            )
        )
    TouchedState.touched = 0
    scheduler.cancel("r900")
    assert TouchedState.touched < 20
    assert len(scheduler.waiting) == 999


def test_budget_below_the_lanes_is_refused_for_decode_first() -> None:
    for policy in ("continuous", "split-chunked"):
        with pytest.raises(InvalidConfig, match="budget of 3 cannot serve 4 lanes"):
            EngineConfig(policy=policy, max_num_seqs=4, max_num_batched_tokens=3)
    EngineConfig(max_num_seqs=4, max_num_batched_tokens=3, prefill_first=True)
    EngineConfig(policy="split", max_num_seqs=4, max_num_batched_tokens=3)
    with pytest.raises(InvalidConfig):
        EngineConfig(
            policy="split-chunked", max_num_seqs=4, max_num_batched_tokens=3, prefill_first=True
        )


def test_a_long_random_run_of_every_policy_ends() -> None:
    draw = random.Random(1)
    rows = [(draw.randrange(1, 30), draw.randrange(1, 20), draw.randrange(40)) for _ in range(40)]
    for policy in POLICIES:
        world = world_of(
            policy, rows, num_blocks=20, max_num_seqs=5, max_num_batched_tokens=16, block_size=4
        ).run()
        assert len(world.finish_steps) == 40


# -- facts of a step -------------------------------------------------------------------------------


def test_of_several_who_stall_the_first_is_named_and_a_budget_that_is_just_spent_binds_nobody():
    stalled = [
        Stalled("a", LimitReached("blocks", 0, 1, 4)),
        Stalled("b", LimitReached("budget", 0, 1, 8)),
    ]
    assert StepFacts(stalled=stalled).budget(None).binding == "blocks"
    assert StepFacts(decode_tokens=8).budget(8).binding == "none"


def test_those_who_leave_together_leave_in_the_order_of_their_lanes() -> None:
    """r2 takes the lane of r0 in step 2, and gets its fourth token with the sixth of r1."""
    world = world_of("continuous", ((4, 2), (4, 6), (4, 4)), max_num_seqs=2).run()
    released = world.steps[5].facts.released
    assert [(left.request, left.lane) for left in released] == [("r2", 0), ("r1", 1)]


def test_a_prompt_of_one_token_is_read_before_anything_is_decoded() -> None:
    world = world_of("continuous", ((1, 2),)).run()
    assert [s.outputs[0].scheduled[0].phase for s in world.steps] == ["prefill", "decode"]


def test_a_prompt_that_the_budget_cuts_again_and_again_is_bound_by_it_in_every_step() -> None:
    """8, 8 and 4 of 20 tokens."""
    world = world_of("transformers", ((20, 2),), max_num_batched_tokens=8).run()
    bound = [step.facts.budget(8).binding for step in world.steps]
    assert bound == ["budget", "budget", "none", "none"]
