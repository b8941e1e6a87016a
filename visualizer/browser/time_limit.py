"""How long a visitor's code may compute at a time, in a worker that nothing can interrupt from
outside: the interpreter looks at the clock itself (`interrupt` in assets/engine/worker.js) and
sends itself a signal.
"""

from __future__ import annotations

import signal
from types import FrameType

from visualizer.write.answers import line_of


class TimeLimit:
    """What is done when time is up: the visitor's code is interrupted, ours goes on. The signal
    comes when time is up, once more a moment later, and from then on all the time.

    line: that of the visitor's code which was running when time was up, None if it was not over.
    """

    def __init__(self) -> None:
        self.line: int | None = None
        self._told = 0

    def begin(self) -> None:
        """Another turn, with all its time."""
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
