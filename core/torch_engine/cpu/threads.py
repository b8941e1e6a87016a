"""CPU threads: how they wait for each other, and how many each run gets.

OpenMP's threads meet at the end of every operation. Spinning there, which is OpenMP's default,
gains next to nothing on two quiet cores and can be ruinous on a shared machine, where a team spins
while it waits for a thread that is not running. So the page and the commands wait passively, and
servers divide the cores among the active runs.
"""

import os
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from core.errors import ExecutionFailed

PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Settings of OpenMP that use all cores and are never ruinous on a shared machine. With two cores
and the built-in model, a single thread was a little better (at worst 1.11 times the best time,
against 1.27; `tests/measure/threads.py`), but it would leave most of a larger machine idle.
"""


def wait_passively(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Make this process's threads wait passively, unless the environment says otherwise; returns
    whether that was still possible.

    OpenMP reads the setting once, when torch is loaded; after that it is too late.
    """
    for name, value in PASSIVE.items():
        environment.setdefault(name, value)
    return "torch" not in sys.modules


_computes: int | None = None  # the process in which torch has computed


def require_threads() -> None:
    """To be called before torch computes on a CPU. Raises ExecutionFailed in a process that was
    forked from one in which it did: OpenMP would wait for ever for threads that are not here.
    """
    global _computes
    import torch

    _computes = _computes or os.getpid()
    if _computes != os.getpid() and torch.get_num_threads() > 1:
        raise ExecutionFailed(
            "This process was forked from one in which torch has computed, and lacks its threads:"
            " spawn it instead, or call torch.set_num_threads(1) in it first."
        )


class CoreShares:
    """Divides a machine's cores evenly among the active runs (threads that compute with torch)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole, self._at_work = 0, 0
        self._mine = threading.local()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count a run as active inside the block."""
        with self._lock:
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1

    def apply(self) -> int:
        """Give the calling thread its share of the cores, between steps; returns the number."""
        import torch  # late: a server of recorded runs never needs it

        with self._lock:
            self._whole = self._whole or torch.get_num_threads()
            share = max(1, self._whole // max(1, self._at_work))
        if getattr(self._mine, "threads", None) != share:
            torch.set_num_threads(share)
            self._mine.threads = share
        return share


CORE_SHARES = CoreShares()
