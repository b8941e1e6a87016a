"""The likeliest tokens at each position, for requests that ask for them: computed beside the passes, from the logits that the choice was made
from, and only while somebody asks. Belongs to the engine's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from core.engine.runner import SamplingRow, observing
from core.runner.sampling import adjust_logits


class TopLogprob(NamedTuple):
    """A token that could have been chosen, and its natural log-probability at temperature 1, after bias and penalties."""

    token_id: int
    logprob: float


class TopLogprobs:
    """See above. A pass that is launched before its tokens are read leaves what it computed on the device until then."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # how many, by request
        self._found: dict[str, dict[int, tuple[torch.Tensor, torch.Tensor]]] = {}  # by request, then by tokens before

    def ask(self, request: str, count: int) -> None:
        """From now on, keep this many for each token of a request; none for a count of 0."""
        if count:
            self._asked[request], self._found[request] = count, {}

    def forget(self, request: str) -> None:
        """Forget a request that has ended."""
        self._asked.pop(request, None)
        self._found.pop(request, None)

    def take(self, request: str, position: int) -> tuple[TopLogprob, ...]:
        """Those for the token with this index, likeliest first; empty if nobody asked."""
        found = self._found.get(request, {}).pop(position, None)
        if found is None:
            return ()
        ids, logprobs = found[0].tolist(), found[1].tolist()
        return tuple(TopLogprob(i, round(logprob, 5)) for i, logprob in zip(ids, logprobs, strict=True))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the passes that are launched inside, if anybody asked."""
        if not self._asked:
            yield
            return
        with observing(self._observe):
            yield

    def _observe(self, rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            if row.request in self._asked:
                logprobs = adjust_logits(own[None].float(), [row])[0].log_softmax(-1)
                likely = logprobs.topk(min(self._asked[row.request], len(logprobs)))
                self._found[row.request][row.position] = likely.indices, likely.values
