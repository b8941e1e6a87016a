"""Inflight's engine: continuous batching and its older relatives on a real model, every step on record."""

from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import InflightError
from core.measure.metrics import metrics
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload

__version__ = "0.1.0"
__all__ = [
    "Engine",
    "EngineConfig",
    "InflightError",
    "Request",
    "SamplingParams",
    "StepEvent",
    "Trace",
    "Workload",
    "metrics",
]
