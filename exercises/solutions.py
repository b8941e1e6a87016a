"""The solutions. Look here last."""

from __future__ import annotations

from exercises.given import Chunk, RequestProgress


def schedule_static(
    waiting: list[RequestProgress], running: list[RequestProgress], lanes: int
) -> dict[str, int]:
    wave = running or waiting[:lanes]
    return {request.id: request.left for request in wave}


def schedule_continuous(
    waiting: list[RequestProgress], running: list[RequestProgress], lanes: int, budget: int
) -> dict[str, int]:
    plan: dict[str, int] = {}
    in_order = (
        [r for r in running if r.decodes]
        + [r for r in running if not r.decodes]
        + waiting[: lanes - len(running)]
    )
    for request in in_order:
        share = min(request.left, budget)
        if not share:
            break
        plan[request.id] = share
        budget -= share
    return plan


def block_diagonal_mask(chunks: list[Chunk]) -> list[list[bool]]:
    keys = [(chunk.request, position) for chunk in chunks for position in range(chunk.end)]
    queries = [
        (chunk.request, position) for chunk in chunks for position in range(chunk.start, chunk.end)
    ]
    return [
        [request == of and key <= position for of, key in keys] for request, position in queries
    ]


class Blocks:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free = list(range(num_blocks))
        self.tables: dict[str, list[int]] = {}

    def grow(self, request: str, positions: int) -> bool:
        held = self.tables.get(request, [])
        lacking = max(0, -(-positions // self.block_size) - len(held))
        if lacking > len(self.free):
            return False
        self.tables[request] = held + [self.free.pop() for _ in range(lacking)]
        return True

    def table(self, request: str) -> list[int]:
        return list(self.tables.get(request, []))

    def release(self, request: str) -> None:
        self.free += self.tables.pop(request, [])

    def slot(self, request: str, position: int) -> int:
        block, offset = divmod(position, self.block_size)
        return self.tables[request][block] * self.block_size + offset
