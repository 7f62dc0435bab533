"""Robust least squares on relative errors, in plain Python: Levenberg and Marquardt with bounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Row = TypeVar("Row")
Values = Mapping[str, float]

SOFT = 0.08  # residuals beyond 8 % count ever less: outliers of a table do not bend the fit
STEPS = 25


@dataclass(frozen=True)
class Parameter:
    """Start and bounds of one parameter."""

    name: str
    start: float
    low: float
    high: float


def beginning(parameters: Sequence[Parameter], values: Values) -> list[Parameter]:
    """The parameters, started at `values` where these have them."""
    return [replace(p, start=min(p.high, max(p.low, values.get(p.name, p.start)))) for p in parameters]


def fit(
    parameters: Sequence[Parameter],
    rows: Sequence[Row],
    predict: Callable[[Values, Row], float],
    measured: Callable[[Row], float],
    weight: Callable[[Row], float] = lambda _: 1.0,
    *,
    steps: int = STEPS,
) -> dict[str, float]:
    """Parameters that bring log(predicted / measured) near zero. `steps`: at most."""
    target = [math.log(measured(r)) for r in rows]
    weights = [weight(r) for r in rows]

    def residuals(x: Sequence[float]) -> list[float]:
        values = {p.name: v for p, v in zip(parameters, x, strict=True)}
        return [math.log(predict(values, r)) - t for r, t in zip(rows, target, strict=True)]

    def cost(r: Sequence[float]) -> float:
        return sum(w * (math.sqrt(1 + (v / SOFT) ** 2) - 1) for v, w in zip(r, weights, strict=True))

    x = [p.start for p in parameters]
    current, damping = residuals(x), 1e-2
    for _ in range(steps):
        columns = [_derivative(residuals, parameters, x, current, i) for i in range(len(x))]
        robust = [w / math.sqrt(1 + (v / SOFT) ** 2) for v, w in zip(current, weights, strict=True)]
        found = False
        while damping < 1e6 and not found:
            moved = _step(parameters, x, columns, current, robust, damping)
            there = residuals(moved)
            gain = cost(current) - cost(there)
            found = gain > 0
            damping = max(1e-9, damping / 5) if found else damping * 5
        if not found:
            break
        small = gain < 1e-5 * (1e-12 + cost(there))
        x, current = moved, there
        if small:
            break
    return {p.name: v for p, v in zip(parameters, x, strict=True)}


def _derivative(
    residuals: Callable[[Sequence[float]], list[float]],
    parameters: Sequence[Parameter],
    x: Sequence[float],
    current: Sequence[float],
    index: int,
) -> list[float]:
    p = parameters[index]
    step = 1e-3 * (p.high - p.low)
    if x[index] + step > p.high:
        step = -step
    there = residuals([v + step if i == index else v for i, v in enumerate(x)])
    return [(a - b) / step for a, b in zip(there, current, strict=True)]


def _step(  # noqa: PLR0917
    parameters: Sequence[Parameter],
    x: Sequence[float],
    columns: Sequence[Sequence[float]],
    residual: Sequence[float],
    weights: Sequence[float],
    damping: float,
) -> list[float]:
    free = list(range(len(x)))
    while True:  # a parameter pushed through its bound stays on it, and the others move without it
        delta = _solve_normal([columns[i] for i in free], residual, weights, damping)
        moved = list(x)
        for i, d in zip(free, delta, strict=True):
            moved[i] = x[i] + d
        stuck = [
            i for i in free
            if (moved[i] < parameters[i].low and x[i] <= parameters[i].low)
            or (moved[i] > parameters[i].high and x[i] >= parameters[i].high)
        ]  # fmt: skip
        if not stuck:
            return [min(p.high, max(p.low, v)) for p, v in zip(parameters, moved, strict=True)]
        free = [i for i in free if i not in stuck]
        if not free:
            return list(x)


def _solve_normal(
    columns: Sequence[Sequence[float]], residual: Sequence[float], weights: Sequence[float], damping: float
) -> list[float]:
    size = len(columns)
    weighted = [[c * w for c, w in zip(column, weights, strict=True)] for column in columns]
    matrix = [[sum(map(float.__mul__, weighted[i], columns[j])) for j in range(size)] for i in range(size)]
    right = [-sum(map(float.__mul__, weighted[i], residual)) for i in range(size)]
    for i in range(size):
        matrix[i][i] = matrix[i][i] * (1 + damping) + 1e-12
    return _eliminate(matrix, right)


def _eliminate(matrix: list[list[float]], right: list[float]) -> list[float]:
    size = len(right)
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        right[i], right[pivot] = right[pivot], right[i]
        for row in range(i + 1, size):
            factor = matrix[row][i] / matrix[i][i]
            right[row] -= factor * right[i]
            for column in range(i, size):
                matrix[row][column] -= factor * matrix[i][column]
    solved = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(matrix[i][j] * solved[j] for j in range(i + 1, size))
        solved[i] = (right[i] - rest) / matrix[i][i]
    return solved
