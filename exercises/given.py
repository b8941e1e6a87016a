"""What the exercises are given: requests as a scheduler sees them, and chunks of a packed row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestProgress:
    """tokens: prompt and generated so far. computed: how many of them are in the cache. It decodes once only the newest is missing."""

    id: str
    tokens: int
    computed: int

    @property
    def left(self) -> int:
        """Positions still to compute before the next new token: one while it decodes."""
        return self.tokens - self.computed

    @property
    def decodes(self) -> bool:
        return self.computed > 0 and self.left == 1


@dataclass(frozen=True)
class Chunk:
    """Positions `start` … `end - 1` of a request, computed now; those before are cached."""

    request: str
    start: int
    end: int
