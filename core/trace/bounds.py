"""Bounds for what was measured and cannot be computed again: times, and how probable a token was. Knows single records, no run."""

from __future__ import annotations

import math

from core.trace.events import Arrived, Sampled, StepEvent

_ROUNDING = 1e-5  # seconds: times are recorded in microseconds
_APART = 1e-3  # seconds by which the clocks of a host and its device may differ
_AHEAD = 1.0  # seconds that a host may still be busy with a step whose passes its device has computed
_LOGITS = 1e-3  # by which rounded logits and probabilities may differ


def in_order(event: StepEvent, since: float) -> bool:
    """Whether the step's times run forwards from `since`, the end of the step before."""
    times = [since, event.t_start, *(t for p in event.passes for t in (p.t_start, p.t_end)), event.t_end]
    return times == sorted(times)


def parts_fit(event: StepEvent, one_clock: bool) -> bool:
    """Whether the parts of a step fit into it. one_clock: all of them, else the device's alone, the host's lie beside another step."""
    schedule, prepare, forward, sample = (part or 0.0 for part in event.timings)
    taken, tolerance = forward + sample + (schedule + prepare if one_clock else 0.0), _ROUNDING if one_clock else _APART
    is_past = max(schedule, prepare) <= event.t_end + _AHEAD
    return min(schedule, prepare, forward, sample) >= 0 and taken <= event.t_end - event.t_start + tolerance and is_past


def may_arrive(arrived: Arrived, event: StepEvent, one_clock: bool, by_step: bool) -> bool:
    """Whether a request can have come at that time: before the first pass and, where arrivals count steps, within the step."""
    latest = event.passes[0].t_start if event.passes and one_clock else event.t_end
    earliest = event.t_start - _ROUNDING if by_step and one_clock else 0.0
    return earliest <= arrived.t <= latest


def may_be_best(s: Sampled, vocab_size: int | None) -> bool:
    """Whether a token can be the most probable one: its probability follows from its margin, except for how probable the others are, each at
    most as probable as the runner-up.
    """
    runner_up, others = math.exp(-(s.margin or 0.0)), (vocab_size or 2**31) - 1
    least, most = -math.log1p(others * runner_up), -math.log1p(runner_up)
    return least - _LOGITS <= (s.logprob or 0.0) <= most + _LOGITS
