"""The one seam between the benchmark and a device: what time it is, what is in memory, how fast memory copies.

On a CPU, where tests run, time is the host's and peak memory is not observable.
"""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from core.models import load as models


class Device:
    """clock: seconds on the host, for tests."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.torch, self.clock = device, clock
        self.on_cuda = device.type == "cuda"

    def synchronize(self) -> None:
        if self.on_cuda:
            torch.cuda.synchronize(self.torch)

    def now(self) -> float:
        """The host's time once everything launched so far is done."""
        self.synchronize()
        return self.clock()

    def answers(self) -> bool:
        """Whether anything can still run: after an illegal access every call of the process fails."""
        try:
            self.synchronize()
            torch.zeros(1, device=self.torch).add_(1).item()
        except Exception:
            return False
        return True

    def free(self) -> None:
        """Give back the device memory that nobody refers to any more, and count the peak anew."""
        if self.on_cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.torch)

    def peak_bytes(self) -> int | None:
        """The most that tensors have held since `free`; None on a CPU."""
        return torch.cuda.max_memory_allocated(self.torch) if self.on_cuda else None

    def copy_bandwidth(self, size: int, repeats: int = 20) -> float:
        """Bytes a second of a copy of `size` bytes within the device's memory, those read and those written both counted; a median."""
        source = torch.empty(size, dtype=torch.uint8, device=self.torch).random_()
        target = torch.empty_like(source)
        for _ in range(3):
            target.copy_(source)
        times = [self._seconds(lambda: target.copy_(source)) for _ in range(repeats)]
        return 2 * size / statistics.median(times)

    def _seconds(self, work: Callable[[], Any]) -> float:
        if not self.on_cuda:
            started = self.clock()
            work()
            return self.clock() - started
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000

    def about(self) -> dict[str, Any]:
        """What it is and which software runs on it: what two results must share to stand in one file."""
        about: dict[str, Any] = {"device": self.torch.type, "name": platform.machine(), "memory_bytes": None, "capability": None}
        if self.on_cuda:
            properties = torch.cuda.get_device_properties(self.torch)
            about |= {
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "capability": f"{properties.major}.{properties.minor}",
            }
        versions = {"python": platform.python_version(), **models.versions(), "triton": _version("triton")}
        return {**about, "versions": versions, "cuda": torch.version.cuda}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
