"""Inflight's engine: continuous batching and its older relatives on a real model, every step on record."""

from core.config import EngineConfig
from core.engine import Engine
from core.errors import InflightError
from core.events import StepEvent
from core.request import Request, SamplingParams
from core.trace import Trace
from core.workload import Workload

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
]
