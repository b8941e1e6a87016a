"""A step's record: every fact stands under its own name."""

from __future__ import annotations

from core.config import EngineConfig
from core.engine.runner import PassResult, Sample
from core.engine.step import Step
from core.policy import LimitReached
from core.scheduler.output import ScheduledRequest, SchedulerOutput, StepFacts
from core.scheduler.state import BlockTable
from core.trace.events import (
    KV,
    Admitted,
    Arrived,
    BlockChange,
    Budget,
    Finished,
    FinishedRow,
    LaneReleased,
    Overrun,
    Pass,
    Preempted,
    PrefixHit,
    Sampled,
    Segment,
    Stalled,
    StepEvent,
    Timings,
    Waiting,
)

LACKS = LimitReached("blocks", 0, 1, 9)


def test_every_fact_of_a_step_stands_under_its_name():
    rows = (
        ScheduledRequest("joins", 1, "prefill", (5, 6, 7), 4, BlockTable((2, 3)), False),
        ScheduledRequest("ended", 2, "decode", (), 8, BlockTable((4,)), False),
        ScheduledRequest("talks", 3, "decode", (8,), 20, BlockTable((5, 6)), True),
    )
    result = PassResult(
        samples=[Sample(11, -0.25, 1.5)],
        t_start=100.5,
        t_end=100.625,
        prepare=0.002,
        forward=0.03,
        sample=0.004,
        bucket=12,
    )
    # a second pass of the same step
    second = SchedulerOutput("packed", rows[2:])
    shorter = PassResult(
        samples=[Sample(12, -0.5, 0.5)],
        t_start=100.625,
        t_end=100.6875,
        prepare=0.001,
        forward=0.015,
        sample=0.0005,
    )
    step = Step(
        7,
        0.375,
        iter(()),
        [(SchedulerOutput("padded", rows), result), (second, shorter)],
        [result, shorter],
        0.001,
        (Arrived("joins", 0.25),),
        StepFacts(
            admitted=[Admitted("joins", 1, LACKS)],
            preempted=[Preempted("gave way", 13, 0)],
            stalled=[Stalled("held back", LACKS)],
            finished=[Finished("talks", "length")],
            released=[LaneReleased("talks", 3, "after")],
            block_changes=[BlockChange("joins", (2, 3), False)],
            prefix_hits=[PrefixHit("joins", 4)],
            overrun=[Overrun("stopped", 1)],
            waiting=Waiting(2, "gave way", LACKS),
            decode_tokens=1,
            prefill_tokens=3,
            blocks_used=5,
        ),
    )
    assert (
        step.event(100.0, 0.375, 0.75, 9, EngineConfig(max_num_batched_tokens=16))._asdict()
        == StepEvent(
            step=7,
            t_start=0.375,
            t_end=0.75,
            timings=Timings(schedule=0.001, prepare=0.003, forward=0.045, sample=0.0045),
            arrived=(Arrived("joins", 0.25),),
            admitted=(Admitted("joins", 1, LACKS),),
            waiting=Waiting(2, "gave way", LACKS),
            preempted=(Preempted("gave way", 13, 0),),
            stalled=(Stalled("held back", LACKS),),
            passes=(
                Pass(
                    layout="padded",
                    rows=3,
                    width=3,
                    tokens=4,
                    padding=5,
                    t_start=0.5,
                    t_end=0.625,
                    finished_rows=(FinishedRow("ended", 2),),
                    bucket=12,
                ),
                Pass(
                    layout="packed",
                    rows=1,
                    width=1,
                    tokens=1,
                    padding=0,
                    t_start=0.625,
                    t_end=0.6875,
                ),
            ),
            segments=(
                Segment(
                    pass_index=0,
                    request="joins",
                    lane=1,
                    phase="prefill",
                    start=4,
                    length=3,
                    kv_len=7,
                ),
                Segment(
                    pass_index=0,
                    request="talks",
                    lane=3,
                    phase="decode",
                    start=20,
                    length=1,
                    kv_len=21,
                ),
                Segment(
                    pass_index=1,
                    request="talks",
                    lane=3,
                    phase="decode",
                    start=20,
                    length=1,
                    kv_len=21,
                ),
            ),
            sampled=(
                Sampled(pass_index=0, request="talks", token_id=11, logprob=-0.25, margin=1.5),
                Sampled(pass_index=1, request="talks", token_id=12, logprob=-0.5, margin=0.5),
            ),
            finished=(Finished("talks", "length"),),
            kv=KV(
                used=5,
                total=9,
                changes=(BlockChange("joins", (2, 3), False),),
                prefix_hits=(PrefixHit("joins", 4),),
            ),
            budget=Budget(limit=16, decode=1, prefill=3, unused=12, binding="blocks"),
            overrun=(Overrun("stopped", 1),),
            released=(LaneReleased("talks", 3, "after"),),
        )._asdict()
    )


def test_a_pass_that_seems_to_lie_before_the_step_is_moved_into_it():
    """By a device's clock it ended just before the step before it did."""
    early, late = (
        PassResult(samples=[], t_start=at, t_end=at + 1, prepare=0, forward=1, sample=0)
        for at in (3, 6)
    )
    Step(1, 0.0, iter(()), results=[early, late]).not_before(5.0)
    assert (early.t_start, early.t_end) == (5.0, 5.0)
    assert (late.t_start, late.t_end) == (6, 7)
