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
    "Capacity": "policy",
    "CheckResult": "proof.verify",
    "Comparison": "measure.compare",
    "Cost": "simulate.cost",
    "Delays": "account.delays",
    "Deployment": "simulate.cost",
    "Divergence": "trace.divergence",
    "Engine": "torch_engine.engine",
    "EngineConfig": "config",
    "Execution": "config",
    "ExecutionFailed": "errors",
    "Frame": "trace.run_state",
    "Header": "trace.header",
    "InflightError": "errors",
    "InvalidConfig": "errors",
    "InvalidRequest": "errors",
    "InvalidTrace": "errors",
    "InvalidWorkload": "errors",
    "Lengths": "workload.arrivals",
    "LimitReached": "policy",
    "Load": "simulate.cost",
    "Mask": "trace.mask",
    "POLICIES": "policy",
    "PRESETS": "workload.presets",
    "Page": "page",
    "Pass": "trace.events",
    "Plan": "measure.plan",
    "Policy": "policy",
    "PolicyFailed": "errors",
    "Preset": "workload.presets",
    "Request": "workload.request",
    "RequestTimes": "account.request_times",
    "RequestView": "policy",
    "Roofline": "simulate.roofline",
    "SLOs": "account.request_times",
    "SamplingParams": "workload.request",
    "Segment": "trace.events",
    "SimulatedEngine": "simulate.engine",
    "StepEvent": "trace.events",
    "Sweep": "measure.load",
    "Trace": "trace.trace",
    "UnsupportedModel": "errors",
    "Verdict": "measure.compare",
    "Workload": "workload.workload",
    "check": "proof.verify",
    "compare": "measure.traces",
    "compare_policies": "measure.policies",
    "delays": "account.delays",
    "fit": "simulate.fitted",
    "import_recording": "recorders.convert",
    "metrics": "account.metrics",
    "plan": "measure.plan",
    "preset": "workload.presets",
    "register_policy": "policy",
    "request_times": "account.request_times",
    "run_stream": "simulate.totals",
    "sweep_load": "measure.load",
    "tables": "account.tables",
    "writing": "engine.writing",
}


if not TYPE_CHECKING:  # which would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inflight' has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
