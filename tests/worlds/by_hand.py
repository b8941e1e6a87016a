"""Events written by hand, fact by fact; what is not said of a step did not happen in it. And the
header of a recording.
"""

from __future__ import annotations

from typing import Any

from core.trace.events import KV, Budget, Segment, StepEvent, Timings, Waiting

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
}
"""Of a raw recording of vLLM, with what no step can be drawn without."""


def event(step: int = 1, **facts: Any) -> StepEvent:
    """A step that took no time, with nine blocks and a budget of 16 tokens."""
    whole = {
        "t_start": 0.0,
        "t_end": 0.0,
        "timings": Timings(0.0, None, 0.0, None),
        "waiting": Waiting(0),
        "kv": KV(0, 9),
        "budget": Budget(16, 0, 0, 16, "none"),
    }
    empty = (
        "arrived",
        "admitted",
        "preempted",
        "stalled",
        "passes",
        "segments",
        "sampled",
        "finished",
    )
    return StepEvent(step, **(dict.fromkeys(empty, ()) | whole | facts))


def computes(
    request: str, start: int, length: int, phase: str = "prefill", in_pass: int = 0
) -> Segment:
    """`length` positions from `start` on, in lane 0."""
    return Segment(in_pass, request, 0, phase, start, length, start + length)
