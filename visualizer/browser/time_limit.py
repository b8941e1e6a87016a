"""Limits the time of a visitor's code in a worker that cannot be interrupted from outside: the
interpreter checks the clock itself (`interrupt` in assets/engine/worker.js) and signals itself.
"""

import signal
from types import FrameType

from visualizer.write.answers import line_of


class TimeLimit:
    """Handles the signal: interrupts the visitor's code, but not ours. The signal comes when time
    is up, once more a moment later, and continuously from then on.

    line: the line of the visitor's code that was running when time was up, None if time was not up.
    """

    def __init__(self) -> None:
        self.line: int | None = None
        self._told = 0

    def begin(self) -> None:
        """Begin another turn with its full time."""
        self.line, self._told = None, 0
        signal.signal(signal.SIGINT, self._over)

    def _over(self, _number: int, frame: FrameType | None) -> None:
        self._told += 1
        line = line_of(frame)
        if line is None:
            if self._told > 1:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            return
        if self._told > 1:  # it caught the first one and went on
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.line = self.line or line
        raise KeyboardInterrupt
