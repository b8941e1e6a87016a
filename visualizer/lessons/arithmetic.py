"""Numbers that follow from a run but that no run holds: what the cache saved, how few steps anybody
could have needed.
"""

from __future__ import annotations

from itertools import product

from core.account.request_times import request_times
from core.trace.trace import Trace


def computed(trace: Trace, request: str) -> int:
    """Tokens that were computed for a request, the cache doing the rest."""
    return request_times(trace)[request].num_computed


def computed_without_cache(trace: Trace, request: str) -> int:
    """What the same steps would have computed for it without a cache: each time everything so
    far.
    """
    return request_times(trace)[request].num_read


def longest_read(trace: Trace, request: str) -> float:
    """Milliseconds of the longest step that reads the prompt of a request."""
    steps = (
        e
        for e in trace.events
        if any(s.request == request and s.phase == "prefill" for s in e.segments)
    )
    return max(e.t_end - e.t_start for e in steps) * 1e3


def first_token_ms(trace: Trace, request: str) -> float:
    """Milliseconds from its arrival to its first token."""
    return (request_times(trace)[request].ttft_s or 0.0) * 1e3


def best_seating(trace: Trace) -> list[list[str]]:
    """Lane by lane the requests that somebody who knew all lengths would put there, so that the
    longest lane is as short as can be.

    A request writes a token a step, so it holds its lane for as many steps as it writes tokens.
    Found by trying all ways to seat them.
    """
    lengths = {request: len(tokens) for request, tokens in trace.outputs.items()}
    lanes = range(trace.config.num_lanes)

    def seated(choice: tuple[int, ...]) -> list[list[str]]:
        return [
            [request for request, lane in zip(lengths, choice, strict=True) if lane == n]
            for n in lanes
        ]

    def sizes(seats: list[list[str]]) -> list[int]:
        return sorted((sum(lengths[r] for r in lane) for lane in seats), reverse=True)

    return min((seated(choice) for choice in product(lanes, repeat=len(lengths))), key=sizes)


def best_steps(trace: Trace) -> int:
    """How many steps the best seating takes."""
    return max(sum(len(trace.outputs[r]) for r in lane) for lane in best_seating(trace))
