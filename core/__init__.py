"""Inflight's engine: continuous batching and its older relatives on a real model, every step on record.

Names are imported when they are first asked for: those who read traces need no torch, and wait for none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.config import EngineConfig
    from core.errors import InflightError
    from core.measure.metrics import metrics
    from core.policy import Policy, Why, register_policy
    from core.runner.engine import Engine
    from core.trace.events import StepEvent
    from core.trace.trace import Trace
    from core.workload.request import Request, SamplingParams
    from core.workload.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "Engine",
    "EngineConfig",
    "InflightError",
    "Policy",
    "Request",
    "SamplingParams",
    "StepEvent",
    "Trace",
    "Why",
    "Workload",
    "metrics",
    "register_policy",
]

_HOMES = {
    "Engine": "runner.engine",
    "EngineConfig": "config",
    "InflightError": "errors",
    "Policy": "policy",
    "Request": "workload.request",
    "SamplingParams": "workload.request",
    "StepEvent": "trace.events",
    "Trace": "trace.trace",
    "Why": "policy",
    "Workload": "workload.workload",
    "metrics": "measure.metrics",
    "register_policy": "policy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
