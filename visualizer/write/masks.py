"""The cases of the mask exercise: random packed rows, the smallest first, and their masks."""

import random
from itertools import permutations
from typing import Any, NamedTuple

from core.trace.events import Pass, Segment
from core.trace.mask import Mask, mask_of
from visualizer.write.cases import Case, called, typed, wrong
from visualizer.write.code import Fault

ROWS = 200
Rows = list[list[bool]]


class ChunkInRow(NamedTuple):
    """Positions that are computed now, with the fields of the learner's `Chunk`."""

    request: str
    start: int
    end: int

    def __repr__(self) -> str:
        return f"Chunk(request={self.request!r}, start={self.start}, end={self.end})"


def mask(seed: int) -> list[Case]:
    draw = random.Random(f"mask {seed}")
    rows = [_row(draw, draw.choice((1, 2, 2, 3, 4))) for _ in range(ROWS)]
    rows.sort(key=lambda chunks: (sum(c.end for c in chunks), len(chunks)))
    return [_case(chunks) for chunks in rows]


def _row(draw: random.Random, lanes: int) -> list[ChunkInRow]:
    chunks = []
    for name in draw.sample("ABCDEF", lanes):
        start = draw.choice((0, 0, 1, draw.randint(1, 6)))
        end = start + (1 if draw.random() < 0.5 else draw.randint(1, 5))
        chunks.append(ChunkInRow(name, start, end))
    return chunks


def _case(chunks: list[ChunkInRow]) -> Case:
    due, call = _mask(chunks), "block_diagonal_mask(chunks)"
    made = [f'Chunk("{c.request}", start={c.start}, end={c.end})' for c in chunks]
    given, lists = f"chunks = [{', '.join(made)}]", {"chunks": chunks}
    return called((given,), call, lists, _rows(due), lambda found: _wrong(chunks, due, found))


def _mask(chunks: list[ChunkInRow]) -> Mask:
    """The trace's mask of a pass that computes these chunks."""
    segments = []
    for lane, (request, start, end) in enumerate(chunks):
        phase = "decode" if start and end - start == 1 else "prefill"
        segments.append(
            Segment(
                pass_index=0,
                request=request,
                lane=lane,
                phase=phase,
                start=start,
                length=end - start,
                kv_len=end,
            )
        )
    tokens = sum(s.length for s in segments)
    packed = Pass(
        layout="packed", rows=1, width=tokens, tokens=tokens, padding=0, t_start=0.0, t_end=0.0
    )
    return mask_of(packed, segments, lambda request, position: "")


def _rows(mask: Mask) -> Rows:
    return [list(map(bool, row)) for row in mask.allowed]


def _wrong(chunks: list[ChunkInRow], due: Mask, found: Any) -> Fault | None:
    if not isinstance(found, list):
        return wrong("no rows", got=typed(found))
    for index, row in enumerate(found):
        if not isinstance(row, list):
            return wrong("no row", row=index, got=typed(row))
    right = _rows(due)
    if found == right:
        return None
    if found == [list(column) for column in zip(*right, strict=True)]:
        return wrong("transposed")
    if len(found) != len(right):
        return wrong("number of rows", count=len(found), due=len(right))
    for index, row in enumerate(found):
        if len(row) != len(due.keys):
            return wrong("number of columns", row=index, count=len(row), due=len(due.keys))
        for column, cell in enumerate(row):
            if cell not in (True, False):
                return wrong("no cell", row=index, got=typed(cell), column=column)
    if any(found == _rows(_mask(list(other))) for other in permutations(chunks)):
        return wrong("order of chunks")
    if sorted(zip(*found, strict=True)) == sorted(zip(*right, strict=True)):
        return wrong("order of columns")
    if sorted(found) == sorted(right):
        return wrong("order of rows")
    return _wrong_cell(due, found)


def _wrong_cell(due: Mask, found: Rows) -> Fault:
    cells = ((q, k) for q, row in enumerate(found) for k in range(len(row)))
    row, column = next((q, k) for q, k in cells if bool(found[q][k]) != bool(due.allowed[q][k]))
    query, key = due.queries[row], due.keys[column]
    if query.request != key.request:
        name = "another request"
    elif not due.allowed[row][column]:
        name = "a later key"
    else:
        name = "itself" if query.position == key.position else "an earlier key"
    at = {"position": query.position, "request": query.request}
    return wrong(name, **at, key=key.position, other=key.request)
