"""Inflight's engine: continuous batching and its older relatives on a real model, with every step
recorded.

Each name is imported when it is first used, so programs that only read traces do not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a name that is imported as itself is public
    from core.account.delays import Delays as Delays
    from core.account.delays import delays as delays
    from core.account.metrics import metrics as metrics
    from core.account.request_times import RequestTimes as RequestTimes
    from core.account.request_times import SLOs as SLOs
    from core.account.request_times import request_times as request_times
    from core.account.tables import tables as tables
    from core.config import EngineConfig as EngineConfig
    from core.config import Execution as Execution
    from core.engine.writing import writing as writing
    from core.errors import ExecutionFailed as ExecutionFailed
    from core.errors import InflightError as InflightError
    from core.errors import InvalidConfig as InvalidConfig
    from core.errors import InvalidRequest as InvalidRequest
    from core.errors import InvalidTrace as InvalidTrace
    from core.errors import InvalidWorkload as InvalidWorkload
    from core.errors import PolicyFailed as PolicyFailed
    from core.errors import UnsupportedModel as UnsupportedModel
    from core.measure.compare import Comparison as Comparison
    from core.measure.compare import Verdict as Verdict
    from core.measure.load import Sweep as Sweep
    from core.measure.load import sweep_load as sweep_load
    from core.measure.plan import Plan as Plan
    from core.measure.plan import plan as plan
    from core.measure.policies import compare as compare
    from core.measure.policies import compare_policies as compare_policies
    from core.page import Page as Page
    from core.policy import POLICIES as POLICIES
    from core.policy import Capacity as Capacity
    from core.policy import LimitReached as LimitReached
    from core.policy import Policy as Policy
    from core.policy import RequestView as RequestView
    from core.policy import register_policy as register_policy
    from core.proof.verify import CheckResult as CheckResult
    from core.proof.verify import check as check
    from core.recorders.convert import import_recording as import_recording
    from core.simulate.cost import Cost as Cost
    from core.simulate.cost import Deployment as Deployment
    from core.simulate.cost import Load as Load
    from core.simulate.engine import SimulatedEngine as SimulatedEngine
    from core.simulate.fitted import fit as fit
    from core.simulate.roofline import Roofline as Roofline
    from core.simulate.totals import run_stream as run_stream
    from core.torch_engine.engine import Engine as Engine
    from core.trace.divergence import Divergence as Divergence
    from core.trace.events import Pass as Pass
    from core.trace.events import Segment as Segment
    from core.trace.events import StepEvent as StepEvent
    from core.trace.header import Header as Header
    from core.trace.mask import Mask as Mask
    from core.trace.run_state import Frame as Frame
    from core.trace.trace import Trace as Trace
    from core.workload.arrivals import Lengths as Lengths
    from core.workload.presets import PRESETS as PRESETS
    from core.workload.presets import Preset as Preset
    from core.workload.presets import preset as preset
    from core.workload.request import Request as Request
    from core.workload.request import SamplingParams as SamplingParams
    from core.workload.workload import Workload as Workload

__version__ = "0.1.0"

_HOMES = {
    name: home
    for home, names in {
        "account.delays": "Delays delays",
        "account.metrics": "metrics",
        "account.request_times": "RequestTimes SLOs request_times",
        "account.tables": "tables",
        "config": "EngineConfig Execution",
        "engine.writing": "writing",
        "errors": (
            "ExecutionFailed InflightError InvalidConfig InvalidRequest InvalidTrace"
            " InvalidWorkload PolicyFailed UnsupportedModel"
        ),
        "measure.compare": "Comparison Verdict",
        "measure.load": "Sweep sweep_load",
        "measure.plan": "Plan plan",
        "measure.policies": "compare compare_policies",
        "page": "Page",
        "policy": "Capacity LimitReached POLICIES Policy RequestView register_policy",
        "proof.verify": "CheckResult check",
        "recorders.convert": "import_recording",
        "simulate.cost": "Cost Deployment Load",
        "simulate.engine": "SimulatedEngine",
        "simulate.fitted": "fit",
        "simulate.roofline": "Roofline",
        "simulate.totals": "run_stream",
        "torch_engine.engine": "Engine",
        "trace.divergence": "Divergence",
        "trace.events": "Pass Segment StepEvent",
        "trace.header": "Header",
        "trace.mask": "Mask",
        "trace.run_state": "Frame",
        "trace.trace": "Trace",
        "workload.arrivals": "Lengths",
        "workload.presets": "PRESETS Preset preset",
        "workload.request": "Request SamplingParams",
        "workload.workload": "Workload",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # which would take any name for one of these
    __all__ = sorted(_HOMES)

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inflight' has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
