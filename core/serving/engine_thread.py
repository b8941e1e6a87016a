"""The one thread that takes an engine's steps. Between two steps it makes the calls that other threads asked for, in their order.

Only this thread touches the engine and what serves it, so nothing there needs a lock. Knows no requests.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from core.runner.threads import CORE_SHARES
from core.serving.pace import Pace


class EngineThread:
    """has_work: whether there is a step to take. step: takes it, and never raises. at_end: called last by the thread, however it ends."""

    def __init__(self, has_work: Callable[[], bool], step: Callable[[], None], at_end: Callable[[], None]) -> None:
        self.pace = Pace()
        self._has_work, self._step, self._at_end = has_work, step, at_end
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="inflight-engine", daemon=True)

    # -- for everybody -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step under way; returns once the thread has ended."""
        self._stopping = True
        self.ask(lambda: None)
        if self._thread.ident is not None:
            self._thread.join()

    def ask(self, function: Callable[[], None]) -> None:
        """Have the thread call the function, between two steps."""
        self._inbox.put(function)

    # -- the thread --------------------------------------------------------------------------------------------------

    def do_what_was_asked(self) -> None:
        """Make the calls that wait now."""
        try:
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait()
                self.do_what_was_asked()
                if self._may_step:
                    with CORE_SHARES.at_work():
                        while self._may_step:
                            CORE_SHARES.apply()
                            self.pace.stepped()
                            self._step()
                            self.do_what_was_asked()
                if not self._has_work():
                    self.pace.rest()
        finally:
            self._at_end()

    @property
    def _may_step(self) -> bool:
        return self._has_work() and self.pace.wait_s == 0 and not self._stopping

    def _wait(self) -> None:
        """Wait until a call is asked for or the next step is due, and make the calls."""
        wait_s = self.pace.wait_s if self._has_work() else None
        try:
            self._inbox.get(block=wait_s != 0 and not self._stopping, timeout=wait_s)()
        except queue.Empty:
            return
