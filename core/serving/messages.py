"""What other threads tell the engine's thread, a frozen record for each. They are handled between two steps, in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from core.config import EngineConfig
from core.serving.event_log import Hidden

if TYPE_CHECKING:
    from core.serving.stream import TokenStream

RunStart = Literal["idle", "barrier"]
LIMITS = {"policy", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "prefix_caching"}  # that a teacher sets


# -- to the engine's thread ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submit:
    """Queue a request."""

    stream: TokenStream


@dataclass(frozen=True)
class Cancel:
    """End a request; one that has ended stays as it is."""

    stream: TokenStream


@dataclass(frozen=True)
class SetPace:
    """steps_per_s: at most so many; None for full speed, 0 to stand still except for single steps."""

    steps_per_s: float | None


@dataclass(frozen=True)
class TakeSteps:
    """Take this many steps now, at any pace."""

    count: int


@dataclass(frozen=True)
class ChangeConfig:
    """Begin a new run with other limits. start: "idle" once nobody is under way; "barrier" lets no request into a lane from now on, and those
    that wait join the new run.
    """

    config: EngineConfig
    start: RunStart


@dataclass(frozen=True)
class SetClass:
    """What a teacher has set beside the limits. shadow: the policy beside the engine's."""

    accepting: bool = True
    shadow: str | None = None


class Command(Enum):
    """Messages that need no more words."""

    CANCEL_ALL = "end every request under way"
    DRAIN = "go on at full speed; viewers are told nothing more"
    STOP = "end after the step under way"


ToEngine = Submit | Cancel | SetPace | TakeSteps | ChangeConfig | SetClass | Command


# -- to viewers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassState:
    """How an engine is set for everybody who shares it. next: the limits of a run that is about to begin, which `held` requests wait for.
    record_is_full: later steps of this run are no longer kept.
    """

    config: EngineConfig
    next: EngineConfig | None
    held: int
    record_is_full: bool
    hidden: Hidden
    shadow: str | None
    accepting: bool

    def to_json(self) -> dict[str, Any]:
        """What viewers are told in an entry of kind "class"."""
        return {
            **_limits(self.config),
            "changing": self.next is not None,
            "next": None if self.next is None else _limits(self.next),
            "held": self.held,
            "record_is_full": self.record_is_full,
            "hide_texts": self.hidden.texts,
            "hide_nicknames": self.hidden.nicknames,
            "shadow": self.shadow,
            "accepting": self.accepting,
        }


def _limits(config: EngineConfig) -> dict[str, Any]:
    return {name: value for name, value in config.to_json().items() if name in LIMITS}
