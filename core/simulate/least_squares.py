"""Least squares with non-negative coefficients, whose predictions add up to what was measured. It
knows nothing of passes or traces.
"""

import math
from collections.abc import Sequence
from operator import mul

# the most rounds, and the share by which predictions may still move in the last one
_ROUNDS, _SETTLED = 8, 1e-4
# a column depends on those before it if at most this share of its squares is left without them
_DEPENDENT = 1e-9


def least_squares(
    rows: Sequence[Sequence[float]],
    measured: Sequence[float],
    typical: bool = False,
    start: Sequence[float] | None = None,
) -> list[float]:
    """The coefficients, one for each column of the rows, with which `row · coefficients` comes
    closest to what was measured.

    Each squared error is divided by the prediction, so the predictions for these rows add up to
    exactly what was measured. typical: errors are relative to what was measured instead; then rare
    long times count least, and the sum is smaller. A negative coefficient is set to zero and the
    others are fitted again. A column that depends on those before it gets zero. start: coefficients
    that are nearly right, which saves time.
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
    """Gaussian elimination of normal equations; zero for a column that depends on others."""
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
