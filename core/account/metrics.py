"""A trace in numbers: latencies, throughput, and how the work was spent, from the events alone.

`DEFINITIONS` defines every number, for the page and the command line. A token's time is the end of
the pass that produced it; a request arrives at the `t` of its `arrived` record.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import fmean
from types import NoneType
from typing import Any

from core.account.delays import AGAIN, PREEMPTED, delays
from core.account.request_times import RequestTimes, SLOs, request_times, rounded
from core.errors import require
from core.trace.events import StepEvent
from core.trace.trace import Trace, require_trace

DEFINITIONS: dict[str, str] = {
    "wall_s": "Wall time: seconds from the first arrival or step to the end of the last step.",
    "steps": "Steps in which something ran; one without work is not counted.",
    "passes": "Forward passes of the model; some policies make several in a step.",
    "requests": "Requests that arrived.",
    "finished": (
        "Requests that ended by themselves, by length or by a stop; cancelled and failed ones are"
        " not counted."
    ),
    "prompt_tokens": "Prompt tokens of the requests that got a first token.",
    "output_tokens": "Tokens generated.",
    "output_tok_s": "Output throughput: tokens generated per second of wall time.",
    "total_tok_s": "Total throughput: prompt tokens and tokens generated per second of wall time.",
    "requests_per_s": "Requests finished per second of wall time.",
    "ttft_s": (
        "TTFT, time to first token: from a request's arrival to its first token. Of a run that was"
        " cut these numbers, those of E2E and of the queue are lower bounds: requests still"
        " waiting, left out of the count, wait for at least as long as they have."
    ),
    "itl_s": (
        "ITL, inter-token latency: every gap between two tokens of one request, all requests"
        " pooled."
    ),
    "tpot_s": (
        "TPOT, time per output token: (E2E − TTFT) ÷ (tokens − 1), one number for each finished"
        " request of two tokens or more."
    ),
    "e2e_s": "E2E: from a request's arrival to its last token, of finished requests.",
    "queue_s": (
        "Queue time: from a request's arrival to the start of the first pass that computes it."
    ),
    "padding_waste": "Padding waste: positions computed for no request ÷ positions computed.",
    "positions": (
        "Positions computed by the model: real tokens, and those for no request: pads of a row or"
        " of a CUDA graph, overruns."
    ),
    "lane_occupancy": "Lane occupancy: useful lane-steps ÷ all lane-steps (lanes × steps).",
    "lane_steps": (
        "Where every lane-step went. Useful: a request in that lane computed tokens; padding: a row"
        " computed for a request that had finished, until its wave ends or as an overrun; barrier:"
        " empty while others wait for the wave to end; stalled: held by a request that computed"
        " nothing; empty: no request."
    ),
    "budget_use": "Budget use: tokens computed ÷ token budget, over the steps that have one.",
    "budget_tokens": "Tokens computed under a budget, and the sum of the budgets.",
    "kv_use": "KV use: blocks in use ÷ blocks in the pool, mean of the steps.",
    "kv_blocks": "KV blocks: most in use in one step, and blocks in the pool.",
    "cached_tokens": (
        "Positions found in the prefix cache instead of being computed, also by requests that come"
        " back after a preemption."
    ),
    "preemptions": (
        "Preemptions: times a running request was pushed back to waiting, its KV thrown away."
    ),
    "tokens_recomputed": "Positions computed again because a preemption had thrown away their KV.",
    "overrun_rows": (
        "Overrun: rows computed for a request that had already stopped (asynchronous execution)."
    ),
    "time_s": (
        "Wall time by part. Schedule, prepare, forward and sample as the step measured them; other:"
        " the rest of the steps; between: outside any step (waiting for arrivals, the caller's own"
        " work). With asynchronous execution schedule and prepare are the host's, beside the"
        " device's own work, and between is how long the device waited for the host."
    ),
    "goodput": "Goodput: requests that finish and meet all stated SLOs, per second of wall time.",
}


def distribution(
    values: Iterable[float], at_least: Iterable[float] = ()
) -> dict[str, float | int | None]:
    """count, left_out, mean, p50, p90, p99 and max (percentiles interpolated linearly); all but the
    counts are None if there are no values.

    at_least: waiting times so far for events that have not happened yet. They are not part of the
    count; if there are any, the numbers are lower bounds, since each of these times can only grow.
    """
    observed, waiting = list(values), list(at_least)
    counts = {"count": len(observed), "left_out": len(waiting)}
    if not observed:
        return {**counts, **dict.fromkeys(("mean", "p50", "p90", "p99", "max"))}
    ordered = sorted(observed + waiting)
    numbers = {
        "mean": fmean(ordered),
        **{f"p{share}": percentile(ordered, share) for share in (50, 90, 99)},
        "max": ordered[-1],
    }
    return {**counts, **{name: rounded(value) for name, value in numbers.items()}}


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile of sorted numbers, interpolated bit for bit as in NumPy. share: in percent."""
    place = share / 100 * (len(ordered) - 1)
    below = math.floor(place)
    low, high, part = ordered[below], ordered[min(below + 1, len(ordered) - 1)], place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def metrics(trace: Trace, slos: SLOs | None = None) -> dict[str, Any]:
    """The run in numbers, as plain data; each key is defined in `DEFINITIONS`.

    Shares and rates whose divisor is zero are None. `goodput` appears only with `slos`.
    """
    require_trace(trace)
    require(slos, (SLOs, NoneType), "Goodput is counted by SLOs, such as SLOs(ttft_s=0.2)")
    lives = list(request_times(trace).values())
    arrived = [life for life in lives if life.arrival is not None]
    wall, end = wall_s(trace), trace.events[-1].t_end if trace.events else 0.0
    prompt = sum(life.num_prompt_tokens for life in lives if life.num_tokens)
    output = sum(life.num_tokens for life in lives)
    finished = sum(life.is_done for life in lives)
    lane_steps, positions = _lane_steps(trace), _positions(trace)
    budgets = [event.budget for event in trace.events if event.budget.limit is not None]
    budget = {
        "used": sum(b.decode + b.prefill for b in budgets),
        "limit": sum(b.limit or 0 for b in budgets),
    }
    pools = [event.kv for event in trace.events]
    result = {
        "wall_s": rounded(wall),
        "steps": len(trace.events),
        "passes": sum(len(event.passes) for event in trace.events),
        "requests": len(arrived),
        "finished": finished,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "output_tok_s": _ratio(output, wall),
        "total_tok_s": _ratio(prompt + output, wall),
        "requests_per_s": _ratio(finished, wall),
        "ttft_s": _once(arrived, "ttft_s", end),
        "itl_s": distribution(gap for life in lives for gap in life.itl_s),
        "tpot_s": distribution(_present(life.tpot_s for life in lives)),
        "e2e_s": _once(arrived, "e2e_s", end),
        "queue_s": _once(arrived, "queue_s", end),
        "padding_waste": _ratio(positions["padding"], positions["computed"]),
        "positions": positions,
        "lane_occupancy": _ratio(lane_steps["useful"], lane_steps["total"]),
        "lane_steps": lane_steps,
        "budget_use": _ratio(budget["used"], budget["limit"]),
        "budget_tokens": budget,
        "kv_use": _ratio(sum(_ratio(kv.used, kv.total) or 0.0 for kv in pools), len(pools)),
        "kv_blocks": {
            "peak": max((kv.used for kv in pools), default=0),
            "total": max((kv.total for kv in pools), default=0),
        },
        "cached_tokens": sum(hit.num_cached_tokens for kv in pools for hit in kv.prefix_hits),
        "preemptions": sum(len(event.preempted) for event in trace.events),
        "tokens_recomputed": sum(life.num_recomputed for life in lives),
        "overrun_rows": sum(row.rows for event in trace.events for row in event.overrun),
        "time_s": _time_by_part(trace, wall),
    }
    if slos is not None:
        result["goodput"] = goodput(trace, slos)
    return result


def goodput(trace: Trace, slos: SLOs) -> dict[str, Any]:
    """Requests that meet all SLOs: their number, their share of arrivals, and their rate per
    second. Requests that ended in steps that are not shown are left out, since that is unknown.
    """
    times = request_times(trace).values()
    lives = [life for life in times if life.arrival is not None and not life.is_cut]
    met = sum(life.meets(slos) for life in lives)
    return {
        "slos": asdict(slos),
        "met": met,
        "share": _ratio(met, len(lives)),
        "requests_per_s": _ratio(met, wall_s(trace)),
    }


def wall_s(trace: Trace) -> float:
    """Seconds from the first arrival, or earlier step, to the end of the last step, if any."""
    if not trace.events:
        return 0.0
    first = trace.events[0]
    return trace.events[-1].t_end - min([first.t_start, *(a.t for a in first.arrived)])


def _lane_steps(trace: Trace) -> dict[str, int]:
    num_lanes = trace.config.num_lanes
    counts = dict.fromkeys(("useful", "padding", "barrier", "stalled", "empty"), 0)
    for event in trace.events:
        overrun = {row.request for row in event.overrun}
        useful = {segment.lane for segment in event.segments if segment.request not in overrun}
        padding = {row.lane for forward in event.passes for row in forward.finished_rows} - useful
        padding |= {segment.lane for segment in event.segments if segment.request in overrun}
        stalled = {s.request for s in event.stalled}
        free = num_lanes - len(useful) - len(padding) - len(stalled)
        behind_barrier = event.waiting.why is not None and event.waiting.why.limit == "barrier"
        counts["useful"] += len(useful)
        counts["padding"] += len(padding)
        counts["stalled"] += len(stalled)
        counts["barrier" if behind_barrier else "empty"] += free
    return {**counts, "total": num_lanes * len(trace.events)}


def _positions(trace: Trace) -> dict[str, int]:
    of_steps = [positions_of(event) for event in trace.events]
    computed, padding = (sum(counts[n] for counts in of_steps) for n in (0, 1))
    return {"tokens": computed - padding, "padding": padding, "computed": computed}


def positions_of(event: StepEvent) -> tuple[int, int]:
    """Positions that the passes of a step computed, and how many of them were padding: pads, rows
    of requests that had already ended, and the unused rest of a CUDA graph.
    """
    padding = sum(p.padding for p in event.passes) + sum(row.rows for row in event.overrun)
    beyond = sum(p.bucket - p.rows * p.width for p in event.passes if p.bucket is not None)
    tokens = sum(p.tokens for p in event.passes) - sum(row.rows for row in event.overrun)
    return tokens + padding + beyond, padding + beyond


LOST_TO_PREEMPTION = (
    "Time lost to preemption: of all requests together, from being sent back to the next pass that"
    " computes them, and passes that compute again what was thrown away."
)


def preemption_s(trace: Trace) -> float:
    """Seconds lost to preemption, see `LOST_TO_PREEMPTION`; slower to compute than `metrics`."""
    if not any(event.preempted for event in trace.events):
        return 0.0
    return sum(delay.us[PREEMPTED] + delay.us[AGAIN] for delay in delays(trace).requests) / 1e6


def _time_by_part(trace: Trace, wall: float) -> dict[str, float | None]:
    parts: dict[str, float | None] = {}
    for name in ("schedule", "prepare", "forward", "sample"):
        recorded = [getattr(event.timings, name) for event in trace.events]
        parts[name] = None if None in recorded else sum(recorded)
    in_steps = sum(event.t_end - event.t_start for event in trace.events)
    counted = ("forward", "sample") if trace.header.is_asynchronous else tuple(parts)
    parts["other"] = in_steps - sum(_present(parts[name] for name in counted))
    parts["between"] = wall - in_steps
    return {name: rounded(value) for name, value in parts.items()}


_HAPPENED: dict[str, Callable[[RequestTimes], bool]] = {
    "ttft_s": lambda life: bool(life.token_times),
    "queue_s": lambda life: life.is_unseen or life.first_pass is not None,
    "e2e_s": lambda life: False,
}  # whether it has happened to a request that has not ended


def _once(lives: Sequence[RequestTimes], what: str, end: float) -> dict[str, float | int | None]:
    """The distribution of a time that each request has once. In a run that was cut short, requests
    for which it has not happened have waited until the `end`.
    """
    waiting = [
        end - (life.arrival or 0.0)
        for life in lives
        if life.finish_reason is None and not _HAPPENED[what](life)
    ]
    return distribution(_present(getattr(life, what) for life in lives), waiting)


def _present(values: Iterable[float | None]) -> Sequence[float]:
    return [value for value in values if value is not None]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
