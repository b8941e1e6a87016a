"""Where and on what something was measured, and whether that machine was quiet: what must be known beside a number."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from core.measure.rounds import load_average
from core.trace.header import Header

QUIET = 0.3
"""The load a CPU, over the last minute, above which nothing is measured for publication."""


def environment(header: Header) -> dict[str, Any]:
    """From a trace's header and the machine; the load average is of now, so ask before measuring."""
    model = {"name": header.model.name, "parameters": header.model.parameters}
    return machine(header.device, header.device_name, header.threads, header.dtype, model, header.versions)


def machine(
    device: str, device_name: str, threads: int | None, dtype: str, model: Mapping[str, Any], versions: Mapping[str, str | None]
) -> dict[str, Any]:
    """The same of what left no trace."""
    return {
        "device": device,
        "hardware": _cpu_name() if device == "cpu" else device_name,
        "cpus": os.cpu_count(),
        "threads": threads,
        "load_average": load_average(),
        "dtype": dtype,
        "model": dict(model),
        "versions": dict(versions),
        "system": platform.system(),
    }


def too_busy(load: float | None, cpus: int | None) -> bool:
    """Whether a machine was too busy with other work; one that reports no load counts as quiet."""
    return load is not None and bool(cpus) and load > QUIET * (cpus or 1)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
