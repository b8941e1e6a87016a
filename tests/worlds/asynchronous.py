"""A run under asynchronous execution for tests of the page, made from one that was not: what its
events then say, worked out by hand.

The last token of a request is taken away: it had stopped at the one before, which the host read
only when the next step was launched. So that step still computes it, samples nothing for it, and
gives back its lane and blocks. `real_run` is the engine's own.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from core.config import EngineConfig
from core.trace.events import Finished, Overrun
from core.trace.header import ExecutionFacts
from core.trace.trace import Texts, Trace
from worlds import small
from worlds.visual import record, request

NOTE = "bfloat16 needs compute capability 8; running in float16 <b>instead</b>"
MEMORY = {"weights": 3 * 2**30, "kv_pool": 12 * 2**30, "peak": 16_500_000_000}


def real_run(policy: str, seed: int = 0) -> Trace:
    """A run of the real engine, launched ahead on a model that only remembers: half of the requests
    stop by themselves, some are cancelled.
    """
    pytest.importorskip(
        "triton",
        reason="the paged runner needs the package triton, which this platform does not have",
    )
    from worlds.paged import again, paged_engine  # needs the package

    draw = random.Random(seed)
    engine = paged_engine(
        policy, capture=again, max_num_seqs=3, max_num_batched_tokens=8, block_size=4
    )
    for i in range(14):
        prompt = [draw.randint(4, 6) for _ in range(draw.randint(1, 14))]
        engine.add_request(
            small.request(
                f"r{i}", prompt, draw.randint(2, 40), i // 2, ignore_eos=draw.random() < 0.4
            )
        )
    cancels = {step: f"r{draw.randint(0, 13)}" for step in (5, 11, 12, 20)}
    for step in range(10_000):
        if not engine.has_work:
            break
        engine.step()
        if step in cancels:
            engine.cancel(cancels[step])
    trace = engine.trace
    trace.recorded_texts = Texts(
        {r: [f"p{i} " for i in range(len(ids))] for r, ids in trace.prompts.items()},
        {r: [f"w{i} " for i in range(len(ids))] for r, ids in trace.outputs.items()},
    )
    return trace


def asynchronous_run() -> Trace:
    """Five requests for three lanes; B stops one token early by itself. Decode steps are replayed
    as graphs of 4 positions.
    """
    trace = record(
        EngineConfig(max_num_seqs=3, max_num_batched_tokens=10, block_size=4),
        request("r0", 5, 6),
        request("r1", 4, 9),
        request("r2", 17, 4),
        request("r3", 7, 8, 2),
        request("r4", 3, 3, 3),
    )
    return with_graphs(with_overrun(trace, "r1"), bucket=4)


def with_overrun(trace: Trace, request: str) -> Trace:
    """The same decisions where this request had stopped a token earlier; nobody's waiting changes,
    as the host did not know either.
    """
    last = next(
        i for i, e in enumerate(trace.events) if any(f.request == request for f in e.finished)
    )
    event, before = trace.events[last], trace.events[last - 1]
    rows = sum(s.length for s in event.segments if s.request == request)
    events = list(trace.events)
    events[last] = event._replace(
        sampled=tuple(s for s in event.sampled if s.request != request),
        finished=tuple(f for f in event.finished if f.request != request),
        overrun=(Overrun(request, rows),),
    )
    events[last - 1] = before._replace(finished=(*before.finished, Finished(request, "stop")))
    execution = ExecutionFacts(asynchronous=True, attention="triton")
    header = replace(trace.header, execution=execution, notes=(NOTE,), memory=MEMORY)
    texts = trace.texts
    output = {r: t[:-1] if r == request else t for r, t in texts.output.items()}
    return Trace(header, trace.asked, events, recorded_texts=Texts(texts.prompt, output))


def with_graphs(trace: Trace, bucket: int) -> Trace:
    """Passes of at most `bucket` positions, replayed as a CUDA graph of that size."""
    events = [
        e._replace(
            passes=tuple(
                p._replace(bucket=bucket) if p.rows * p.width <= bucket else p for p in e.passes
            )
        )
        for e in trace.events
    ]
    return replace(trace, events=events)
