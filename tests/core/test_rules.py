"""The rules of a recorded run, one broken at a time: everything else about the forged step is as it
should be.
"""

from __future__ import annotations

import pytest

from core import Request, SamplingParams, Workload
from core.trace.events import Preempted, StepEvent, Timings
from core.trace.rules.bounds import parts_fit
from core.trace.rules.checker import Checker
from core.trace.trace import Trace
from worlds.serving import char_engine
from worlds.small import checker_of, memory_trace


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
