"""The cases of the mask: random packed rows, from the smallest on, beside the mask that a trace has for them."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

from core.trace.events import Pass, Segment
from core.trace.mask import Mask, mask_of
from exercises.cases import Call
from exercises.given import Chunk
from exercises.replies import Fault, fault, typed

ROWS = 200
_CALL = "block_diagonal_mask(chunks)"


def mask(seed: int) -> list[Call]:
    draw = random.Random(f"mask {seed}")
    rows = [_row(draw, draw.choice((1, 2, 2, 3, 4))) for _ in range(ROWS)]
    rows.sort(key=lambda chunks: (sum(c.end for c in chunks), len(chunks)))
    return [_case(chunks) for chunks in rows]


def _row(draw: random.Random, lanes: int) -> list[Chunk]:
    chunks = []
    for name in draw.sample("ABCDEF", lanes):
        start = draw.choice((0, 0, 1, draw.randint(1, 6)))
        end = start + (1 if draw.random() < 0.5 else draw.randint(1, 5))
        chunks.append(Chunk(name, start, end))
    return chunks


def _case(chunks: list[Chunk]) -> Call:
    mask = expected(chunks)
    given = (
        "chunks = ["
        + ", ".join(f'Chunk("{c.request}", start={c.start}, end={c.end})' for c in chunks)
        + "]"
    )
    due = [list(map(bool, row)) for row in mask.allowed]
    return Call(
        (given,), _CALL, ("chunks", [chunks]), due, lambda found: _wrong(chunks, mask, found)
    )


def expected(chunks: list[Chunk]) -> Mask:
    """The trace's mask of a pass that computes these."""
    segments = [
        Segment(
            0,
            c.request,
            lane,
            "decode" if c.start and c.end - c.start == 1 else "prefill",
            c.start,
            c.end - c.start,
            c.end,
        )
        for lane, c in enumerate(chunks)
    ]
    tokens = sum(s.length for s in segments)
    return mask_of(
        Pass("packed", 1, tokens, tokens, 0, 0.0, 0.0), segments, lambda request, position: ""
    )


def _wrong(chunks: list[Chunk], due: Mask, found: Any) -> Fault | None:
    if not isinstance(found, list):
        return fault("It returned a value of type {got}, not a list of rows.", 0, got=typed(found))
    for index, row in enumerate(found):
        if not isinstance(row, list):
            return fault(
                "In what it returned, row {row} is of type {got}, not a list of `True` and `False`.",
                0,
                row=index,
                got=typed(row),
            )
    right = [list(map(bool, row)) for row in due.allowed]
    if found == right:
        return None
    if found == [list(column) for column in zip(*right, strict=True)]:
        return fault(
            "It has rows and columns exchanged: a row is a position computed now, a column is a key.",
            0,
        )
    if len(found) != len(right):
        says = "It has {count} rows, and one for each position that is computed now makes {due}."
        return fault(says, 0, count=len(found), due=len(right))
    for index, row in enumerate(found):
        if len(row) != len(due.keys):
            says = "Its row {row} has {count} columns, and one for each key, the cached ones included, makes {due}."
            return fault(says, 0, row=index, count=len(row), due=len(due.keys))
        for column, cell in enumerate(row):
            if cell not in (True, False):
                says = (
                    "Row {row} has a value of type {got} in column {column}, not `True` or `False`."
                )
                return fault(says, 0, row=index, got=typed(cell), column=column)
    if any(
        found == list(map(list, expected(list(other)).allowed)) for other in permutations(chunks)
    ):
        return fault("Its chunks are in another order than those that it was given.", 0)
    if sorted(zip(*found, strict=True)) == sorted(zip(*right, strict=True)):
        return fault(
            "Its columns are in another order: chunk after chunk come the keys of each, from 0 on.",
            0,
        )
    if sorted(found) == sorted(right):
        return fault(
            "Its rows are in another order: chunk after chunk come the positions of each, from `start` on.",
            0,
        )
    return _wrong_cell(due, found)


def _wrong_cell(due: Mask, found: list[list[bool]]) -> Fault:
    """The first cell that differs."""
    row, column = next(
        (q, k)
        for q, cells in enumerate(found)
        for k, cell in enumerate(cells)
        if bool(cell) != bool(due.allowed[q][k])
    )
    query, key = due.queries[row], due.keys[column]
    holes = {
        "position": query.position,
        "request": query.request,
        "key": key.position,
        "other": key.request,
    }
    if query.request != key.request:
        says = "Position {position} of {request} must not look at key {key} of {other}: that is another request."
    elif not due.allowed[row][column]:
        says = "Position {position} of {request} must not look at key {key} of {other}, which comes later."
    elif query.position == key.position:
        says = "Position {position} of {request} may look at itself."
    else:
        says = "Position {position} of {request} may look at key {key} of {other}: it is its own, and earlier."
    return fault(says, 0, **holes)
