"""Inflight's engine: continuous batching and its older relatives on a real model, every step on record.

Names are imported when they are first asked for: those who read traces need no torch, and wait for none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from core.measure.metrics import metrics
    from core.measure.policies import compare_policies
    from core.page import Page
    from core.policy import POLICIES, Policy, RequestView, Room, Why, register_policy
    from core.runner.engine import Engine
    from core.simulate.cost import Cost, Deployment, Load
    from core.simulate.engine import SimulatedEngine
    from core.simulate.fitted import fit
    from core.simulate.roofline import Roofline
    from core.simulate.totals import run_stream
    from core.trace.delays import Delays, delays
    from core.trace.events import Pass, Segment, StepEvent
    from core.trace.header import Header
    from core.trace.mask import Mask
    from core.trace.request_times import SLOs
    from core.trace.run_state import Frame
    from core.trace.trace import Trace
    from core.workload.presets import PRESETS, Preset, preset
    from core.workload.request import Request, SamplingParams
    from core.workload.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Cost",
    "Delays",
    "Deployment",
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
    "Load",
    "Mask",
    "POLICIES",
    "PRESETS",
    "Page",
    "Pass",
    "Policy",
    "PolicyFailed",
    "Preset",
    "Request",
    "RequestView",
    "Roofline",
    "Room",
    "SLOs",
    "SamplingParams",
    "Segment",
    "SimulatedEngine",
    "StepEvent",
    "Trace",
    "UnsupportedModel",
    "Verdict",
    "Why",
    "Workload",
    "compare_policies",
    "delays",
    "fit",
    "metrics",
    "preset",
    "register_policy",
    "run_stream",
    "writing",
]

_HOMES = {
    "Comparison": "measure.compare",
    "Cost": "simulate.cost",
    "Delays": "trace.delays",
    "Deployment": "simulate.cost",
    "Engine": "runner.engine",
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
    "Load": "simulate.cost",
    "Mask": "trace.mask",
    "POLICIES": "policy",
    "PRESETS": "workload.presets",
    "Page": "page",
    "Pass": "trace.events",
    "Policy": "policy",
    "PolicyFailed": "errors",
    "Preset": "workload.presets",
    "Request": "workload.request",
    "RequestView": "policy",
    "Roofline": "simulate.roofline",
    "Room": "policy",
    "SLOs": "trace.request_times",
    "SamplingParams": "workload.request",
    "Segment": "trace.events",
    "SimulatedEngine": "simulate.engine",
    "StepEvent": "trace.events",
    "Trace": "trace.trace",
    "UnsupportedModel": "errors",
    "Verdict": "measure.compare",
    "Why": "policy",
    "Workload": "workload.workload",
    "compare_policies": "measure.policies",
    "delays": "trace.delays",
    "fit": "simulate.fitted",
    "metrics": "measure.metrics",
    "preset": "workload.presets",
    "register_policy": "policy",
    "run_stream": "simulate.totals",
    "writing": "engine.writing",
}


if not TYPE_CHECKING:  # which would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
