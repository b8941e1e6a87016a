"""Small recordings by hand: who joins first, whoever is ended from outside at the very moment,
tokens beyond those asked for, who has ended in steps that are not on record, and what all that is
held against.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import InflightError
from core.recorders.compare import compare_steps, compare_totals, rank_of
from core.recorders.convert import checked_trace
from core.recorders.raw import Recording
from core.recorders.sequence import still_there
from core.trace.events import NOT_RECORDED, Draft, Finished, LimitReached, Overrun, Stalled
from core.trace.inferred import UNRECORDED
from core.trace.trace import Trace
from worlds.by_hand import HEADER as RECORDED

HEADER = {**RECORDED, "async_scheduling": True}
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


def test_who_gives_way_is_named_newest_first():
    """Of four blocks, `a` needs that of `d` and `b` that of `c`, recorded in the other order."""
    steps = [
        step(0, {r: (0, 3) for r in "abcd"}, **come("abcd")),
        step(1, {r: (3, 1) for r in "abcd"}),
        step(
            2,
            {"a": (4, 1), "b": (4, 1)},
            preempted=[["c", 4], ["d", 4]],
            blocks=[["a", [[3]], "append"], ["b", [[2]], "append"]],
            waiting=2,
        ),
    ]
    trace = checked_trace(Recording("x", {**HEADER, "num_blocks": 4}, steps))
    assert [event.warnings for event in trace.events] == [(), (), ()]
    assert [(p.request, p.lane) for p in trace.events[2].preempted] == [("d", 3), ("c", 2)]


def test_who_stalls_beside_a_preemption_lacks_a_block():
    """All five blocks are taken as `d` gives way to `b`, and `c` computes nothing. In the next step
    nobody gives way, so why `c` does not go on is not on record.
    """
    steps = [
        step(0, {r: (0, 3) for r in "abcd"}, **come("abcd")),
        step(1, {r: (3, 1) for r in "abcd"}),
        step(
            2,
            {"a": (4, 1), "b": (4, 1)},
            preempted=[["d", 4]],
            blocks=[["a", [[4]], "append"], ["b", [[3]], "append"]],
            waiting=1,
        ),
        step(3, {"a": (5, 1), "b": (5, 1)}, waiting=1),
    ]
    trace = checked_trace(Recording("x", {**HEADER, "num_blocks": 5}, steps))
    assert [event.warnings for event in trace.events] == [(), (), (), ()]
    assert [event.stalled for event in trace.events[1:]] == [
        (),
        (Stalled("c", LimitReached("blocks", 0, 1, 5)),),
        (Stalled("c", UNRECORDED),),
    ]


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


def gap() -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Steps, of which step 1 is missing, an end from outside and a snapshot.

    In step 1 `a` was ended from outside, `c` came to its end, of which a last row is still
    computed, and what became of `d` nobody recorded. Of those who came in it, `f` came first, and
    gave way; `g` and `h` came together.
    """

    def row(request: str, t: float, **more: Any) -> dict[str, Any]:
        known = {"request": request, "t": t, "prompt": [4, 5, 6], "max_tokens": 9}
        return {**known, "output": [], "computed": 0, "blocks": [], **more}

    there = {"output": [7, 7], "computed": 4, "preemptions": 1}
    snapshot = {
        "kind": "snapshot",
        "step": 2,
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
    grown = [["b", [[4]], "append"], ["c", [[5]], "append"]]
    steps = [
        step(0, {r: (0, 3) for r in "abcd"}, **come("abcd"), blocks_free=12),
        step(2, {"b": (4, 1), "c": (4, 1)}, waiting=4, head="e", blocks=grown, blocks_free=12),
    ]
    return steps, abort(2.0, "a"), snapshot


def test_a_token_beyond_the_last_one_asked_for_is_none_even_in_a_snapshot():
    """An engine that runs ahead may have sampled it by then; c asked for two."""
    steps, end, snapshot = gap()
    steps[0]["arrived"][2]["max_tokens"] = 2
    snapshot["requests"][1] |= {"finished": "length", "output": [7, 7, 8]}
    trace = opened(steps, aborts=[end], snapshots={2: snapshot})
    assert trace.outputs["c"] == [7, 7]


def test_a_snapshot_tells_who_is_there_and_how_the_others_ended():
    steps, end, snapshot = gap()
    trace = opened(steps, aborts=[end], snapshots={2: snapshot})
    gone = trace.events[1].resumed
    assert gone is not None
    times = {"f": 0.8, "e": 0.9, "g": 1.25, "h": 1.25}
    assert [(a.request, a.t) for a in gone.arrived] == list(times.items())
    assert {f.request: f.finish_reason for f in gone.ended} == {
        "a": "cancelled",
        "c": "stop",
        "d": NOT_RECORDED,
    }
    assert [(c.request, c.lane, c.tokens, c.was_preempted) for c in gone.carried] == [
        ("b", 1, (7,), False),
        ("c", 2, (7,), False),
        ("e", None, (), False),
        ("f", None, (), True),
        ("g", None, (), False),
        ("h", None, (), False),
    ]
    assert trace.events[1].overrun == (Overrun("c", 1),)


# -- held against their lines ----------------------------------------------------------------------


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_what_goes_on_after_missing_steps_is_held_against_its_lines(tmp_path):
    steps, end, snapshot = gap()
    trace = opened(steps, aborts=[end], snapshots={2: snapshot})
    lines = [steps[0], end, snapshot, steps[1], {"kind": "end", "dropped": 0}]
    found = compare_steps([written(tmp_path / "run.raw.jsonl", HEADER, *lines)], trace)
    both = ("positions", "tokens", "waiting", "preempted", "blocks", "shown")
    counts = {**dict.fromkeys(both, 2), "head": 1, "queue": 1}
    assert {one.fact: one.count for one in found} == counts
    assert [one.first for one in found if one.differ] == []
    # and of what two lines say otherwise, the first is named
    other = [{**line, "blocks_free": 11} for line in steps]
    found = compare_steps([written(tmp_path / "b.raw.jsonl", HEADER, *other)], trace)
    (blocks,) = [one for one in found if one.differ]
    assert (blocks.fact, blocks.count, blocks.differ) == ("blocks", 2, 2)
    assert blocks.first == "step 0: (5, 5) on record, (4, 4) in the trace"


def test_a_step_on_record_that_is_said_not_to_be_shown_is_accounted_for(tmp_path):
    """Step 1 is missing, and step 2 comes before the snapshot. Lines that are no record tell
    nothing.
    """
    (first, last), end, snapshot = gap()
    snapshot["step"] = 3
    last |= {
        name: last[name] + 1 for name in ("step", "t_start", "t_scheduled", "t_output", "t_end")
    }
    steps = [first, step(2, {"b": (3, 1)}), last]
    trace = opened(steps, aborts=[end], snapshots={3: snapshot})
    path = written(tmp_path / "run.raw.jsonl", HEADER | {"rank": 2}, *steps)
    path.write_text(path.read_text() + '[]\n{"kind":"step"}\n{]\n')
    found = {one.fact: one for one in compare_steps([path], trace)}
    assert (found["shown"].count, found["shown"].differ) == (3, 0)
    assert rank_of(path) == 2
    path.write_text("[]\n")
    assert rank_of(path) == 0


@pytest.mark.parametrize(
    ("is_ahead", "counted", "apart"),
    [(True, 8, 0), (True, 4, 4), (True, 3, None), (False, 6, 2), (False, 5, None), (True, 9, None)],
)
def test_of_whoever_is_ended_from_outside_a_token_a_step_in_flight_may_be_more(
    tmp_path, is_ahead, counted, apart
):
    """Two are ended from outside after eight tokens in all; vLLM's two front ends count theirs."""
    steps = [
        step(0, {"a": (0, 3), "b": (0, 3), "c": (0, 3)}, **come("abc")),
        step(1, {r: (3, 1) for r in "abc"}),
        step(2, {r: (4, 1) for r in "bc"}, blocks=[[r, [[ord(r) - 90]], "append"] for r in "bc"]),
        step(3, {}),
    ]
    header = HEADER | {"async_scheduling": is_ahead}
    trace = checked_trace(Recording("x", header, steps, [abort(1.75, "a"), abort(2.75, "b")]))
    assert sum(len(event.sampled) for event in trace.events) == 8
    metrics = tmp_path / "metrics.txt"
    metrics.write_text(
        f'vllm:generation_tokens_total{{engine="0"}} {counted - 1}.0\n'
        'vllm:generation_tokens_total{engine="1"} 1.0\n'
        "vllm:prefix_cache_hits_total 0.0\nvllm:external_prefix_cache_hits_total 2.0\n"
    )
    tokens, hits = compare_totals(metrics, [trace])
    assert (tokens.fact, tokens.differ) == ("generation_tokens", int(apart is None))
    assert tokens.apart == (apart or 0)
    assert hits.first == "in all: 2 on record, 0 in the trace"
    metrics.write_text("vllm:prefix_cache_hits_total 0.0\n")
    (hits,) = compare_totals(metrics, [trace])
    assert (hits.fact, hits.differ) == ("prefix_cache_hits", 0)
    for value in ("-1.0", "NaN", "+Inf", "1e999", "0.5", "1_0", "one"):
        metrics.write_text(f"vllm:generation_tokens_total 8.0\nvllm:other_total {value}\n")
        with pytest.raises(InflightError, match=r"^The counter other is .* which is no count"):
            compare_totals(metrics, [trace])
    metrics.write_text("vllm:other_total 1.0\n")
    with pytest.raises(InflightError, match=r"^metrics\.txt has no counters of vLLM"):
        compare_totals(metrics, [trace])


@pytest.mark.parametrize(
    ("output", "start", "there"),
    [({"t_output": 3.0}, 2.0, {"a", "b"}), ({"t_output": 3.0}, 3.0, {"b"}), ({}, 1.0, {"b"})],
)
def test_who_ends_is_still_there_in_a_step_that_was_scheduled_before_it_was_known(
    output, start, there
):
    """a ends in a step that begins at 1 s, and b has a row in the one after it."""
    ends = {"t_start": 1.0, "finished": [["a", "stop"]], **output}
    assert still_there(ends, {"t_start": start, "segments": [{"request": "b"}]}) == there
