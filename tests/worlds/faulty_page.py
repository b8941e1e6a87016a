"""The page, run as a program, with faults that another process orders: SIGUSR1 makes the next
forward pass of any engine fail, SIGUSR2 keeps Python's lock from all its other threads for most of
five seconds.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app import main
from core.engine.loop import StepLoop

ORDERED = "this step was made to fail"
STARVED_S = 5.0
_HELD = 3_000_000  # numbers added up without giving the lock away: some 50 ms
_fails = threading.Event()
_launch_next = StepLoop._launch_next


def _launched(loop: StepLoop[object], step: object) -> bool:
    if _fails.is_set():
        _fails.clear()
        raise RuntimeError(ORDERED)
    return _launch_next(loop, step)  # type: ignore[arg-type]


def _starve() -> None:
    until = time.monotonic() + STARVED_S
    while time.monotonic() < until:
        sum(range(_HELD))


if __name__ == "__main__":
    StepLoop._launch_next = _launched  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, lambda *_: _fails.set())
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=_starve, daemon=True).start())
    sys.exit(main([]))
