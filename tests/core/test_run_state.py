"""A run's state: copies that go their own way, what is forgotten, and who goes on after a gap."""

from __future__ import annotations

from core.trace.events import (
    KV,
    Admitted,
    Arrived,
    BlockChange,
    Carried,
    Finished,
    LaneReleased,
    LimitReached,
    Preempted,
    Resumed,
    Waiting,
)
from core.trace.run_state import RunState
from worlds.by_hand import computes, event


def running(*requests: str) -> RunState:
    """Each holds a lane and a block."""
    state = RunState.of(dict.fromkeys(requests, 4))
    for lane, request in enumerate(requests):
        state.arrive(0, Arrived(request, 0.0))
        state.admit(Admitted(request, lane, LimitReached("none", 0, 0, 0)), 0)
        state.take_blocks(KV(1, 9, (BlockChange(request, (lane,), False),)))
    return state


def test_a_copy_and_what_it_was_made_of_change_by_themselves():
    state = running("a", "b")
    copy = state.copy()
    state.take_blocks(
        KV(3, 9, (BlockChange("a", (5,), False), BlockChange("b", (), False, 0, (1,))))
    )
    state.arrive(1, Arrived("c", 0.0))
    state.preempt(1, Preempted("a", 0, 0))
    assert copy.tables == {"a": {0: [0]}, "b": {0: [1]}}
    assert copy.lanes == {0: "a", 1: "b"} and not copy.waiting and not copy.lost
    assert state.tables["b"] == {0: [None]}


def test_who_is_forgotten_leaves_nothing_behind():
    state = running("a", "b")
    state.compute(computes("a", 0, 4))
    state.preempt(1, Preempted("a", 4, 0))
    state.finish(2, Finished("a", "cancelled", 0.1))
    state.keep({"b"})
    known = {name: value for name, value in vars(state).items() if isinstance(value, dict)}
    assert not any("a" in value for name, value in known.items() if name != "freed")
    assert not state.waiting and state.running == ["b"]


def test_who_was_preempted_in_steps_that_are_not_shown_waits_since_then():
    state = running("a", "b")
    gap = Resumed(
        1,
        6,
        6,
        (),
        (),
        (Carried("b", 1, 5, (), ((1,),), False),),
        (Carried("a", None, 0, (), (), True),),
    )
    state.begin(event(7, resumed=gap))
    assert list(state.waiting) == ["a"] and state.since == {"a": 7, "b": 0}
    assert state.lost == {"a": 0} and state.lanes == {1: "b"} and state.computed == {"b": 5}
    assert state.tables == {"b": {0: [1]}} and not state.freed


def test_who_is_next_stands_first_and_alone_has_a_reason():
    state = running("a")
    for request in ("b", "c"):
        state.num_tokens[request] = 3
        state.arrive(1, Arrived(request, 0.0))
    why = LimitReached("lanes", 0, 1, 1)
    rows = state.frame(event(1, waiting=Waiting(2, "c", why))).waiting
    assert [(row.request, row.since, row.why) for row in rows] == [("c", 1, why), ("b", 1, None)]


def test_a_table_is_held_while_the_passes_run_and_given_back_after():
    state = running("a", "b")
    last = event(
        3,
        finished=(Finished("a", "length"),),
        released=(LaneReleased("a", 0, "after"),),
        kv=KV(2, 9, (BlockChange("a", (), True),)),
    )
    state.begin(last)
    assert state.tables["a"] == {0: [0]}
    state.end(last)
    assert "a" not in state.tables and state.freed[0].step == 3
    gone = last._replace(released=(LaneReleased("b", 1, "before"),), finished=())
    state.begin(gone._replace(kv=KV(0, 9, (BlockChange("b", (), True),))))
    assert not state.tables
