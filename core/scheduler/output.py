"""The scheduler's decision for one forward pass: frozen, ints and tuples, never a tensor or a live request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from core.scheduler.state import BlockTable
from core.workload.request import Phase


class ScheduledRequest(NamedTuple):
    """One request's row or segment in the pass.

    tokens: the ids to compute, at positions `start` … `start + len(tokens) - 1`; empty for a finished row that is still computed
    (as padding) until its wave ends. samples: whether the last position's logits give the request a new token. prompt, generated: all its
    tokens so far, where its sampling looks back at them; empty elsewhere.
    """

    request: str
    lane: int
    phase: Phase
    tokens: tuple[int, ...]
    start: int
    block_table: BlockTable
    samples: bool
    prompt: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()

    @property
    def kv_len(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One pass: who computes what, in packed order, i.e. lane order. layout "packed" is one row, "padded" a row a request."""

    layout: Literal["packed", "padded"]
    scheduled: tuple[ScheduledRequest, ...]

    @property
    def num_scheduled_tokens(self) -> int:
        return sum(len(s.tokens) for s in self.scheduled)

    @property
    def rows(self) -> int:
        return len(self.scheduled) if self.layout == "padded" else 1

    @property
    def width(self) -> int:
        """Positions in a row."""
        if self.layout == "packed":
            return self.num_scheduled_tokens
        return max(1, max(len(s.tokens) for s in self.scheduled))

    @property
    def padding(self) -> int:
        """Positions computed for nobody."""
        return self.rows * self.width - self.num_scheduled_tokens
