"""One model's engine under several policies, timed side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.config import PolicyOrName
from core.errors import require
from core.measure.compare import Comparison, compare, engine_contender
from core.measure.rounds import Progress
from core.simulate.engine import SimulatedEngine
from core.torch_engine.engine import Engine
from core.workload.workload import Workload


def compare_policies(
    engine: Engine | SimulatedEngine,
    workload: Workload,
    policies: Sequence[PolicyOrName] = ("static", "continuous"),
    repeats: int = 5,
    on_run: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """The same requests under each policy in turn, on the engine's model and within its limits.

    After a warm-up each of `repeats` rounds runs every policy, in rotated order; a simulation is
    the same each time, and runs once. The first policy is the baseline, with which outputs are
    compared token by token. on_run: called before each run. Raises InflightError for a policy that
    is not known or cannot keep the limits.
    """
    require(engine, (Engine, SimulatedEngine), "Policies are compared on an engine")
    require(policies, (list, tuple), "Policies are compared as a list of names or policies")
    contenders = [
        engine_contender(engine.under(engine.config.under(policy)), workload) for policy in policies
    ]
    rounds, warmup = (1, 0) if isinstance(engine, SimulatedEngine) else (repeats, 1)
    return compare(contenders, rounds, warmup=warmup, on_run=on_run)
