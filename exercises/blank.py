"""Your answers. Each docstring says what the function is given and must return; `python -m exercises` checks it."""

from __future__ import annotations

from exercises.given import Chunk, RequestProgress


def schedule_static(
    waiting: list[RequestProgress], running: list[RequestProgress], lanes: int
) -> dict[str, int]:
    """Static batching: how many positions each request computes in this step, by its id.

    waiting: in order of arrival. running: the unfinished requests of the current wave. A wave begins only when none is
    running; it takes as many waiting requests as there are lanes, and computes their whole prompts. After that each computes one position per step.
    Both lists stay as they are.
    """
    raise NotImplementedError


def schedule_continuous(
    waiting: list[RequestProgress], running: list[RequestProgress], lanes: int, budget: int
) -> dict[str, int]:
    """Continuous batching: how many positions each request computes in this step, by its id.

    running: those that hold a lane, in order of admission. Together they may compute at most `budget` positions. First every
    decoding request gets one position, then prompts already begun continue, then waiting requests are admitted in order while a lane
    and budget are left. A prompt that does not fit gets the rest of the budget. Both lists stay as they are.
    """
    raise NotImplementedError


def block_diagonal_mask(chunks: list[Chunk]) -> list[list[bool]]:
    """The mask of a packed row: one row per position computed now, one column per key.

    Rows: the chunks one after the other, positions `start` … `end - 1` of each. Columns: for each chunk its keys 0 … `end - 1`. A
    position may attend to the keys of its own request up to and including itself. The list stays as it is.
    """
    raise NotImplementedError


class Blocks:
    """A pool of `num_blocks` KV blocks of `block_size` positions: blocks 0 … `num_blocks - 1`, each held by one request at most."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        raise NotImplementedError

    def grow(self, request: str, positions: int) -> bool:
        """Give a request the blocks that it lacks to hold `positions` positions; it keeps those that it has, in their order. Return True, or
        False, changing nothing, if too few are free."""
        raise NotImplementedError

    def table(self, request: str) -> list[int]:
        """The request's blocks, in order; none if it holds none. The caller may do with the list what it likes."""
        raise NotImplementedError

    def release(self, request: str) -> None:
        """Take back all its blocks, if it holds any."""
        raise NotImplementedError

    def slot(self, request: str, position: int) -> int:
        """The slot of a position: block × block size + offset."""
        raise NotImplementedError
