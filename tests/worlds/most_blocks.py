"""A custom policy, as a user would write it: whoever holds most blocks gives way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.policy import Policy, RequestView


@dataclass(frozen=True, kw_only=True)
class MostBlocks(Policy):
    name: str = "most-blocks"
    shows: str = "as continuous, but whoever holds most blocks is preempted"
    victim: str = "whoever holds most blocks"

    def select_victim(self, candidates: Sequence[RequestView]) -> RequestView:
        return max(candidates, key=lambda request: request.num_blocks)
