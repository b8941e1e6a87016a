"""What comparisons are shown with in tests: a machine and a cost curve, both made up; and a
comparison of real runs on a clock of its own.
"""

from dataclasses import replace
from itertools import count

from core.config import EngineConfig
from core.measure.compare import Comparison, compare, engine_contender
from core.measure.cost_curve import CostCurve, StepCost
from core.torch_engine.engine import Engine
from core.workload.workload import Workload
from worlds.small import MemoryModel, requests

ENVIRONMENT = {
    "device": "cpu",
    "hardware": "A machine",
    "cpus": 2,
    "threads": 1,
    "load_average": 0.5,
    "dtype": "float32",
    "model": {"name": "memory", "parameters": 0},
    "versions": {"torch": "2"},
    "system": "Linux",
}
CURVE = CostCurve(
    {"name": "memory", "parameters": 0},
    "cpu",
    "float32",
    (StepCost(1, 32, (0.010, 0.011, 0.012)), StepCost(8, 256, (0.020, 0.022, 0.030))),
    (StepCost(8, 128, (0.02,)), StepCost(8, 1024, (0.05,))),
)


def measured(leaves_after: float | None = None) -> Comparison:
    """Three rounds of two policies; whoever looks at the clock moves it by a tenth of a
    millisecond. leaves_after: when the client of the third request leaves.
    """
    ticks = count()

    def clock() -> float:
        return next(ticks) / 10_000

    limits = {"max_num_seqs": 2, "max_num_batched_tokens": 8, "block_size": 4}
    engines = [
        Engine(MemoryModel(), None, EngineConfig(policy=policy, **limits), clock=clock)
        for policy in ("static", "continuous")
    ]
    asked = requests((5, 12), (3, 3), (4, 6), (6, 4))
    asked[2] = replace(asked[2], leaves_after=leaves_after)
    workload = Workload(asked, "small")
    return compare(
        [engine_contender(engine, workload) for engine in engines], repeats=3, clock=clock
    )
