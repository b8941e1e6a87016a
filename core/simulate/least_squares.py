"""Least squares with no coefficient below zero, whose predictions add up to what was measured.
Knows nothing of passes or traces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

# at most so many; done once no prediction moves by more than this share
_ROUNDS, _SETTLED = 8, 1e-4
# of a column's squares: what is left of it once the columns before it have explained the rest
_DEPENDENT = 1e-9


def least_squares(
    rows: Sequence[Sequence[float]],
    measured: Sequence[float],
    typical: bool = False,
    start: Sequence[float] | None = None,
) -> list[float]:
    """The coefficients, one for each column of the rows, with which `row · coefficients` comes
    closest to what was measured.

    A squared error is divided by the prediction, and so the predictions for these rows add up to
    exactly what was measured. typical: errors are shares of what was measured instead; rare long
    times then count least, and the sum comes out smaller. A negative coefficient is set to zero and
    the others are fitted again. A column that the columns before it determine gets zero: what
    cannot be told apart is counted to the first. start: coefficients that are nearly right, with
    which it takes less time.
    """
    if typical:
        return _weighted(rows, measured, [value**-2 for value in measured])
    found = start or _weighted(rows, measured, [1.0] * len(rows))
    expected = predictions(rows, found)
    for _ in range(_ROUNDS):
        least = max(expected) * 1e-9
        found = _weighted(rows, measured, [1 / max(value, least) for value in expected])
        before, expected = expected, predictions(rows, found)
        if all(abs(new - old) <= _SETTLED * new for new, old in zip(expected, before, strict=True)):
            break
    return list(found)


def predictions(rows: Sequence[Sequence[float]], coefficients: Sequence[float]) -> list[float]:
    """`row · coefficients` of each row."""
    columns = zip(*rows, strict=True)
    parts = [
        [number * coefficient for number in column]
        for column, coefficient in zip(columns, coefficients, strict=True)
    ]
    return list(map(sum, zip(*parts, strict=True)))


def _weighted(
    rows: Sequence[Sequence[float]], measured: Sequence[float], weights: Sequence[float]
) -> list[float]:
    columns = list(zip(*rows, strict=True))
    used = list(range(len(columns)))
    while True:
        weighted = {i: list(map(mul, columns[i], weights)) for i in used}
        sums = {
            (i, j): sum(map(mul, weighted[i], columns[j])) for i in used for j in used if i <= j
        }
        matrix = [[sums[min(i, j), max(i, j)] for j in used] for i in used]
        found = _solved(matrix, [sum(map(mul, weighted[i], measured)) for i in used])
        if min(found) >= 0:
            coefficients = dict(zip(used, found, strict=True))
            return [coefficients.get(i, 0.0) for i in range(len(columns))]
        used.pop(found.index(min(found)))


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Gaussian elimination of normal equations; zero for a column that others determine."""
    size = len(right)
    scales = [math.sqrt(matrix[i][i]) or 1.0 for i in range(size)]
    rows = [
        [*(matrix[i][j] / scales[i] / scales[j] for j in range(size)), right[i] / scales[i]]
        for i in range(size)
    ]
    free = list(range(size))
    for i in range(size):
        if rows[i][i] <= _DEPENDENT:
            free.remove(i)
            continue
        for other in range(size):
            if other != i:
                factor = rows[other][i] / rows[i][i]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] / scales[i] if i in free else 0.0 for i in range(size)]
