"""`RequestState`, the one mutable record of a request's progress, and its `BlockTable`.

Only the scheduler changes a `RequestState`. Prefill and decode are never stored: both follow from `num_computed_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from core.workload.request import FinishReason, Request

UNREAD = -1  # stands for a sampled token that the host has not read yet


class RequestStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class BlockTable(NamedTuple):
    """The KV blocks of one request, in order of position; `consecutive` where each id follows the one before."""

    blocks: tuple[int, ...] = ()
    consecutive: bool = True

    def extend(self, more: tuple[int, ...]) -> BlockTable:
        joined = self.blocks + more
        tail = self.blocks[-1:] + more
        return BlockTable(joined, self.consecutive and all(b == a + 1 for a, b in pairwise(tail)))


@dataclass(slots=True, eq=False)
class RequestState:
    """A request's progress.

    order: how many came before it; the scheduler renumbers by arrival. max_num_tokens: its prompt and all
    tokens it may generate.
    """

    request: Request
    prompt_token_ids: tuple[int, ...]
    order: int = 0
    max_num_tokens: int = field(init=False)
    token_ids: list[int] = field(init=False)  # prompt, then generated
    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prefix-cache hits at the latest admission
    num_to_prefill: int = 0  # tokens that it had at the latest admission
    lane: int | None = None
    block_table: BlockTable = field(default_factory=BlockTable)
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_token_ids)
        self.max_num_tokens = len(self.prompt_token_ids) + self.request.sampling.max_new_tokens

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def held_lane(self) -> int:
        """The lane of a request that has one."""
        assert self.lane is not None
        return self.lane

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_pending(self) -> int:
        """Tokens known but not yet in the KV cache."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_prefilling(self) -> bool:
        """Not all tokens are computed that it came with: while some are not, it has not said a new one since."""
        return self.num_computed_tokens < self.num_to_prefill

    @property
    def is_decoding(self) -> bool:
        """One pending token, and it was generated."""
        return len(self.token_ids) - self.num_computed_tokens == 1 and len(self.token_ids) > len(self.prompt_token_ids)
