"""After a step that failed: those in a lane end with an error, those that waited are queued again, and the server goes on.

Called by the engine's thread.
"""

from __future__ import annotations

import logging

from core.engine.engine import EngineCore
from core.serving.admission import Admission
from core.serving.output_processor import OutputProcessor
from core.serving.runs import Runs
from core.serving.session import Session
from core.serving.stream import step_failed

_log = logging.getLogger("inflight.serving")


def recover(
    error: Exception, engine: EngineCore, session: Session, delivery: OutputProcessor, runs: Runs, admission: Admission
) -> None:
    """error: what the step raised. The reason goes to the log alone, since it may quote a prompt."""
    _log.error("A step failed; the server goes on without the requests in it.", exc_info=error)
    for event in list(session.latest):  # running ahead, a step may have been read before the next one failed
        if event.step > delivery.last_told:
            delivery.tell(event)
    streams = list(delivery.streams.values())
    delivery.streams.clear()
    begun = {*engine.running, *(stream.id for stream in streams if stream.num_tokens)}
    for stream in streams:
        if stream.id in begun or not begun:
            delivery.end(stream, step_failed())
    runs.restart()
    admission.rejoin(stream for stream in streams if begun and stream.id not in begun)
