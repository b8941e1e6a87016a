"""Inflight's engine: continuous batching and its older relatives on a real model, every step on
record.

Names are imported when they are first asked for: those who read traces need no torch, and wait for
none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.account.delays import Delays, delays
    from core.account.metrics import metrics
    from core.account.request_times import RequestTimes, SLOs, request_times
    from core.account.tables import tables
    from core.config import EngineConfig, Execution
    from core.engine.writing import writing
    from core.errors import (
        ExecutionFailed,
        InflightError,
        InvalidConfig,
        InvalidRequest,
        InvalidTrace,
        InvalidWorkload,
        PolicyFailed,
        UnsupportedModel,
    )
    from core.measure.compare import Comparison, Verdict
    from core.measure.load import Sweep, sweep_load
    from core.measure.plan import Plan, plan
    from core.measure.policies import compare, compare_policies
    from core.page import Page
    from core.policy import POLICIES, Capacity, LimitReached, Policy, RequestView, register_policy
    from core.proof.verify import CheckResult, check
    from core.recorders.convert import import_recording
    from core.simulate.cost import Cost, Deployment, Load
    from core.simulate.engine import SimulatedEngine
    from core.simulate.fitted import fit
    from core.simulate.roofline import Roofline
    from core.simulate.totals import run_stream
    from core.torch_engine.engine import Engine
    from core.trace.divergence import Divergence
    from core.trace.events import Pass, Segment, StepEvent
    from core.trace.header import Header
    from core.trace.mask import Mask
    from core.trace.run_state import Frame
    from core.trace.trace import Trace
    from core.workload.arrivals import Lengths
    from core.workload.presets import PRESETS, Preset, preset
    from core.workload.request import Request, SamplingParams
    from core.workload.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "Capacity",
    "CheckResult",
    "Comparison",
    "Cost",
    "Delays",
    "Deployment",
    "Divergence",
    "Engine",
    "EngineConfig",
    "Execution",
    "ExecutionFailed",
    "Frame",
    "Header",
    "InflightError",
    "InvalidConfig",
    "InvalidRequest",
    "InvalidTrace",
    "InvalidWorkload",
    "Lengths",
    "LimitReached",
    "Load",
    "Mask",
    "POLICIES",
    "PRESETS",
    "Page",
    "Pass",
    "Plan",
    "Policy",
    "PolicyFailed",
    "Preset",
    "Request",
    "RequestTimes",
    "RequestView",
    "Roofline",
    "SLOs",
    "SamplingParams",
    "Segment",
    "SimulatedEngine",
    "StepEvent",
    "Sweep",
    "Trace",
    "UnsupportedModel",
    "Verdict",
    "Workload",
    "check",
    "compare",
    "compare_policies",
    "delays",
    "fit",
    "import_recording",
    "metrics",
    "plan",
    "preset",
    "register_policy",
    "request_times",
    "run_stream",
    "sweep_load",
    "tables",
    "writing",
]

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

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inflight' has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
