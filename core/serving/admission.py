"""Lets requests into the engine: they join its queue at once, or are held for a coming run with other limits.

Belongs to the engine's thread. Requests were checked before, by `core.serving.request_validator`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError, InvalidRequest
from core.serving.output_processor import OutputProcessor
from core.serving.request_validator import as_sentence
from core.serving.runs import Runs
from core.serving.stream import TokenStream, step_failed
from core.workload.request import Request

When = Literal["idle", "barrier"]
_log = logging.getLogger("inflight.serving")


class ToCome(NamedTuple):
    """A run with other limits."""

    config: EngineConfig
    when: When


class Admission:
    """take_step: has the engine take a step at any pace. on_change: called when other limits are in force, or waited for."""

    def __init__(
        self,
        engine: EngineCore,
        runs: Runs,
        delivery: OutputProcessor,
        take_step: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._engine, self._runs, self._delivery = engine, runs, delivery
        self._take_step, self._on_change = take_step, on_change
        self.to_come: ToCome | None = None
        self.held: dict[str, TokenStream] = {}  # unfinished, for the run to come

    def accept(self, stream: TokenStream) -> None:
        """Queue a request, or hold it for the coming run."""
        if self.to_come is not None and self.to_come.when == "barrier":
            self.held[stream.id] = stream
            stream.call(stream.accept)
            return
        engine = self._engine
        try:
            self._runs.begin_if_due()
            arrived = min(stream.times.arrived, engine.now)
            request = Request(stream.id, prompt_token_ids=stream.prompt, sampling=stream.sampling, arrival=arrived)
            engine.add_request(request)
        except InvalidRequest as error:
            self._delivery.end(stream, InvalidRequest(as_sentence(error.message)))
        except Exception as error:
            _log.error("A request could not be queued.", exc_info=error)
            self._delivery.end(stream, error if isinstance(error, InflightError) else step_failed())
        else:
            stream.times.arrived = arrived
            self._delivery.queued(stream, request)

    def cancel(self, stream: TokenStream) -> None:
        """One that has ended stays as it is."""
        if stream.id in self._delivery.streams:
            stream.is_leaving = True
            self._engine.cancel(stream.id)
        elif self.held.pop(stream.id, None) is not None:
            self._delivery.cancelled(stream)

    def cancel_all(self) -> None:
        for stream in self.all:
            self.cancel(stream)
        self._take_step()  # in which they leave

    def rejoin(self, streams: Iterable[TokenStream]) -> None:
        """Queue the requests again that waited when their run ended, but for those who wanted to leave."""
        for stream in streams:
            if stream.is_leaving:
                self._delivery.cancelled(stream)
            else:
                stream.times.arrived = 0.0
                self.accept(stream)

    @property
    def all(self) -> list[TokenStream]:
        """Unfinished."""
        return [*self._delivery.streams.values(), *self.held.values()]

    # -- a run with other limits -------------------------------------------------------------------------------------

    def change(self, config: EngineConfig, when: When) -> None:
        """See `ServingEngine.change`."""
        self.to_come = ToCome(config, when)
        if when == "barrier" and self._engine.has_work:
            self._hold_waiting()
        self.begin_what_is_to_come()
        self._on_change()

    def begin_what_is_to_come(self) -> None:
        """Begin the coming run once this one is empty; the requests held join it."""
        if self.to_come is None or self._delivery.streams:
            return
        if self._engine.has_work:  # those held leave the queue in a step of their own
            self._take_step()
            return
        config, self.to_come = self.to_come.config, None
        before = self._engine.config
        try:
            self._runs.begin(config)
        except Exception as error:
            _log.error("The engine cannot have these limits.", exc_info=error)
            self._runs.restart(before)
        held, self.held = self.held, {}
        self.rejoin(held.values())
        self._on_change()

    def _hold_waiting(self) -> None:
        """Requests without a lane leave this run; its record calls them cancelled."""
        running = self._engine.running
        streams = self._delivery.streams.values()
        waiting = [s for s in streams if s.times.admitted is None and s.id not in running and not s.is_leaving]
        for stream in waiting:
            self._engine.cancel(stream.id)
        self.held |= {stream.id: stream for stream in waiting}
        self._delivery.carried(waiting)
