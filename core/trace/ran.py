"""What a trace is to those of whom it is made, and who therefore cannot import it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from core.config import EngineConfig
from core.trace.events import StepEvent


class Ran(Protocol):
    """A run: a `core.trace.trace.Trace`."""

    @property
    def asked(self) -> Mapping[str, Any]:
        """What was asked, by request id."""

    @property
    def events(self) -> Sequence[StepEvent]:
        """What happened, step by step."""

    @property
    def config(self) -> EngineConfig:
        """The limits under which it ran."""

    @property
    def outputs(self) -> Mapping[str, Sequence[int]]:
        """Generated token ids by request."""
