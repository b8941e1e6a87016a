"""Where a preempted request waits in another engine's queue: at its end in transformers, at its
head in vLLM. Recordings that do not name the head.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import InvalidTrace
from core.proof.verify import verify
from core.recorders.convert import checked_trace
from core.recorders.follow import Follower
from core.recorders.raw import gathered
from core.trace.events import StepEvent
from worlds.small import memory_engine, next_token

NEXT = {"transformers": ["c", "b"], "vllm": ["b", "c"]}  # after b was preempted while c waited


def step(number: int, computed: dict[str, tuple[int, int]], **more: Any) -> dict[str, Any]:
    """computed: by request, the first position and how many; its tokens are then one more."""
    t = number / 100
    rows = [
        {"request": r, "start": s, "length": n, "num_tokens": s + n, "draft": 0}
        for r, (s, n) in computed.items()
    ]
    facts = {
        "arrived": [],
        "preempted": [],
        "admitted": [],
        "blocks": [],
        "finished": [],
        "waiting": 0,
        "budget": 16,
    }
    times = {"t_start": t, "t_scheduled": t + 0.001, "t_output": t + 0.002, "t_end": t + 0.003}
    return {
        "kind": "step",
        "step": number,
        **times,
        **facts,
        "segments": rows,
        "sampled": {r: [7] for r in computed},
        **more,
    }


def come(names: str, t: float) -> list[dict[str, Any]]:
    return [
        {"request": r, "t": t, "prompt": [4, 5, 6, 7], "max_tokens": 3 if r == "x" else 9}
        for r in names
    ]


def grows(request: str, block: int) -> list[Any]:
    return [request, [[block]], "append"]


def let_in(names: str, first: int, *more: list[Any]) -> dict[str, Any]:
    """The requests join with a block each, from `first` on. more: of others."""
    blocks = [*([r, [[first + i]], "table"] for i, r in enumerate(names)), *more]
    return {"admitted": [{"request": r, "cached": 0} for r in names], "blocks": blocks}


PREEMPTS = [
    step(
        1,
        {"x": (4, 1), "a": (0, 4), "b": (0, 4)},
        arrived=come("abc", 0.005),
        **let_in("ab", 2, grows("x", 1)),
        waiting=1,
    ),
    step(
        2,
        {"x": (5, 1), "a": (4, 1)},
        preempted=[["b", 4]],
        blocks=[grows("a", 3)],
        waiting=2,
        finished=[["x", "length"]],
    ),
    step(3, {"a": (5, 1)}, waiting=2),
]
BEGINS = step(0, {"x": (0, 4)}, arrived=come("x", 0.0), **let_in("x", 0))


def lines(engine: str, steps: list[dict[str, Any]]) -> list[str]:
    limits = {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 16,
        "block_size": 4,
        "num_blocks": 4,
        "first_block": 0,
    }
    header = {
        "kind": "header",
        "raw": 1,
        "engine": engine,
        "version": "0",
        "vocab_size": 50,
        **limits,
    }
    return [f"{json.dumps(record)}\n" for record in (header, *steps)]


def as_the_model_says(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same steps with the tokens of `MemoryModel`."""
    ids: dict[str, list[int]] = {}
    told = []
    for one in steps:
        ids |= {arrived["request"]: list(arrived["prompt"]) for arrived in one["arrived"]}
        sampled = {r: [next_token(ids.setdefault(r, [4, 5, 6, 7]))] for r in one["sampled"]}
        for request, tokens in sampled.items():
            ids[request] += tokens
        told.append(one | {"sampled": sampled})
    return told


def heads(events: list[StepEvent]) -> list[str | None]:
    return [event.waiting.request for event in events]


@pytest.mark.parametrize("engine", NEXT)
def test_a_preempted_request_waits_where_its_engine_puts_it(engine: str, tmp_path: Path) -> None:
    whole = lines(engine, [BEGINS, *PREEMPTS])
    (recording,) = gathered([("run.raw.jsonl", iter(whole))])
    trace = checked_trace(recording)
    assert heads(trace.events) == [None, "c", NEXT[engine][0], NEXT[engine][0]]
    assert [[*state.waiting] for _, state in trace.states()] == [[], ["c"], *[NEXT[engine]] * 2]
    assert not [event.warnings for event in trace.events if event.warnings]
    assert "blocks" not in verify(trace.lines()).never_bound  # somebody gave way for want of them
    place = tmp_path / "run.raw.jsonl"
    place.write_text("".join(whole), encoding="utf-8")
    follower = Follower(place)
    seen = [
        update for _ in range(30) for update in follower.poll() if isinstance(update, StepEvent)
    ]
    assert heads(seen) == heads(trace.events)


@pytest.mark.parametrize("engine", NEXT)
def test_where_the_queue_could_only_be_worked_out_nothing_is_shown(engine: str) -> None:
    """Step 0 is missing; once its request has ended, the others are wholly on record."""
    (recording,) = gathered([("run.raw.jsonl", iter(lines(engine, PREEMPTS)))])
    with pytest.raises(InvalidTrace, match="Step 0 is missing in run.raw.jsonl, and there is no"):
        checked_trace(recording)


def test_tokens_of_steps_that_are_not_shown_are_run_again_too() -> None:
    """A request of which the first tokens are known from its state after the gap alone."""
    steps = as_the_model_says(PREEMPTS)
    snapshot = {
        "kind": "snapshot",
        "step": 3,
        "t": 0.03,
        "running": ["a"],
        "waiting": ["b", "c"],
        "requests": [
            arrived
            | {
                "computed": computed,
                "output": [s["sampled"][r][0] for s in steps[:2] if r in s["sampled"]],
                "blocks": blocks,
            }
            for arrived, computed, blocks in zip(
                come("abc", 0.005), (5, 0, 0), ([[2, 3]], [[]], [[]]), strict=True
            )
            for r in arrived["request"]
        ],
    }
    (recording,) = gathered(
        [("run.raw.jsonl", iter(lines("vllm", [*steps[:2], snapshot, steps[2]])))]
    )
    trace = checked_trace(recording)
    assert [len(carried.tokens) for carried in trace.events[0].resumed.carried] == [2, 1, 0]
    found = verify(trace.lines(), engine=lambda _: memory_engine())
    assert found.rerun is not None and found.rerun.tokens == found.num_tokens == 4
