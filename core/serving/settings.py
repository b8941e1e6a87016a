"""What a teacher sets for all users of a shared engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.config import EngineConfig

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
