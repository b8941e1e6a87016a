"""The runs of an engine that serves, one after another: each begins from an empty engine and is kept whole.

Belongs to the engine's thread. Knows no requests.
"""

from __future__ import annotations

import logging

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.serving.output_processor import OutputProcessor
from core.serving.session import Session

_log = logging.getLogger("inflight.serving")


class Runs:
    """session: the engine's recorder. works: False while the engine could not be made ready."""

    def __init__(self, engine: EngineCore, session: Session, delivery: OutputProcessor) -> None:
        self._engine, self._session, self._delivery = engine, session, delivery
        self.works = True

    def begin(self, config: EngineConfig | None = None) -> None:
        """A new run, by default under the limits as they are; raises what `Engine.begin` raises."""
        engine = self._engine
        engine.begin("s", config=config)
        self.works = True
        self._delivery.begin(self._session.run, engine.trace.header)

    def begin_if_due(self) -> None:
        """Begin a new run before a request if the engine could not be made ready, or if the record is due for a new one."""
        if not self.works or (not self._engine.has_work and self._session.is_due):
            self.begin()

    def restart(self, config: EngineConfig | None = None) -> None:
        """Begin again after a failure, as far as that is possible."""
        try:
            self.begin(config)
        except Exception as error:
            _log.error("The engine cannot be made ready.", exc_info=error)
            self.works = False
