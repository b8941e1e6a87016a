"""Small recordings by hand: who joins first, whoever is ended from outside at the very moment,
tokens beyond those asked for, and who has ended in steps that are not on record.
"""

from __future__ import annotations

from typing import Any

from core.recorders.convert import checked_trace
from core.recorders.raw import Recording
from core.trace.events import NOT_RECORDED, Draft, Finished, Overrun
from core.trace.trace import Trace

HEADER = {
    "kind": "header",
    "raw": 1,
    "engine": "vllm",
    "version": "0",
    "vocab_size": 50,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 16,
    "block_size": 4,
    "num_blocks": 16,
    "first_block": 0,
    "async_scheduling": True,
}
Rows = dict[str, tuple[int, int]]


def step(number: int, computed: Rows, **more: Any) -> dict[str, Any]:
    """A second. computed: by request, the first position and how many; each gets one token."""
    rows = [
        {"request": r, "start": s, "length": n, "num_tokens": s + n, "draft": 0}
        for r, (s, n) in computed.items()
    ]
    t = float(number)
    return {
        **{"kind": "step", "step": number, "budget": 16, "waiting": 0},
        **{"t_start": t, "t_scheduled": t + 0.25, "t_output": t + 0.5, "t_end": t + 0.75},
        **dict.fromkeys(("arrived", "preempted", "admitted", "blocks", "finished"), ()),
        **{"segments": rows, "sampled": {r: [7] for r in computed}, **more},
    }


def come(names: str, max_tokens: int = 9) -> dict[str, Any]:
    """Requests of three tokens come and join at once, in this order, each with a block."""
    asked = {"t": 0.0, "prompt": [4, 5, 6], "max_tokens": max_tokens}
    return {
        "arrived": [{"request": r, **asked} for r in names],
        "admitted": [{"request": r, "cached": 0} for r in names],
        "blocks": [[r, [[at]], "table"] for at, r in enumerate(names)],
    }


def opened(steps: list[dict[str, Any]], **more: Any) -> Trace:
    trace = checked_trace(Recording("x", HEADER, steps, **more))
    assert [event.warnings for event in trace.events if event.warnings] == []
    return trace


def abort(t: float, request: str) -> dict[str, Any]:
    return {"kind": "abort", "t": t, "requests": [request]}


def test_lanes_are_taken_in_the_order_of_the_rows_whoever_is_named_first():
    """So are their blocks, in which `a` may look for what `b` computes; the rows of a pass may lie
    otherwise.
    """
    rows = {"b": (0, 3), "a": (0, 3)}
    (event,) = opened([step(0, rows, **come("ab"), row_order=["a", "b"])]).events
    assert [(a.request, a.lane) for a in event.admitted] == [("b", 0), ("a", 1)]
    assert [change.request for change in event.kv.changes] == ["b", "a"]
    assert [segment.request for segment in event.segments] == ["a", "b"]


def test_whoever_is_ended_as_a_step_begins_is_gone_and_as_its_output_comes_is_read():
    """`a` at 1.0 s, as step 1 begins, which names its end once more; `b` at 2.5 s, as step 2 is
    read.
    """
    steps = [
        step(0, {"a": (0, 3), "b": (0, 3), "c": (0, 3)}, **come("abc")),
        step(1, {"b": (3, 1), "c": (3, 1)}, finished=[["a", "abort"]]),
        step(
            2, {"b": (4, 1), "c": (4, 1)}, blocks=[["b", [[4]], "append"], ["c", [[5]], "append"]]
        ),
        step(3, {"c": (5, 1)}),
    ]
    trace = opened(steps, aborts=[abort(1.0, "a"), abort(2.5, "b")])
    assert [event.finished for event in trace.events] == [
        (),
        (Finished("a", "cancelled", 1.0),),
        (),
        (Finished("b", "cancelled", 2.5),),
    ]
    assert not any(event.overrun for event in trace.events)
    # a moment earlier, its row is computed in vain
    earlier = opened(steps, aborts=[abort(1.0, "a"), abort(2.4, "b")])
    assert [event.overrun for event in earlier.events] == [(), (), (Overrun("b", 1),), ()]


def test_of_guesses_that_are_right_no_more_are_taken_than_were_asked_for():
    """Three guesses, two of them right, for a request that may have three tokens and has one."""
    guessed = step(1, {"a": (3, 4)}, sampled={"a": [7, 8, 9]}, finished=[["a", "length"]])
    guessed["segments"][0] |= {"num_tokens": 4, "draft": 3}
    guessed["blocks"] = [["a", [[1]], "append"]]
    trace = opened([step(0, {"a": (0, 3)}, **come("a", max_tokens=3)), guessed])
    assert trace.outputs["a"] == [7, 7, 8]
    assert trace.events[1].drafts == (Draft("a", 3, 1),)


def test_numbers_of_a_token_are_kept_within_their_bounds_and_are_of_one_token():
    """In half precision a logarithm may come out above zero, and a margin below it."""
    numbers = {"a": [1e-6, 1e-6, -20.0], "b": [-0.75, -0.75, -0.7]}
    first = step(0, {"a": (0, 3), "b": (0, 3)}, **come("ab"), logprobs=numbers)
    guessed = step(1, {"a": (3, 2), "b": (3, 1)}, logprobs={"a": [-1.0, -1.0, -2.0]})
    guessed["sampled"] = {"a": [7, 8], "b": [7]}
    guessed["segments"][0] |= {"num_tokens": 4, "draft": 1}
    guessed["blocks"] = [["a", [[2]], "append"]]
    events = opened([first, guessed]).events
    assert [(s.logprob, s.margin) for s in events[0].sampled] == [(0.0, 20.000001), (-0.75, 0.0)]
    assert [(s.logprob, s.margin) for s in events[1].sampled] == [(None, None)] * 3


def test_a_snapshot_tells_who_is_there_and_how_the_others_ended():
    """Step 1 is missing: in it `a` was ended from outside, `c` came to its end, of which a last row
    is still computed, and what became of `d` nobody recorded. Of those who came in it, `f` came
    first, and gave way; `g` and `h` came together.
    """

    def row(request: str, t: float, **more: Any) -> dict[str, Any]:
        known = {"request": request, "t": t, "prompt": [4, 5, 6], "max_tokens": 9}
        return {**known, "output": [], "computed": 0, "blocks": [], **more}

    there = {"output": [7, 7], "computed": 4, "preemptions": 1}
    snapshot = {
        "running": ["b", "c"],
        "waiting": ["e", "f", "g", "h"],
        "requests": [
            row("b", 0.0, blocks=[[1]], **there),
            row("c", 0.0, blocks=[[2]], finished="stop", **there),
            row("e", 0.9),
            row("f", 0.8, preemptions=1),
            row("g", 1.25),
            row("h", 1.25),
        ],
    }
    steps = [
        step(0, {r: (0, 3) for r in "abcd"}, **come("abcd")),
        step(
            2,
            {"b": (4, 1), "c": (4, 1)},
            waiting=4,
            blocks=[["b", [[4]], "append"], ["c", [[5]], "append"]],
        ),
    ]
    trace = opened(steps, aborts=[abort(2.0, "a")], snapshots={2: snapshot})
    gap = trace.events[1].resumed
    assert gap is not None
    times = {"f": 0.8, "e": 0.9, "g": 1.25, "h": 1.25}
    assert [(a.request, a.t) for a in gap.arrived] == list(times.items())
    assert {f.request: f.finish_reason for f in gap.ended} == {
        "a": "cancelled",
        "c": "stop",
        "d": NOT_RECORDED,
    }
    assert [(c.request, c.lane, c.tokens, c.was_preempted) for c in gap.carried] == [
        ("b", 1, (7,), False),
        ("c", 2, (7,), False),
        ("e", None, (), False),
        ("f", None, (), True),
        ("g", None, (), False),
        ("h", None, (), False),
    ]
    assert trace.events[1].overrun == (Overrun("c", 1),)
