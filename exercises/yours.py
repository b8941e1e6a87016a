"""Your answers. Each function says what it is given and what it must return; `python -m exercises` checks it."""

from __future__ import annotations

from exercises.given import Piece, Request


def schedule_static(waiting: list[Request], running: list[Request], lanes: int) -> dict[str, int]:
    """Static batching: how many positions each request computes in this step, by its id.

    waiting: in order of arrival. running: those of the present wave that have not finished. A wave begins only when nobody runs; it
    takes as many of the waiting as there are lanes, and reads their prompts whole. After that each computes one position a step.
    """
    raise NotImplementedError


def schedule_continuous(waiting: list[Request], running: list[Request], lanes: int, budget: int) -> dict[str, int]:
    """Continuous batching: how many positions each request computes in this step, by its id.

    running: those that hold a lane, in the order in which they were admitted. All together may compute at most `budget` positions.
    First every request that decodes gets its one, then prompts that have been begun go on, then waiting requests are admitted in order
    while a lane and budget are left. A prompt that does not fit gets what is left.
    """
    raise NotImplementedError


def block_diagonal_mask(pieces: list[Piece]) -> list[list[bool]]:
    """The mask of a packed row: a row for every position computed now, a column for every key.

    Rows: the pieces one after the other, positions `start` … `end - 1` of each. Columns: for each piece its keys 0 … `end - 1`. A
    position may look at the keys of its own request up to and including itself.
    """
    raise NotImplementedError


class Blocks:
    """A pool of `num_blocks` KV blocks of `block_size` positions."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        raise NotImplementedError

    def grow(self, request: str, positions: int) -> bool:
        """Give a request the blocks it lacks to hold so many positions. False, and nothing changes, if there are too few."""
        raise NotImplementedError

    def table(self, request: str) -> list[int]:
        """The request's blocks, in order."""
        raise NotImplementedError

    def release(self, request: str) -> None:
        """Take back all its blocks."""
        raise NotImplementedError

    def slot(self, request: str, position: int) -> int:
        """Where a position of the request lies: block × block size + offset."""
        raise NotImplementedError
