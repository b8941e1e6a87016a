"""A recording that says two things of one fact: it is refused, or a note or a warning says so; and
the same recording unaltered has neither.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.errors import InvalidTrace
from core.recorders.convert import checked_trace
from core.recorders.raw import gathered
from core.trace.trace import Trace

DATA = Path(__file__).resolve().parents[1] / "data"
Lines = list[dict[str, Any]]
Forge = Callable[[Lines], None]


@cache
def _text(name: str) -> bytes:
    return gzip.decompress((DATA / f"vllm-0.32{name}.raw.jsonl.gz").read_bytes())


def lines_of(name: str) -> Lines:
    return [json.loads(line) for line in _text(name).splitlines()]


def opened(*parts: Lines) -> Trace:
    (recording,) = gathered(
        (f"part{n}", [json.dumps(line) + "\n" for line in lines]) for n, lines in enumerate(parts)
    )
    return checked_trace(recording)


@cache
def _honest(name: str) -> Trace:
    return opened(lines_of(name))


def steps(lines: Lines) -> Lines:
    return [line for line in lines if line["kind"] == "step"]


def arrivals(lines: Lines) -> Lines:
    return [arrived for step in steps(lines) for arrived in step["arrived"]]


def told(trace: Trace) -> list[str]:
    return [*trace.header.notes, *(said for event in trace.events for said in event.warnings)]


def each(**facts: Any) -> Forge:
    """Every arrival says this, and the snapshots what was so."""

    def forge(lines: Lines) -> None:
        for arrived in arrivals(lines):
            arrived.update(facts)

    return forge


def header(**facts: Any) -> Forge:
    return lambda lines: lines[0].update(facts)


def of_step(number: int, **facts: Any) -> Forge:
    return lambda lines: steps(lines)[number].update(facts)


def other_prompts(lines: Lines) -> None:
    for arrived in arrivals(lines):
        arrived["prompt"][0] += 1


def of_a_running_one(lines: Lines) -> None:
    step = steps(lines)[8]
    step["head"] = step["segments"][0]["request"]


def scheduled_after_its_output(lines: Lines) -> None:
    step = steps(lines)[8]
    step["t_scheduled"] = step["t_output"] + 1e-3


def without_prompts(lines: Lines) -> None:
    for arrived in arrivals(lines)[:2]:
        arrived["num_prompt"] = len(arrived.pop("prompt"))


@pytest.mark.parametrize(
    ("name", "forge", "says"),
    [
        ("-snapshots", other_prompts, "does not ask for the same in both"),
        ("-snapshots", each(temperature=0.25), "does not ask for the same in both"),
        ("-snapshots", each(ignore_eos=False), "does not ask for the same in both"),
        ("", of_a_running_one, "said to be the head of the queue, but is not"),
        ("", header(num_blocks=11), "counts other blocks as free than its block tables leave"),
        ("-snapshots", of_step(9, blocks_free=7), "counts other blocks as free than its block"),
        ("-two-ranks.rank0", header(vocab_size=100), "beyond the vocabulary of 100"),
        ("-two-ranks.rank0", without_prompts, "Of 2 requests the prompt is not on record"),
        ("-two-ranks.rank0", scheduled_after_its_output, "clock of this recording runs backwards"),
    ],
)
def test_what_is_said_twice_and_not_alike_is_told(name: str, forge: Forge, says: str) -> None:
    assert not told(_honest(name))
    lines = lines_of(name)
    forge(lines)
    assert any(says in said for said in told(opened(lines)))


def workload(lines: Lines, **of_each: Any) -> None:
    """A workload as its driver writes it: who asked, and for what."""
    asked = [
        {
            "id": arrived["request"],
            "prompt_token_ids": arrived["prompt"],
            "sampling": {
                "max_new_tokens": arrived["max_tokens"],
                "temperature": arrived["temperature"],
                "ignore_eos": arrived["ignore_eos"],
                "seed": 5,  # of ours, which has no part in another engine's noise
            },
        }
        | copy.deepcopy(of_each)
        for arrived in arrivals(lines)
    ]
    lines[0]["workload"] = {"schema": 1, "name": "w", "arrival_unit": "step", "requests": asked}


def test_a_workload_is_that_of_the_steps() -> None:
    lines = lines_of("-two-ranks.rank0")
    for arrived in arrivals(lines):
        arrived.setdefault("ignore_eos", True)
    workload(lines)
    asked = lines[0]["workload"]["requests"]
    assert opened(lines).workload.name == "w"
    for name, value in (("max_new_tokens", 99), ("temperature", 0.5), ("ignore_eos", False)):
        was, asked[1]["sampling"][name] = asked[1]["sampling"][name], value
        assert was != value
        with pytest.raises(InvalidTrace, match="is another one in its workload than in its steps"):
            opened(lines)
        asked[1]["sampling"][name] = was
    # but an engine cuts what exceeds its context
    longest = [len(r["prompt_token_ids"]) + r["sampling"]["max_new_tokens"] for r in asked]
    lines[0]["max_model_len"] = max(longest)
    asked[longest.index(max(longest))]["sampling"]["max_new_tokens"] = 99
    assert opened(lines).workload.name == "w"
    asked[1]["prompt_token_ids"] = [*asked[1]["prompt_token_ids"][1:], 3]
    with pytest.raises(InvalidTrace, match="is another one in its workload"):
        opened(lines)
    del asked[1]
    with pytest.raises(InvalidTrace, match="is another one in its workload"):
        opened(lines)


@pytest.mark.parametrize(
    ("numbers", "is_possible"),
    [
        ([-1.5, -1.5, -2.0], True),
        ([-2.0, -1.5, -2.0], True),
        ([0.0, 4e-7, -20.0], True),  # rounded
        ([-1.5, -1.5, -1.45], True),  # in half precision
        ([0.5, 0.5, -2.0], False),
        ([-1.5, -1.5, -1.0], False),
        ([-1.0, -1.5, -2.0], False),
        (["a", "b", "c"], False),
    ],
)
def test_no_token_is_more_probable_than_the_best(numbers: list[Any], is_possible: bool) -> None:
    """Own, best and second best: a step with others is damaged."""
    lines = lines_of("")
    number, step = next((n, s) for n, s in enumerate(steps(lines)) if s.get("sampled"))
    request = next(iter(step["sampled"]))
    step["logprobs"] = {request: numbers}
    if is_possible:
        sampled = next(s for s in opened(lines).events[number].sampled if s.request == request)
        assert sampled.logprob is not None and sampled.logprob <= 0 <= (sampled.margin or 0)
        return
    with pytest.raises(InvalidTrace, match=f"^Step {number} is damaged in part0"):
        opened(lines)


@pytest.mark.parametrize("is_twice", [True, False])
def test_each_request_computes_once_in_a_step_and_no_other_gets_a_token(is_twice: bool) -> None:
    lines = lines_of("-two-ranks.rank0")
    step = steps(lines)[8]
    if is_twice:
        step["segments"].append(step["segments"][0])
    else:
        step["sampled"]["nobody"] = [4]
    why = "a request computes twice" if is_twice else "request 'nobody' gets a token"
    with pytest.raises(InvalidTrace, match=f"^Step 8 is damaged in part0 .{why}"):
        opened(lines)


def test_an_end_counts_what_was_dropped() -> None:
    lines = [line for line in lines_of("-two-ranks.rank0") if line["kind"] != "end"]
    for dropped, says in ((3, "dropped 3 records"), (-3, "no record"), (0.5, "no record")):
        notes = opened([*lines, {"kind": "end", "dropped": dropped}]).header.notes
        assert len(notes) == 1 and says in notes[0]


def test_the_parts_of_a_recording_have_one_header() -> None:
    lines = lines_of("-snapshots")
    half = len(lines) // 2
    for facts in ({}, {"line": 90}, {"num_blocks": 500}, {"dtype": "float16"}, {"policy": None}):
        second = [{**lines[0], "part": 2, **facts}, *lines[half:]]
        if {"line", *facts} == {"line"}:
            assert len(opened(lines[:half], second).events) == len(steps(lines))
            continue
        with pytest.raises(InvalidTrace, match="are two recordings of rank 0"):
            opened(lines[:half], second)
