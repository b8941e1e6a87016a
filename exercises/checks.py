"""Checks each exercise against the engine: the first step, cell or call at which they differ, in one sentence."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from core.config import EngineConfig
from core.simulate.cost import cost_named
from core.simulate.engine import SimulatedEngine
from core.trace.events import Pass, Segment, StepEvent
from core.trace.mask import mask_of
from core.trace.messages import english
from core.trace.run_state import RunState
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from exercises.given import Chunk, RequestProgress

ROUNDS = 12


class Result(NamedTuple):
    """fault: what is wrong, or None. trace: for a scheduler, the run up to and including the first step that differs."""

    fault: str | None
    trace: Trace | None = None


def static(answers: ModuleType) -> Result:
    return _scheduler("static", lambda config, *given: answers.schedule_static(*given, config.max_num_seqs))


def continuous(answers: ModuleType) -> Result:
    return _scheduler(
        "continuous",
        lambda config, *given: answers.schedule_continuous(*given, config.max_num_seqs, config.max_num_batched_tokens),
    )


def mask(answers: ModuleType) -> Result:
    draw = random.Random(1)
    for _ in range(ROUNDS):
        chunks, segments = [], []
        for lane in range(draw.randint(1, 4)):
            start = draw.choice((0, 0, draw.randint(1, 6)))
            end = start + (1 if start and draw.random() < 0.6 else draw.randint(1, 5))
            chunks.append(Chunk("ABCD"[lane], start, end))
            segments.append(Segment(0, "ABCD"[lane], lane, "prefill" if end - start > 1 else "decode", start, end - start, end))
        tokens = sum(s.length for s in segments)
        expected = mask_of(Pass("packed", 1, tokens, tokens, 0, 0.0, 0.0), segments, lambda request, position: "")
        found = answers.block_diagonal_mask(chunks)
        if not isinstance(found, list) or not all(isinstance(row, list) for row in found):
            return Result(f"It returned {found!r}, not a list of rows, each a list of True and False.")
        shape = [len(row) for row in found]
        if shape != [len(expected.keys)] * len(expected.queries):
            return Result(f"For {chunks} the mask must have {len(expected.queries)} rows of {len(expected.keys)} cells.")
        for q, row in enumerate(found):
            for k, cell in enumerate(row):
                if bool(cell) != expected.allowed[q][k]:
                    query, key = expected.queries[q], expected.keys[k]
                    may = "may look" if expected.allowed[q][k] else "must not look"
                    return Result(
                        f"For {chunks}: position {query.position} of {query.request} {may} at key {key.position} of {key.request}."
                    )
    return Result(None)


def blocks(answers: ModuleType) -> Result:
    draw = random.Random(2)
    for _ in range(ROUNDS):
        num_blocks, size = draw.randint(2, 12), draw.choice((1, 2, 4, 8))
        pool, lengths = answers.Blocks(num_blocks, size), {name: 0 for name in "ABCDE"}
        for _ in range(60):
            name = draw.choice("ABCDE")
            if draw.random() < 0.25:
                pool.release(name)
                lengths[name] = 0
            else:
                wanted = lengths[name] + draw.randint(1, 2 * size)
                before = {other: list(pool.table(other)) for other in lengths}
                lacking = -(-wanted // size) - len(before[name])
                fits = lacking <= num_blocks - sum(map(len, before.values()))
                if bool(pool.grow(name, wanted)) != fits:
                    return Result(f"{name} needs {lacking} more blocks for {wanted} positions: grow must return {fits}.")
                if fits:
                    lengths[name] = wanted
                elif {other: list(pool.table(other)) for other in lengths} != before:
                    return Result("A grow that returns False must change nothing.")
            if fault := _pool_fault(pool, lengths, num_blocks, size):
                return Result(fault)
    return Result(None)


EXERCISES: dict[str, Callable[[ModuleType], Result]] = {
    "static": static,
    "continuous": continuous,
    "mask": mask,
    "blocks": blocks,
}


def _pool_fault(pool: Any, lengths: dict[str, int], num_blocks: int, size: int) -> str | None:
    tables = {name: list(pool.table(name)) for name in lengths}
    held = [block for table in tables.values() for block in table]
    if len(set(held)) < len(held):
        return "A block was handed out twice."
    if any(not 0 <= block < num_blocks for block in held):
        return f"There are only blocks 0 to {num_blocks - 1}."
    for name, length in lengths.items():
        if len(tables[name]) != -(-length // size):
            return f"{name} has {length} positions and needs {-(-length // size)} blocks of {size}, not {len(tables[name])}."
        for position in range(length):
            if pool.slot(name, position) != tables[name][position // size] * size + position % size:
                return (
                    f"Position {position} of {name} lies in block {tables[name][position // size]}, at offset {position % size}."
                )
    return None


def _scheduler(policy: str, ask: Callable[..., dict[str, int]]) -> Result:
    """The engine runs random workloads; in each step the function is asked what it would compute."""
    draw = random.Random(3)
    trace = None
    for _ in range(ROUNDS):
        config = EngineConfig(policy=policy, max_num_seqs=draw.randint(1, 4), max_num_batched_tokens=draw.randint(4, 20))
        requests = [
            Request(
                f"r{i}",
                prompt_token_ids=tuple(range(1, draw.randint(2, 24))),
                sampling=SamplingParams(max_new_tokens=draw.randint(1, 9), ignore_eos=True),
                arrival=draw.choice((0, 0, i)),
            )
            for i in range(draw.randint(2, 7))
        ]
        trace = SimulatedEngine(cost_named("h100:8b"), config).run(Workload(requests, name=f"exercise: {policy}"))
        state = RunState.of(trace.prompt_lengths)
        for number, event in enumerate(trace.events):
            waiting = [_seen(state, r) for r in (*state.waiting, *(a.request for a in event.arrived))]
            running = [_seen(state, r) for r in state.running if r not in state.finished]
            answer = ask(config, waiting, running)
            if not isinstance(answer, dict):
                return Result(f"It returned {answer!r}, not the number of positions by request: {{'r0': 3, 'r1': 1}}, say.")
            theirs = {r: n for r, n in answer.items() if n}
            engine = _computed(event)
            if theirs != engine:
                upto = dataclasses.replace(trace, events=trace.events[: number + 1], complete=False)
                note = f"Step {event.step} is where the exercise differs: {theirs}."
                upto.header = dataclasses.replace(upto.header, notes=(note,))
                return Result(
                    english(f"Step {event.step} with {config.max_num_seqs:,} [lane|lanes]")
                    + (f" and a budget of {config.max_num_batched_tokens}" if policy == "continuous" else "")
                    + f": the engine computes {engine}, yours {theirs}. Waiting were {waiting}, running {running}.",
                    upto,
                )
            state.begin(event)
            state.end(event)
    return Result(None, trace)


def _seen(state: RunState, request: str) -> RequestProgress:
    return RequestProgress(request, state.num_tokens[request], state.computed.get(request, 0))


def _computed(event: StepEvent) -> dict[str, int]:
    computed: dict[str, int] = {}
    for segment in event.segments:
        computed[segment.request] = computed.get(segment.request, 0) + segment.length
    return computed
