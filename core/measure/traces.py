"""Runs that are on record, side by side, as if they had just been timed: one round, in which each
takes the time that its own trace has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.account.metrics import wall_s
from core.errors import InflightError
from core.measure.compare import Comparison
from core.measure.compare import compare as timed
from core.measure.rounds import Contender, RunResult
from core.trace.trace import Trace, require_trace


def compare(*traces: Trace, names: Sequence[str] = ()) -> Comparison:
    """Traces of the same requests, the first of which is the baseline: total times, the metrics of
    each, its requests' times, and where outputs differ. A single round says nothing about spread;
    `compare_policies` measures several.

    names: of each, by default its policy. Raises InflightError for traces of different requests,
    for one without a step, and for two of the same name.
    """
    for trace in traces:
        require_trace(trace)
    called = list(names or (trace.header.policy.name for trace in traces))
    if len(called) != len(traces):
        raise InflightError(f"There are {len(traces)} traces and {len(called)} names.")
    if any(trace.asked != traces[0].asked for trace in traces):
        raise InflightError("These runs were asked for different requests.")
    if len(set(called)) < len(called):
        raise InflightError(f"Two of these traces are called alike: give names=, not {called}.")
    contenders = [_contender(*one) for one in zip(called, traces, strict=True)]
    return replace(timed(contenders, 1, warmup=0), apart={}, load=None)


def _contender(name: str, trace: Trace) -> Contender:
    run = replace(RunResult.of(trace), seconds=wall_s(trace))
    return Contender.of(name, lambda: run, lambda run: run, trace.config.to_json())
