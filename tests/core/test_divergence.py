"""Fork here: the first decision that differs, named with the numbers of both runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import InflightError
from core.trace.divergence import divergence, knobs
from core.trace.messages import english
from worlds.small import memory_trace

ROWS = ((5, 6), (4, 6), (6, 6, 1), (3, 4, 2))


def fork(rows=ROWS, before=None, after=None):
    base = {"max_num_seqs": 3, "max_num_batched_tokens": 16, "block_size": 4}
    return divergence(
        memory_trace(*rows, **(base | (before or {}))),
        memory_trace(*rows, **(base | (after or {}))),
    )


def test_equal_runs_do_not_part_whatever_their_times():
    assert fork() is None


def test_a_limit_that_never_binds_changes_no_decision():
    assert fork(after={"max_num_batched_tokens": 64}) is None


def test_fewer_lanes_make_a_request_wait():
    found = fork(after={"max_num_seqs": 2})
    assert (found.step, found.aspect, found.request) == (1, "admission", "r2")
    assert (
        found.sentence({"r2": "C"}.get)
        == "Fork at step 1: with 3 lanes C takes lane 2; with 2 lanes C waits: both lanes are"
        " taken."
    )
    assert found.same_tokens
    assert [(k.name, k.before, k.after) for k in found.knobs] == [("max_num_seqs", 3, 2)]
    assert found.to_json()["knobs"] == [{"name": "max_num_seqs", "before": 3, "after": 2}]


def test_a_smaller_budget_cuts_a_prompt():
    found = fork(rows=((9, 4),), after={"max_num_batched_tokens": 4})
    assert found.step == 0 and found.aspect == "work"
    assert (
        found.sentence()
        == "Fork at step 0: with a token budget of 16 r0 computes 9 tokens; with a token budget of"
        " 4 r0 computes 4 tokens."
    )


def test_of_several_passes_the_first_that_computes_it_is_named():
    found = fork(rows=((5, 3), (2, 3)), before={"policy": "split"}, after={"policy": "continuous"})
    assert (found.aspect, found.request) == ("work", "r0")
    assert english(found.before) == "computes 6 tokens in pass 1 of 3"


def test_another_policy_lays_the_same_work_out_differently():
    found = fork(
        rows=((5, 3), (2, 3)), before={"policy": "dynamic"}, after={"policy": "continuous"}
    )
    assert found.aspect == "layout"
    assert (
        english(found.before) == "one pass of 7 tokens and 3 pads"
        and english(found.after) == "one pass of 7 tokens, no padding"
    )


def test_who_joins_beyond_the_budget_is_told_that_static_has_none():
    found = fork(rows=((16, 4), (2, 4)), after={"policy": "static"})
    assert (
        found.sentence({"r1": "B"}.get)
        == "Fork at step 0: with the policy continuous B waits: the budget of 16 tokens is spent;"
        " with the policy static B takes lane 1: this policy has no token"
        " budget, only the barrier between waves."
    )


def test_too_few_blocks_preempt():
    found = fork(rows=((6, 10), (6, 10)), before={"num_blocks": 20}, after={"num_blocks": 5})
    assert found.aspect in ("preemption", "admission", "work")
    assert found.same_tokens and found.steps[1] > found.steps[0]
    assert "5 KV blocks" in found.sentence()


def test_one_run_ends_before_the_other():
    a = memory_trace((3, 4), max_num_seqs=1)
    b = memory_trace((3, 4), max_num_seqs=1)
    b.events.pop()
    found = divergence(a, b)
    assert (
        found.step == 3
        and found.after == "has nothing left to do"
        and english(found.before) == "computes 1 token"
    )
    assert not found.same_tokens and not found.knobs
    assert found.sentence().startswith("Fork at step 3: in the first run computes 1 token")


def test_a_run_without_a_step_that_the_other_has_goes_on_or_is_over():
    whole = memory_trace(*ROWS)
    *before, left_out, last = whole.events
    found = divergence(whole, replace(whole, events=[*before, last]))
    assert (found.step, found.after) == (left_out.step, "computes nothing")
    for events, step in (([*before, left_out], last.step), ([], 0)):
        found = divergence(whole, replace(whole, events=events))
        assert (found.step, found.after) == (step, "has nothing left to do")


def test_a_budget_is_not_named_where_the_other_run_waits_for_a_lane():
    found = fork(rows=((2, 4),) * 3, before={"max_num_seqs": 2}, after={"policy": "static"})
    assert found.before == "waits: both lanes are taken" and found.after == "takes lane 2"


def test_a_different_token_is_a_fork():
    a, b = memory_trace((3, 3)), memory_trace((3, 3))
    event = b.events[1]
    b.events[1] = event._replace(
        sampled=(event.sampled[0]._replace(token_id=event.sampled[0].token_id + 1),)
    )
    found = divergence(a, b)
    assert (found.step, found.aspect, found.request) == (1, "token", "r0") and not found.same_tokens


def test_times_are_not_decisions():
    a, b = memory_trace((3, 3)), memory_trace((3, 3))
    b.events = [e._replace(t_start=e.t_start + 5, t_end=e.t_end + 9) for e in b.events]
    assert divergence(a, b) is None


def test_other_requests_cannot_be_compared():
    with pytest.raises(InflightError, match="different requests"):
        divergence(memory_trace((3, 3)), memory_trace((3, 4)))


def test_knobs_name_every_limit_that_differs():
    found = knobs(
        memory_trace((3, 3), max_num_seqs=2),
        memory_trace((3, 3), max_num_seqs=4, chunked_prefill=False),
    )
    assert [k.of(k.after) for k in found] == ["4 lanes", "chunked prefill off"]
