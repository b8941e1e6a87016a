"""The rules of a recorded run, one broken at a time: everything else about the forged step is as it
should be.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from types import ModuleType

import pytest

from core import Request, SamplingParams, Workload
from core.errors import InvalidTrace
from core.proof.verify import verify
from core.trace.events import (
    Arrived,
    BlockChange,
    Draft,
    Finished,
    FinishedRow,
    LaneReleased,
    LimitReached,
    Overrun,
    Preempted,
    PrefixHit,
    Stalled,
    StepEvent,
    Timings,
    Waiting,
)
from core.trace.header import EngineFacts, ExecutionFacts
from core.trace.rules import followable, steps
from core.trace.rules.bounds import parts_fit, plausible_arrival, plausible_graph
from core.trace.rules.checker import Checker
from core.trace.trace import Trace
from worlds.serving import char_engine
from worlds.small import VOCAB_SIZE, checker_of, memory_trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Three lanes for six requests, and too few blocks for three of them."""
    return memory_trace(
        *[(7, 14, i // 2) for i in range(6)],
        max_num_seqs=3,
        max_num_batched_tokens=9,
        block_size=4,
        num_blocks=10,
    )


def checked_to(trace: Trace, index: int) -> Checker:
    """A checker that has seen every event before this one."""
    checker = checker_of(trace)
    assert [checker.fault(event) for event in trace.events[:index]] == [None] * index
    return checker


def first(trace: Trace, happens) -> tuple[int, StepEvent]:
    return next((i, e) for i, e in enumerate(trace.events) if happens(e))


def test_the_newest_makes_room_and_nobody_else(trace):
    index, event = first(trace, lambda e: e.preempted)
    checker = checked_to(trace, index)
    state = checker._state
    older = state.running[0]
    assert older != event.preempted[0].request and checked_to(trace, index).fault(event) is None
    lane = next(lane for lane, request in state.lanes.items() if request == older)
    forged = event._replace(
        preempted=(Preempted(older, state.computed[older], lane), *event.preempted[1:])
    )
    assert (
        checker.fault(forged)
        == f"step {event.step}: request “{older}” was preempted but is not the newest."
    )


def test_nobody_is_admitted_out_of_turn(trace):
    index, event = first(trace, lambda e: e.admitted and e.waiting.count)
    other = event.waiting.request
    assert other is not None
    forged = event._replace(
        admitted=(event.admitted[0]._replace(request=other), *event.admitted[1:])
    )
    assert (
        checked_to(trace, index).fault(forged)
        == f"step {event.step}: request “{other}” was admitted before another that came first."
    )


def test_a_cache_has_no_holes(trace):
    index, event = first(trace, lambda e: any(s.phase == "decode" for s in e.segments))
    at = next(i for i, s in enumerate(event.segments) if s.phase == "decode")
    holed = event.segments[at]._replace(
        start=event.segments[at].start + 1, kv_len=event.segments[at].kv_len + 1
    )
    forged = event._replace(segments=(*event.segments[:at], holed, *event.segments[at + 1 :]))
    assert "do not follow its cache" in (checked_to(trace, index).fault(forged) or "")


def with_first(event: StepEvent, **changed: dict) -> StepEvent:
    """The event with fields changed in the first row of a list: `with_first(e, passes={…})`."""
    return event._replace(
        **{
            name: (getattr(event, name)[0]._replace(**fields), *getattr(event, name)[1:])
            for name, fields in changed.items()
        }
    )


def with_kv(event: StepEvent, **changed: object) -> StepEvent:
    return event._replace(kv=event.kv._replace(**changed))


def with_waiting(event: StepEvent, **changed: object) -> StepEvent:
    return event._replace(waiting=event.waiting._replace(**changed))


def with_change(event: StepEvent, *change: object) -> StepEvent:
    """The event with one more change of the block tables."""
    return with_kv(event, changes=(*event.kv.changes, BlockChange(*change)))


# What makes the second step one that no engine can take, by the sentence about it. In that step r0
# and r1 compute in lanes 0 and 1, r2 joins lane 2, and r3 waits at the head of the queue.
UNFOLLOWABLE = {
    "it follows step 0": lambda e: e._replace(step=0),
    "steps are counted from 0": lambda e: e._replace(step=-1),
    "its times run backwards": lambda e: e._replace(t_end=e.t_start - 1),
    "request “r0” cannot arrive": lambda e: with_first(e, arrived={"request": "r0"}),
    "request “nobody” cannot arrive": lambda e: with_first(e, arrived={"request": "nobody"}),
    "request “r0” cannot finish by “bored”": lambda e: e._replace(
        finished=(Finished("r0", "bored"),)
    ),
    "request “r5” cannot be cancelled": lambda e: e._replace(
        finished=(Finished("r5", "cancelled"),)
    ),
    "a request finishes twice": lambda e: e._replace(finished=(Finished("r0", "cancelled"),) * 2),
    "a request leaves a lane that it does not hold": lambda e: e._replace(
        released=(LaneReleased("r0", 1, "before"),)
    ),
    "request “r0” was not running as the preemption says": lambda e: e._replace(
        preempted=(Preempted("r0", 7, 1),)
    ),
    "request “r1” was not running as the preemption says": lambda e: e._replace(
        preempted=(Preempted("r1", -1, 1),)
    ),
    "a request is preempted twice": lambda e: e._replace(preempted=(Preempted("r1", 2, 1),) * 2),
    "request “r0” was admitted before another that came first": lambda e: with_first(
        e, admitted={"request": "r0"}
    ),
    "lane 0 is taken": lambda e: with_first(e, admitted={"lane": 0}),
    "there is no lane 3": lambda e: with_first(e, admitted={"lane": 3}),
    "there is no lane -1": lambda e: with_first(e, admitted={"lane": -1}),
    "a prefix was found for a request that was not admitted": lambda e: with_kv(
        e, prefix_hits=(PrefixHit("r0", 4),)
    ),
    "a prefix was found twice for one request": lambda e: with_kv(
        e, prefix_hits=(PrefixHit("r2", 4),) * 2
    ),
    "a prefix of 7 tokens cannot be found for request “r2”": lambda e: with_kv(
        e, prefix_hits=(PrefixHit("r2", 7),)
    ),
    "a prefix of -1 tokens cannot be found for request “r2”": lambda e: with_kv(
        e, prefix_hits=(PrefixHit("r2", -1),)
    ),
    "its queue is not made of those that wait": lambda e: e._replace(queue=("r0",)),
    "its queue is impossible": lambda e: e._replace(waiting=Waiting(0, "r5", e.waiting.why)),
    "the pool does not have 11 blocks": lambda e: with_kv(e, total=11),
    "11 of 10 blocks cannot be in use": lambda e: with_kv(e, used=11),
    "-1 of 10 blocks cannot be in use": lambda e: with_kv(e, used=-1),
    "request “r5” has blocks but never arrived": lambda e: with_change(e, "r5", (9,), False),
    "there is no KV cache group 1": lambda e: with_change(e, "r0", (9,), False, 1),
    "request “r0” got a block that the pool does not have": lambda e: with_change(
        e, "r0", (10,), False
    ),
    "request “r3” got blocks but is not running": lambda e: with_change(e, "r3", (9,), False),
    "segments and passes do not match": lambda e: with_first(e, segments={"pass_index": 1}),
    "pass 0 has an unknown layout": lambda e: with_first(e, passes={"layout": "sideways"}),
    "the positions of pass 0 do not add up": lambda e: with_first(e, passes={"padding": 1}),
    "pass 0 computes a finished row that has no lane": lambda e: with_first(
        e,
        passes={
            "layout": "padded",
            "rows": 4,
            "width": 5,
            "padding": 11,
            "finished_rows": (FinishedRow("r9", 0),),
        },
    ),
    "pass 0 computes a request twice": lambda e: with_first(
        e, segments={"request": e.segments[1].request}
    ),
    "1 tokens cannot have been drafted for request “r0”": lambda e: e._replace(
        drafts=(Draft("r0", 1, 0),)
    ),
    "request “r0” does not hold lane 1": lambda e: with_first(e, segments={"lane": 1}),
    "request “r0” computes positions that do not follow its cache": lambda e: with_first(
        e, segments={"kv_len": e.segments[0].kv_len + 1}
    ),
    "request “r0” computes tokens that it does not have": lambda e: with_first(
        e, segments={"start": 99, "kv_len": 100}
    ),
    "request “r0” is not in the phase “pause”": lambda e: with_first(
        e, segments={"phase": "pause"}
    ),
    "a token was sampled in no pass": lambda e: with_first(e, sampled={"pass_index": 1}),
    "token -1 of request “r0” is not one that can be sampled": lambda e: with_first(
        e, sampled={"token_id": -1}
    ),
    "an overrun or a stall names a request without a lane": lambda e: e._replace(
        overrun=(Overrun("r3", 1),)
    ),
    "request “r3” cannot finish by “length”": lambda e: e._replace(
        finished=(Finished("r3", "length"),)
    ),
}


@pytest.mark.parametrize("sentence", UNFOLLOWABLE)
def test_a_step_that_no_engine_can_take_is_refused_for_what_is_wrong_with_it(trace, sentence):
    event = trace.events[1]
    assert checked_to(trace, 1).fault(event) is None
    forged = UNFOLLOWABLE[sentence](event)
    assert checked_to(trace, 1).fault(forged) == f"step {forged.step}: {sentence}."


# The same step as one that can be followed and that this engine does not take.
BROKEN = {
    "only steps of another engine may have warnings": lambda e: e._replace(warnings=("Odd.",)),
    "the recorded parts of the step are not those that the header names": lambda e: e._replace(
        timings=e.timings._replace(prepare=None)
    ),
    "request “r2” cannot have arrived at that time": lambda e: with_first(e, arrived={"t": 9.0}),
    "request “r0” cannot have been cancelled at that time": lambda e: e._replace(
        finished=(Finished("r0", "cancelled", 0.001),)
    ),
    "request “r1” was not running as the preemption says": lambda e: e._replace(
        preempted=(Preempted("r1", 1, 1),)
    ),
    "request “r0” was preempted but is not the newest": lambda e: e._replace(
        preempted=(Preempted("r0", 7, 0),)
    ),
    "a prefix was found though nothing is cached": lambda e: with_kv(
        e, prefix_hits=(PrefixHit("r2", 4),)
    ),
    "request “r3” was admitted before another that came first": lambda e: with_first(
        e, admitted={"request": "r3"}
    ),
    "the order of its queue is that in which requests came": lambda e: e._replace(queue=("r3",)),
    "the queue has a length of 1, but the step says 2": lambda e: e._replace(
        waiting=e.waiting._replace(count=2)
    ),
    "request “r2” is said to be the head of the queue, but is not": lambda e: e._replace(
        waiting=e.waiting._replace(request="r2")
    ),
    "the head of the queue is said to wait for a lane, but one is free": lambda e: e._replace(
        admitted=(), waiting=e.waiting._replace(count=2, request="r2")
    ),
    "the head of the queue is said to wait for “budget”, but needs 7 and 7 are left": (
        lambda e: e._replace(waiting=Waiting(1, "r3", LimitReached("budget", 7, 7, 9)))
    ),
    "pass 0 cannot have been a CUDA graph of 16 positions": lambda e: with_first(
        e, passes={"bucket": 16}
    ),
    "pass 0 is not in lane order": lambda e: e._replace(segments=(*e.segments[1:], e.segments[0])),
    "request “r0” computes positions that do not follow its cache": lambda e: with_first(
        e, segments={"start": 8, "kv_len": 9}
    ),
    "request “r0” computes tokens that it does not have": lambda e: with_first(
        e, segments={"length": 2, "kv_len": 9}, passes={"width": 10, "tokens": 10}
    ),
    "request “r0” is not in the phase “prefill”": lambda e: with_first(
        e, segments={"phase": "prefill"}
    ),
    "pass 0 samples for other requests than those whose tokens are all computed": (
        lambda e: e._replace(sampled=e.sampled[:1])
    ),
    "request “r0” got 2 tokens in one pass": lambda e: e._replace(
        sampled=(e.sampled[0], *e.sampled)
    ),
    "the numbers of token 33 of request “r0” are missing": lambda e: with_first(
        e, sampled={"margin": None}
    ),
    f"token {VOCAB_SIZE} of request “r0” is not one that can be sampled": lambda e: with_first(
        e, sampled={"token_id": VOCAB_SIZE}
    ),
    "token 33 of request “r0” cannot have that probability at that margin": lambda e: with_first(
        e, sampled={"logprob": -5.0}
    ),
    "nothing was drafted": lambda e: with_first(
        e._replace(
            segments=(e.segments[0], e.segments[1]._replace(length=6, kv_len=8), e.segments[2]),
            drafts=(Draft("r1", 1, 0),),
        ),
        passes={"width": 10, "tokens": 10},
    ),
    "an overrun is listed twice": lambda e: e._replace(
        overrun=(Overrun("r0", 1),) * 2, sampled=e.sampled[1:]
    ),
    "only asynchronous execution has overruns": lambda e: e._replace(
        overrun=(Overrun("r0", 1),), sampled=e.sampled[1:]
    ),
    "a running request neither computed nor stalled": lambda e: with_first(
        e._replace(segments=e.segments[1:], sampled=e.sampled[1:]), passes={"width": 8, "tokens": 8}
    ),
    "request “r0” ended in the step, at no time before it": lambda e: e._replace(
        finished=(Finished("r0", "length", 0.001),)
    ),
    "blocks are given back when a lane becomes free, and only then": lambda e: with_change(
        e, "r0", (), True
    ),
    "request “r0” has not come to its end by “length”": lambda e: e._replace(
        finished=(Finished("r0", "length"),)
    ),
    "the requests that leave their lanes after the passes are not those that have to": (
        lambda e: with_change(
            e._replace(released=(LaneReleased("r0", 0, "after"),)), "r0", (), True
        )
    ),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_step_that_this_engine_does_not_take_is_refused_for_the_rule_that_it_breaks(
    trace, sentence
):
    forged = BROKEN[sentence](trace.events[1])
    assert checked_to(trace, 1).fault(forged) == f"step 1: {sentence}."


LACKS, GONE = LimitReached("blocks", 0, 1, 9), Finished("r0", "cancelled")
# What else a rule of several parts refuses, a part a line: by the moment and what is said of it.
# “second” is the same step; in “over” r0 has finished, and r4 and r5 are still there; in “wave” r0
# has finished too, and its row is padding; in “shares” r1 joins, and two of its blocks are r0's.
PARTS = (
    (
        "second",
        "request “r2” cannot arrive",
        lambda e: e._replace(arrived=(*e.arrived, *e.arrived)),
    ),
    (
        "second",
        "request “r2” was admitted before another that came first",
        lambda e: e._replace(admitted=e.admitted * 2),
    ),
    (
        "second",
        "lane 2 is taken",
        lambda e: e._replace(admitted=(*e.admitted, e.admitted[0]._replace(request="r3"))),
    ),
    *(
        ("second", "its queue is impossible", lambda e, part=part: with_waiting(e, **part))
        for part in ({"count": -1}, {"request": None}, {"why": None}, {"request": "nobody"})
    ),
    ("over", "its queue is impossible", lambda e: with_waiting(e, request="r0")),
    (
        "second",
        "request “None” is said to be the head of the queue, but is not",
        lambda e: with_waiting(e, request=None, why=None),
    ),
    (
        "second",
        "the head of the queue is said to wait for “blocks”, but needs 7 and 7 are left",
        lambda e: with_waiting(e, why=LimitReached("blocks", 7, 7, 9)),
    ),
    ("second", "there is no KV cache group -1", lambda e: with_change(e, "r0", (9,), False, -1)),
    (
        "second",
        "request “r0” got a block that the pool does not have",
        lambda e: with_change(e, "r0", (-1,), False),
    ),
    ("second", "request “r0” got one block twice", lambda e: with_change(e, "r0", (9, 9), False)),
    ("second", "a block has two owners", lambda e: with_change(e, "r0", (0,), False)),
    (
        "second",
        "request “r0” gave back a block that it does not hold",  # no window of ours passes one
        lambda e: with_change(e, "r0", (), False, 0, (0,)),
    ),
    (
        "shares",
        "a block has two owners",
        lambda e: with_kv(
            e,
            changes=(
                BlockChange("r1", e.kv.changes[0].added[:1], False),
                BlockChange("r1", e.kv.changes[0].added[1:], False),
            ),
        ),
    ),
    ("shares", "5 of 9 blocks cannot be in use", lambda e: with_kv(e, used=5)),
    ("shares", "3 of 9 blocks cannot be in use", lambda e: with_kv(e, used=3)),
    # where a prefix is found, its blocks join a table
    ("shares", "3 of 9 blocks cannot be in use", lambda e: with_kv(e, used=3, changes=())),
    (
        "second",
        "pass 0 has an unknown layout",
        lambda e: with_first(e, passes={"finished_rows": (FinishedRow("r0", 0),)}),
    ),
    *(
        (
            "second",
            "the positions of pass 0 do not add up",
            lambda e, part=part: with_first(e, passes={part: getattr(e.passes[0], part) + 1}),
        )
        for part in ("rows", "width", "tokens")
    ),
    (
        "second",
        "pass 0 computes a finished row that has no lane",
        lambda e: with_first(
            e,
            passes={
                "layout": "padded",
                "rows": 4,
                "width": 5,
                "padding": 11,
                "finished_rows": (FinishedRow("r0", 0),),
            },
        ),
    ),
    *(
        (
            "second",
            f"{drafts[0].drafted} tokens cannot have been drafted for request “r2”",
            lambda e, drafts=drafts: e._replace(drafts=drafts),
        )
        for drafts in (
            (Draft("r2", 1, 2),),
            (Draft("r2", 1, -1),),
            (Draft("r2", 9, 0),),
            (Draft("r2", 1, 0),) * 2,
        )
    ),
    (
        "second",
        "a token was sampled in no pass",
        lambda e: with_first(e, sampled={"pass_index": -1}),
    ),
    (
        "second",
        "token 33 of request “r3” is not one that can be sampled",
        lambda e: with_first(e, sampled={"request": "r3"}),
    ),
    *(
        (
            "second",
            "token 33 of request “r0” is not one that can be sampled",
            lambda e, part=part: with_first(e, sampled=part),
        )
        for part in ({"margin": -0.5}, {"logprob": 0.5})
    ),
    (
        "second",
        "the numbers of token 33 of request “r0” are missing",
        lambda e: with_first(e, sampled={"logprob": None}),
    ),
    (
        "second",
        "an overrun or a stall names a request without a lane",
        lambda e: e._replace(stalled=(Stalled("r3", LACKS),)),
    ),
    (
        "second",
        "a running request neither computed nor stalled",
        lambda e: e._replace(stalled=(Stalled("r0", LACKS),)),
    ),
    (
        "second",
        "request “r0” has not come to its end by “stop”",
        lambda e: e._replace(finished=(Finished("r0", "stop"),)),
    ),
    (
        "second",
        "the recorded parts of the step are not those that the header names",
        lambda e: e._replace(timings=e.timings._replace(sample=None)),
    ),
    (
        "wave",
        "request “r0” cannot finish by “length”",
        lambda e: e._replace(finished=(Finished("r0", "length"),)),
    ),
    ("wave", "request “r0” cannot be cancelled", lambda e: e._replace(finished=(GONE,))),
    (
        "wave",
        "request “r0” was not running as the preemption says",
        lambda e: e._replace(preempted=(Preempted("r0", 4, 0),)),
    ),
    (
        "ends",
        "the requests that leave their lanes after the passes are not those that have to",
        lambda e: with_kv(
            e._replace(released=()), changes=tuple(c for c in e.kv.changes if not c.released)
        ),
    ),
)


@pytest.fixture(scope="module")
def moments(trace) -> dict[str, tuple[Trace, int]]:
    prompt = tuple(range(4, 14))
    done = next(i for i, e in enumerate(trace.events) if any(f.request == "r0" for f in e.finished))
    return {
        "second": (trace, 1),
        "ends": (trace, done),
        "over": (trace, done + 1),
        "wave": (memory_trace((4, 1), (4, 3), policy="static", max_num_seqs=2), 1),
        "shares": (
            memory_trace(
                (prompt, 4), (prompt, 4, 1), prefix_caching=True, block_size=4, num_blocks=9
            ),
            1,
        ),
    }


@pytest.mark.parametrize(("moment", "sentence", "forge"), PARTS)
def test_every_part_of_a_rule_refuses_what_the_others_let_pass(moments, moment, sentence, forge):
    trace, step = moments[moment]
    event = trace.events[step]
    assert checked_to(trace, step).fault(event) is None
    assert checked_to(trace, step).fault(forge(event)) == f"step {event.step}: {sentence}."


def test_the_blocks_of_a_lane_are_given_back_once(trace):
    index, event = first(trace, lambda e: e.released)
    again = with_change(event, event.released[0].request, (), True)
    assert (
        checked_to(trace, index).fault(again) == f"step {event.step}: blocks are given back when a"
        " lane becomes free, and only then."
    )


def test_nobody_goes_on_beyond_its_last_token(trace):
    index, event = first(trace, lambda e: e.finished)
    done = event.finished[0].request
    changes = tuple(c for c in event.kv.changes if not c.released)
    on = with_kv(event._replace(finished=(), released=()), changes=changes)
    assert (
        checked_to(trace, index).fault(on)
        == f"step {event.step}: request “{done}” goes on beyond its last token."
    )


def test_whoever_gives_way_after_a_pass_that_skipped_it_computes_nothing():
    skipping = memory_trace(
        *[(7, 14)] * 3, policy="transformers", max_num_batched_tokens=30, block_size=4, num_blocks=8
    )
    index, event = first(skipping, lambda e: e.preempted)
    gone = event.preempted[0].request
    others = tuple(s._replace(request=gone) for s in event.segments[:1])
    assert (
        checked_to(skipping, index).fault(event._replace(segments=others))
        == f"step {event.step}: request “{gone}” was preempted but computes."
    )


def sentences(module: ModuleType) -> set[str]:
    """What a module can return in words, as patterns."""
    texts = {
        text
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Return) and node.value
        for text in ast.walk(node.value)
        if isinstance(text, ast.JoinedStr)
        or (isinstance(text, ast.Constant) and " " in str(text.value))
    }
    texts -= {part for text in texts if isinstance(text, ast.JoinedStr) for part in text.values}
    return {
        ".+".join(re.escape(part.value) for part in text.values if isinstance(part, ast.Constant))
        if isinstance(text, ast.JoinedStr)
        else re.escape(text.value)
        for text in texts
    }


def test_every_reason_why_a_step_cannot_be_followed_has_been_met():
    """But for values of the wrong kind and a time that no clock shows, which only files have."""
    assert len(sentences(followable)) > 30
    assert {
        said for said in sentences(followable) if not re.search(said, "\n".join(UNFOLLOWABLE))
    } == {
        r"the\ values\ of\ .+\ are\ of\ the\ wrong\ kind",
        r"it\ ends\ later\ than\ any\ clock\ shows",
    }


def test_a_prefix_is_found_by_whole_blocks():
    cached = memory_trace((7, 2), prefix_caching=True, block_size=4)
    event = cached.events[0]
    forged = with_kv(event, prefix_hits=(PrefixHit("r0", 3),))
    assert checked_to(cached, 0).fault(forged) == (
        "step 0: a prefix of 3 tokens cannot be found for request “r0”."
    )


def test_whoever_has_finished_computes_nothing_until_its_wave_ends():
    """r0 writes one token, and its row is padding from then on."""
    wave = memory_trace((4, 1), (4, 3), policy="static", max_num_seqs=2)
    event = wave.events[1]
    (padded,), (other,) = event.passes, event.segments
    own = other._replace(request="r0", lane=0)
    forged = event._replace(
        passes=(padded._replace(tokens=2, padding=0, finished_rows=()),), segments=(own, other)
    )
    assert checked_to(wave, 1).fault(event) is None
    assert checked_to(wave, 1).fault(forged) == "step 1: request “r0” does not hold lane 0."


def test_every_rule_of_a_step_has_been_broken():
    """Above or by a test of its own: of prefixes, ends, budgets and clocks in this file, of rows
    for nobody and of absent numbers in test_recorded_rules.py, of simulated runs in
    test_retimed.py.
    """
    unbroken = {said for said in sentences(steps) if not re.search(said, "\n".join(BROKEN))}
    assert {said.replace("\\", "") for said in unbroken} == {
        " tokens do not fit the budget of ",
        "a prefix of .+ tokens cannot be found for request ",
        "a request that had finished computes",
        "it has numbers that a simulated run does not have",
        "its parts do not fit into its .+ s",
        "request .+ does not hold lane ",
        "request .+ goes on beyond its last token",
        "request .+ has no row of .+ positions to match its overrun",
        "request .+ lost a token but goes on",
        "request .+ was preempted but computes",
        "the budget is not ",
        "the budget's split is not what was computed",
        "token .+ of request .+ has numbers although none were recorded",
        "without a budget, none of it can be unused",
    }


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"unused": 1}, "do not fit the budget of 9"),
        ({"limit": 10, "unused": 1}, "the budget is not 10"),
        ({"prefill": 8, "decode": 1}, "the budget's split is not what was computed"),
    ],
)
def test_a_budget_is_the_headers_and_what_was_computed_of_it(trace, wrong, sentence):
    event = trace.events[0]
    assert event.budget[:4] == (9, 0, 9, 0) and checked_to(trace, 0).fault(event) is None
    forged = event._replace(budget=event.budget._replace(**wrong))
    assert sentence in (checked_to(trace, 0).fault(forged) or "")


def test_without_a_budget_there_is_nothing_of_it_that_could_be_unused():
    waves = memory_trace((7, 2), policy="static")
    event = waves.events[0]
    assert event.budget.limit is None and checked_to(waves, 0).fault(event) is None
    forged = event._replace(budget=event.budget._replace(unused=1))
    assert checked_to(waves, 0).fault(forged) == (
        "step 0: without a budget, none of it can be unused."
    )


def test_the_parts_of_a_step_fit_beside_its_passes(trace):
    """A second, of which the pass takes 0.8: 0.2 are left for scheduling."""
    event = trace.events[0]
    passes = (event.passes[0]._replace(t_start=0.1, t_end=0.9),)

    def fits(*seconds: float) -> bool:
        made = event._replace(t_start=0.0, t_end=1.0, passes=passes, timings=Timings(*seconds))
        return parts_fit(made, one_clock=True, is_asynchronous=False)

    assert fits(0.2, 0.2, 0.5, 0.1)
    assert not fits(0.3, 0.2, 0.5, 0.1)
    assert not fits(0.2, 0.2, 0.5, 0.2)
    assert not fits(0.2, 0.2, 0.4, 0.1)  # a tenth of the pass is nobody's


@pytest.mark.parametrize(
    ("one_clock", "by_step", "earliest", "latest"),
    [(True, True, 0.99999, 1.2), (True, False, 0.0, 1.2), (False, True, 0.0, 2.0)],
)
def test_a_request_comes_within_its_step_and_before_its_passes(
    trace, one_clock, by_step, earliest, latest
):
    """A step from 1 s to 2 s, whose pass begins after 0.2 s, or that has none."""
    first = trace.events[0]
    passes = (first.passes[0]._replace(t_start=1.2, t_end=1.8),)
    event = first._replace(t_start=1.0, t_end=2.0, passes=passes)

    def may_come(t: float, event: StepEvent) -> bool:
        return plausible_arrival(Arrived("r", t), event, one_clock, by_step)

    assert may_come(earliest, event) and not may_come(earliest - 1e-6, event)
    assert may_come(latest, event) and not may_come(latest + 1e-6, event)
    idle = event._replace(passes=())
    assert may_come(2.0, idle) and not may_come(2.000001, idle)


@pytest.mark.parametrize(
    ("least", "mixed", "fits"), [(None, True, True), (16, True, False), (16, False, True)]
)
def test_a_graph_for_a_prompt_is_as_large_as_the_least_if_that_is_recorded(
    trace, least, mixed, fits
):
    forward = trace.events[0].passes[0]._replace(rows=1, width=5, bucket=8)
    facts = {"cuda_graphs": True, "min_graph_positions": least, "max_graph_positions": 64}
    assert plausible_graph(forward, mixed, ExecutionFacts(**facts)) == fits


@pytest.mark.parametrize(
    ("seconds", "in_turn", "ahead"),
    [
        ((0.4, 0.6, 0.5, 0.5), True, True),  # the host works beside the device
        ((0.5, 0.6, 0.5, 0.5), False, True),
        ((1.5, 0.0, 0.5, 0.5), False, True),
        ((2.5, 0.0, 0.5, 0.5), False, False),
        ((0.4, 0.6, 0.6, 0.5), False, False),
    ],
)
def test_with_a_devices_clock_the_hosts_parts_fit_unless_steps_overlap(
    trace, seconds, in_turn, ahead
):
    event = trace.events[0]._replace(t_start=0.0, t_end=1.0, timings=Timings(*seconds))
    assert parts_fit(event, one_clock=False, is_asynchronous=False) == in_turn
    assert parts_fit(event, one_clock=False, is_asynchronous=True) == ahead


def test_a_prompt_is_that_of_its_request_and_what_model_and_pool_can_hold(trace):
    """Seven tokens and 14 more, where ten blocks of four tokens hold 40."""
    asked = next(iter(trace.asked.values()))
    of = f"the prompt of request “{asked.request.id}”"

    def fault(prompt: object, request: Request = asked.request) -> str | None:
        return Checker(trace.header).fault_of_request(request, prompt)

    assert fault(asked.prompt) is None
    for none in (None, "text", [], tuple(asked.prompt), [True], [-1], [1.0]):
        assert fault(none) == f"{of} is not a list of token ids."
    free = replace(asked.request, prompt_token_ids=None, prompt="a")
    assert fault([VOCAB_SIZE - 1], free) is None
    assert fault([VOCAB_SIZE], free) == (
        f"{of} has a token id beyond the vocabulary of {VOCAB_SIZE}."
    )
    assert fault([1, *asked.prompt]) == f"{of} is not the workload's."
    assert fault([1] * 26, free) is None
    assert "may come to 41 tokens, more than the model or the pool" in (fault([1] * 27, free) or "")


def test_where_finished_requests_are_forgotten_their_ids_come_again(trace):
    checker = checked_to(trace, len(trace.events))
    one = next(iter(trace.asked.values()))
    assert "two requests" in (checker.fault_of_request(one.request, one.prompt) or "")
    checker.forget_finished()
    assert checker.fault_of_request(one.request, one.prompt) is None


def test_the_texts_of_a_request_fit_its_tokens_and_its_end():
    asked = Request("r", "O Romeo, ", sampling=SamplingParams(6, stop=("§§",), ignore_eos=True))
    trace = char_engine().run(Workload([asked]))
    prompt, output = trace.texts.prompt["r"], trace.texts.output["r"]

    def fault(prompt: object, output: object) -> str | None:
        checker = checker_of(trace)
        assert [checker.fault(event) for event in trace.events] == [None] * len(trace.events)
        return checker.fault_of_texts("r", prompt, output)

    assert fault(prompt, output) is None
    for given in ((prompt, [*output, "x"]), (prompt, output[:-1]), ([*prompt, "x"], output)):
        assert "do not match its tokens" in str(fault(*given))
    # it ended by its length: nowhere in it can be what would have stopped it
    for at in (0, 3, 5):
        forged = [*output[:at], "§§", *output[at + 1 :]]
        assert "does not end with its stop string" in str(fault(prompt, forged))
    halves = [*output[:4], "§", "§"]
    assert "does not end with its stop string" in str(fault(prompt, halves))
    # of who never came, too, and then the run is not complete
    early = checker_of(trace)
    assert early.fault_of_texts("r", prompt, []) is None
    assert early.fault_at_end(True) == (
        "the run is said to be complete, but request “r” has not finished."
    )
    # the first of two whose texts were read
    two = Workload([asked, Request("s", "O Romeo, ", sampling=SamplingParams(6))])
    early = checker_of(char_engine().run(two))
    assert [early.fault_of_texts(r, prompt, []) for r in ("s", "r")] == [None, None]
    assert str(early.fault_at_end(True)).endswith("but request “s” has not finished.")
    # of a run that was cut short they come once too
    checker = checker_of(trace)
    assert [checker.fault(event) for event in trace.events[:3]] == [None] * 3
    assert checker.fault_of_texts("r", prompt, output[:3]) is None
    assert checker.fault_of_texts("r", prompt, output[:3]) == "these are the texts of no request."


def test_a_stop_string_is_missed_only_in_a_run_of_ours():
    asked = Request("r", "O Romeo, ", sampling=SamplingParams(9, ignore_eos=True))
    written = "".join(char_engine().run(Workload([asked])).texts.output["r"])
    asked = replace(asked, sampling=SamplingParams(9, stop=(written[2:5],), ignore_eos=True))
    trace = char_engine().run(Workload([asked]))
    prompt, output = trace.texts.prompt["r"], trace.texts.output["r"]
    assert trace.events[-1].finished[0].finish_reason == "stop" and len(output) < 9

    def fault(output: list[str], engine: EngineFacts | None = None) -> str | None:
        checker = checker_of(replace(trace, header=replace(trace.header, engine=engine)))
        assert [checker.fault(event) for event in trace.events] == [None] * len(trace.events)
        return checker.fault_of_texts("r", prompt, output)

    without = ["§"] * len(output)
    assert fault(output) is None
    assert fault(without) == "request “r” does not end with its stop string."
    assert fault(without, EngineFacts(name="other")) is None


def test_a_pool_that_nobody_asked_for_is_no_larger_than_its_lanes_can_use():
    """The longest request has 29 tokens, so 8 blocks of 4, in each of two lanes."""
    ran = memory_trace((7, 14), (9, 20), (9, 1), max_num_seqs=2, block_size=4)

    def with_pool(blocks: int) -> Trace:
        events = [with_kv(event, total=blocks) for event in ran.events]
        return replace(ran, header=replace(ran.header, num_blocks=blocks), events=events)

    assert verify(with_pool(16).lines(), lambda name: None).num_steps == len(ran.events)
    with pytest.raises(InvalidTrace, match=r"a pool of 17 blocks is more than 2 lanes can use\."):
        verify(with_pool(17).lines(), lambda name: None)
