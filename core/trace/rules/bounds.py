"""Bounds for measurements that cannot be recomputed: times, graphs, token probabilities."""

import math
from collections.abc import Mapping

from core.trace.events import (
    NOTHING_BINDS,
    SKIPPED,
    UNRECORDED,
    Arrived,
    LimitReached,
    Pass,
    Sampled,
    StepEvent,
)
from core.trace.header import ExecutionFacts

ROUNDING = 1e-5  # seconds: times are recorded in microseconds
_APART = 1e-3  # seconds by which the clocks of a host and its device may differ
# seconds for which a host may still be busy with a step after its device has finished the passes
_AHEAD = 1.0
_LOGITS = 1e-3  # by which rounded logits and probabilities may differ


def in_order(event: StepEvent, since: float) -> bool:
    """Whether the step's times run forwards from `since`, the end of the step before."""
    of_passes = [t for p in event.passes for t in (p.t_start, p.t_end)]
    times = [since, event.t_start, *of_passes, event.t_end]
    return times == sorted(times)


def is_measured(event: StepEvent) -> bool:
    """Whether a step has what only a model that ran can give: probabilities, and parts of its time
    beside the passes.
    """
    schedule, prepare, _, sample = event.timings
    probable = any(s.logprob or s.margin for s in event.sampled)
    return bool(schedule or prepare or sample or probable)


def parts_fit(event: StepEvent, one_clock: bool, is_asynchronous: bool) -> bool:
    """Whether the parts of a step fit into it. one_clock: preparing, forward and sampling make up
    the passes, and scheduling is outside them; otherwise the host's parts fit beside the device's
    or, if steps are launched ahead, may overlap another step.
    """
    schedule, prepare, forward, sample = (
        getattr(event.timings, part) or 0.0 for part in ("schedule", "prepare", "forward", "sample")
    )
    whole = event.t_end - event.t_start
    if min(schedule, prepare, forward, sample) < 0:
        return False
    if not one_clock:
        host = max(schedule, prepare) if is_asynchronous else schedule + prepare
        most = event.t_end + _AHEAD if is_asynchronous else whole + _APART
        return forward + sample <= whole + _APART and host <= most
    passes = sum([p.t_end - p.t_start for p in event.passes])
    rounding = ROUNDING + 1e-6 * len(event.passes)
    return (
        abs(prepare + forward + sample - passes) <= rounding
        and schedule + passes <= whole + rounding
    )


def plausible_arrival(arrived: Arrived, event: StepEvent, one_clock: bool, by_step: bool) -> bool:
    """Whether a request can have arrived then: before the first pass, and within its step."""
    latest = event.passes[0].t_start if event.passes and one_clock else event.t_end
    earliest = event.t_start - ROUNDING if by_step and one_clock else 0.0
    return earliest <= arrived.t <= latest


def plausible_numbers(s: Sampled, vocab_size: int | None, is_greedy: bool) -> bool:
    """Whether a token can have its probability and its margin: if it is the most probable one, no
    other can be more probable than the runner-up; if not, it cannot be either.
    """
    margin, logprob = s.margin or 0.0, s.logprob or 0.0
    runner_up, others = math.exp(-margin), (vocab_size or 2**31) - 1
    least, most = -math.log1p(others * runner_up), -math.log1p(runner_up)
    is_best = least - _LOGITS <= logprob <= most + _LOGITS
    return is_best or (not is_greedy and logprob <= most - margin + _LOGITS)


def plausible_margin(s: Sampled) -> bool:
    """Whether a token can have its probability, given the margin between the two best."""
    if s.logprob is None or s.margin is None:
        return True
    return s.logprob <= -math.log1p(math.exp(-s.margin)) + _LOGITS


def plausible_graph(forward: Pass, mixed: bool, execution: ExecutionFacts | None) -> bool:
    """Whether the pass fits a CUDA graph of that size: the next power of two, or its rows. mixed: a
    request computes more than one position.
    """
    if execution is None or not execution.cuda_graphs:
        return False
    positions, least = forward.rows * forward.width, execution.min_graph_positions or 1
    if forward.layout == "padded":
        return forward.width == 1 and forward.bucket == positions
    bucket = max(1 << (positions - 1).bit_length(), least if mixed else 1)
    return forward.bucket == bucket <= (execution.max_graph_positions or 0)


def plausible_reason(why: LimitReached | None, totals: Mapping[str, int | None]) -> bool:
    """Whether a reason names a limit of which too little was left. totals: of each limit."""
    if why is None or why in (NOTHING_BINDS, SKIPPED, UNRECORDED):
        return True
    is_total = why.total == totals.get(why.limit)
    return is_total and 0 <= why.have < why.need and why.have <= why.total
