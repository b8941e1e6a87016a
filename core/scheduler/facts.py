"""What the scheduler decided in a step, and why: gathered while it decides, then frozen into the step's event by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.trace.events import (
    Admitted,
    BlockChange,
    Budget,
    Finished,
    Left,
    Limit,
    Overrun,
    Preempted,
    PrefixHit,
    Stalled,
    Waiting,
)

NOBODY_WAITS = Waiting(0)


@dataclass(slots=True)
class StepFacts:
    """cut: what cut a prompt into chunks. blocks_used: the most that were in use while a pass of the step was planned."""

    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    stalled: list[Stalled] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    block_changes: list[BlockChange] = field(default_factory=list)
    prefix_hits: list[PrefixHit] = field(default_factory=list)
    overrun: list[Overrun] = field(default_factory=list)
    waiting: Waiting = NOBODY_WAITS
    decode_tokens: int = 0
    prefill_tokens: int = 0
    cut: Limit = "none"
    blocks_used: int = 0

    def budget(self, limit: int | None) -> Budget:
        """What the token budget was spent on, and which limit bound: a spent budget is named before anything else that the first waiting request lacks."""
        used = self.decode_tokens + self.prefill_tokens
        held_back = self.cut == "budget" or self.waiting.why is not None
        if used == limit and held_back:
            binding: Limit = "budget"
        elif self.waiting.why is not None:
            binding = self.waiting.why.limit
        elif self.stalled:
            binding = self.stalled[0].why.limit
        else:
            binding = self.cut
        return Budget(limit, self.decode_tokens, self.prefill_tokens, 0 if limit is None else limit - used, binding)
