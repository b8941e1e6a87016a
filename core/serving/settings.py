"""What a teacher sets for all users of a shared engine, and how viewers are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core.config import EngineConfig
from core.serving.event_log import Hidden

RunStart = Literal["idle", "barrier"]
# that a teacher can set
LIMITS = {"policy", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "prefix_caching"}


@dataclass(frozen=True)
class ChangeConfig:
    """A new run with other limits. start: "idle" once no request is in progress; "barrier" admits
    no request to a lane from now on, and waiting requests join the new run.
    """

    config: EngineConfig
    start: RunStart


@dataclass(frozen=True)
class ClassSettings:
    """What a teacher has set besides the limits: whether requests are accepted. system: said to the
    model before each question of a person, None where it is not asked by messages.
    """

    accepting: bool = True
    system: str | None = None


@dataclass(frozen=True)
class ClassState:
    """The settings of a shared engine. next: the limits of a run that is about to begin, for which
    `held` requests wait. record_is_full: later steps of this run are no longer kept. accepting,
    system: see `ClassSettings`.
    """

    config: EngineConfig
    next: EngineConfig | None
    held: int
    record_is_full: bool
    hidden: Hidden
    accepting: bool
    system: str | None

    def to_json(self) -> dict[str, Any]:
        """The content of an entry of kind "class"."""
        return {
            **_limits(self.config),
            "changing": self.next is not None,
            "next": None if self.next is None else _limits(self.next),
            "held": self.held,
            "record_is_full": self.record_is_full,
            "hide_texts": self.hidden.texts,
            "hide_nicknames": self.hidden.nicknames,
            "accepting": self.accepting,
            "system": self.system,
        }


def _limits(config: EngineConfig) -> dict[str, Any]:
    return {name: value for name, value in config.to_json().items() if name in LIMITS}
