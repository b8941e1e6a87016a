"""A run at work: its engine in a thread of its own, under the limits of the page. Whoever shows it reads the trace that grows meanwhile."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from core.engine.engine import Engine
from core.errors import InflightError, InvalidRequest
from core.models.cache import Models
from core.trace.events import StepEvent
from core.trace.trace import Trace
from visualizer.server.limits import Limits, Refused, Spec, as_the_page_says, check_tokens

log = logging.getLogger("inflight")


class Cancelled(Exception):
    """Raised inside an engine thread whose run was cancelled."""


class Work:
    """One run. trace, tokenizer: there once the requests are accepted. error, stopped: at the end, a sentence for why it failed, or
    ended early. ended: set once nothing changes any more.
    """

    def __init__(self, spec: Spec, limits: Limits, models: Models) -> None:
        self.trace: Trace | None = None
        self.tokenizer: Any = None
        self.error: str | None = None
        self.stopped: str | None = None
        self.ended = threading.Event()
        self._spec, self._limits, self._models = spec, limits, models
        self._cancelled = threading.Event()

    def start(self) -> None:
        """Begin, in the caller's context: it tells whose request this is."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="run", daemon=True).start()

    def cancel(self) -> None:
        """End the run after the step it is in."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    def _work(self) -> None:
        """The engine thread."""
        try:
            self._compute()
        except Cancelled:
            steps = len(self.trace.events) if self.trace else 0
            self.stopped = f"The run was cancelled after {steps:,} step{'' if steps == 1 else 's'}."
        except InvalidRequest as error:
            self.error = str(as_the_page_says(error, self._spec.workload))
        except InflightError as error:
            self.error = str(error)
        except Exception as error:  # a bug or a machine out of memory: this run fails, the server goes on
            log.exception("a run failed")
            self.error = f"The run failed inside the engine: {type(error).__name__}."
        finally:
            self.ended.set()

    def _compute(self) -> None:
        engine, steps = self._prepare(self._spec.device)
        self.tokenizer, self.trace = engine.tokenizer, engine.trace
        deadline = time.monotonic() + self._limits.seconds
        for count, _ in enumerate(steps, 1):
            if self.is_cancelled:
                raise Cancelled
            if engine.has_work and count >= self._limits.steps:
                raise Refused(f"The run was stopped after {count:,} steps, the most that this page runs.")
            if engine.has_work and time.monotonic() > deadline:
                raise Refused(f"The run was stopped after {self._limits.seconds:,.0f} seconds, the longest that this page runs.")

    def _prepare(self, device: str) -> tuple[Engine, Iterator[StepEvent]]:
        """The engine and its steps to come; raises InflightError for whatever the model cannot run or the page does not accept."""
        adapter, tokenizer = self._models.get(self._spec.model, device)
        engine = Engine(adapter, tokenizer, self._spec.config, sleep=self._sleep)
        steps = engine.stream(self._spec.workload)
        check_tokens(engine.trace.prompts, self._spec.workload, self._limits)
        return engine, steps

    def _sleep(self, seconds: float) -> None:
        """How the engine waits for the next arrival: not beyond a cancellation."""
        if self._cancelled.wait(seconds):
            raise Cancelled
