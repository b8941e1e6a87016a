"""Comparisons in one call: of an engine under several policies, or of recorded traces."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from core.account.metrics import wall_s
from core.config import PolicyOrName
from core.errors import InflightError, require
from core.measure import compare as timed
from core.measure.compare import Comparison, engine_contender
from core.measure.rounds import Contender, Progress, RunResult
from core.simulate.engine import SimulatedEngine
from core.torch_engine.engine import Engine
from core.trace.trace import Trace, require_trace
from core.workload.workload import Workload


def compare_policies(
    engine: Engine | SimulatedEngine,
    workload: Workload,
    policies: Sequence[PolicyOrName] = ("static", "continuous"),
    repeats: int = 5,
    on_run: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """Run the same requests under each policy, on the engine's model and within its limits.

    After a warm-up each of `repeats` rounds runs every policy, in rotated order; a simulation is
    the same each time, and runs once. The first policy is the baseline, with whose outputs the
    others are compared token by token. on_run: called before each run. Raises InflightError for an
    unknown policy, and for one that cannot keep the limits.
    """
    require(engine, (Engine, SimulatedEngine), "Policies are compared on an engine")
    require(on_run, Callable, "What is told of each run is a function")
    require(policies, (list, tuple), "Policies are compared as a list of names or policies")
    contenders = [
        engine_contender(engine.under(engine.config.under(policy)), workload) for policy in policies
    ]
    rounds, warmup = (1, 0) if isinstance(engine, SimulatedEngine) else (repeats, 1)
    return timed.compare(contenders, rounds, warmup=warmup, on_run=on_run)


def compare(*traces: Trace, names: Sequence[str] = ()) -> Comparison:
    """Compare traces of the same requests; the first one is the baseline. The result has total
    times, the metrics of each, its requests' times, and where outputs differ. A single round says
    nothing about spread; `compare_policies` measures several.

    names: of each, by default its policy. Raises InflightError for traces of different requests,
    for one without a step, and for two of the same name.
    """
    for trace in traces:
        require_trace(trace)
    for name in require(names, (list, tuple), "Names of traces are a list"):
        require(name, str, "The name of a trace is text")
    called = list(names or (trace.header.policy.name for trace in traces))
    if len(called) != len(traces):
        raise InflightError(f"{len(traces)} traces need as many names, not {len(called)}.")
    if any(trace.asked != traces[0].asked for trace in traces):
        raise InflightError("These runs were asked for different requests.")
    if len(set(called)) < len(called):
        raise InflightError(f"Two of these traces are called alike: give names=, not {called}.")
    contenders = [_contender(*one) for one in zip(called, traces, strict=True)]
    found = timed.compare(contenders, 1, warmup=0)
    return replace(found, apart={}, load=None, is_of_traces=True)


def _contender(name: str, trace: Trace) -> Contender:
    run = replace(RunResult.of(trace), seconds=wall_s(trace))
    return Contender.of(name, lambda: run, lambda run: run, trace.config.to_json())
