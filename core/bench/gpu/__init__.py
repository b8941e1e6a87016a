"""The benchmark of the CUDA path: one command of at most eight minutes on an H200, in parts that stand for themselves.

Models have the shapes of published ones and random weights in bfloat16. Every contender runs in this process, alone in memory. docs/gpu.md says how
to run it and what the result holds.
"""

from __future__ import annotations

from core.bench.gpu.runs import Device
from core.bench.gpu.scale import FULL, TINY, Scale
from core.bench.gpu.session import run

__all__ = ["FULL", "TINY", "Device", "Scale", "run"]
