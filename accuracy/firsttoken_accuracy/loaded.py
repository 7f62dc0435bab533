"""Experts' efficiencies by whole runs under load: the simulator plays them, as `firsttoken accuracy` does.

The first fit (`fitting.py`) rests on runs of few clients and two formats. Each set of (generation, format) that has
rows in e2e_vllm moves three of its numbers, floor_us, mfu and mbu, from where the shipped file has them; a set that was
not fitted before from those of the first fit, NVFP4 and INT4 of the nearest format.
Kept out, as there: whole (GPU, model, ranks, prompt length) by hash.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.timing.efficiency import build
from firsttoken.simulation.measured_runs import MeasuredRun, read_runs
from firsttoken.simulation.replay import Replay
from firsttoken_accuracy.least_squares import SOFT
from firsttoken_accuracy.served import part
from firsttoken_accuracy.tables import DATA, device

Table = Mapping[str, Any]
Set = tuple[str, str]  # generation, format
NAMES = ("floor_us", "mfu", "mbu")
LOW, HIGH = np.log([1.0, 0.01, 0.05]), np.log([300.0, 1.5, 1.0])
NEAREST = {"nvfp4": "fp8", "int4": "mxfp4"}  # where a format without a first fit begins
NUDGE, FURTHEST = 0.1, 0.7  # of logarithms
ROUNDS, LEAST_GAIN = 8, 0.005  # steps at most; the part of the cost that a step must save to be taken


@dataclass(frozen=True)
class Measured:
    """A configuration with the means of its rows. Seconds."""

    run: MeasuredRun
    belongs: Set
    fold: int
    times: tuple[float, float]


def format_of(run: MeasuredRun) -> str:
    """In the experts' table; "" for a dense model."""
    if run.model.startswith("openai/gpt-oss"):
        return "mxfp4"
    if run.model.startswith("meta-llama/"):
        return ""
    return {"fp8": "fp8", "fp4": "nvfp4", "nvfp4": "nvfp4", "int4": "int4"}[run.precision]


def contradicts(run: MeasuredRun) -> bool:
    """A queue of more than two whole requests although the engine had a place for each client (gpt-oss)."""
    return run.model.startswith("openai/") and run.ttft > 2 * run.output * run.tpot


def measured() -> list[Measured]:
    """Every configuration with experts; rows that contradict themselves are left out."""
    runs, _ = read_runs((DATA / "e2e_vllm.csv").read_text().splitlines(), "e2e_vllm.csv")
    groups: dict[tuple[object, ...], list[MeasuredRun]] = {}
    for run in runs:
        if format_of(run) and not contradicts(run):
            groups.setdefault(run.configuration, []).append(run)
    return [
        Measured(
            rows[0],
            (device(rows[0].system).generation, format_of(rows[0])),
            part(rows[0]),
            tuple(float(np.exp(np.mean(np.log([getattr(r, name) for r in rows])))) for name in ("ttft", "tpot")),  # type: ignore[arg-type]
        )
        for rows in groups.values()
    ]


def refit(table: Table, runs: Sequence[Measured], shipped: Table) -> Table:
    """The table with the experts of every set that `runs` have, fitted on them, each on its own: they share nothing.

    The search begins at what is `shipped`, where that has the set, so that a fit of what is fitted changes nothing.
    """
    sets = sorted({m.belongs for m in runs})
    begin = {s: _start(shipped if s[1] in _experts(shipped, s[0]) else table, *s) for s in sets}
    return _with(table, {s: _settled(table, s, [m for m in runs if m.belongs == s], begin[s]) for s in sets})


def _settled(table: Table, one: Set, runs: Sequence[Measured], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the numbers of one set, where another step no longer brings its runs nearer."""
    for _ in range(ROUNDS):
        moved, gain = step(table, one, runs, x)
        if gain < LEAST_GAIN:
            break
        x = moved
    return x


def step(
    table: Table, one: Set, runs: Sequence[Measured], x: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], float]:
    """Where one more step from `x` leads (default: what the table has), and the part of the cost that it saves."""
    x = _start(table, *one) if x is None else x
    now = _residuals(table, {one: x}, runs)
    columns = []
    for i in range(len(NAMES)):
        moved = x + NUDGE * (np.arange(len(NAMES)) == i)
        columns.append((_residuals(table, {one: moved}, runs) - now) / NUDGE)
    there = np.clip(x + _step(now, columns), LOW, HIGH)
    return there, 1 - _cost(_residuals(table, {one: there}, runs)) / _cost(now)


def _experts(table: Table, generation: str) -> Table:
    found: Table = table["generations"][generation]["experts"]
    return found


def _step(now: NDArray[np.float64], columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    r = now.ravel()
    weights = 1 / np.sqrt(1 + (r / SOFT) ** 2)
    j = np.stack([c.ravel() for c in columns], 1)
    left = j.T @ (weights[:, None] * j)
    left += 0.02 * np.trace(left) / len(NAMES) * np.eye(len(NAMES))
    return np.asarray(np.clip(np.linalg.solve(left, -j.T @ (weights * r)), -FURTHEST, FURTHEST))


def _cost(r: NDArray[np.float64]) -> float:
    return float(np.sum(np.sqrt(1 + (r / SOFT) ** 2) - 1))


def _residuals(table: Table, x: Mapping[Set, NDArray[np.float64]], runs: Iterable[Measured]) -> NDArray[np.float64]:
    replay = Replay(partial(build, _with(table, x)))
    found = [(replay(m.run), m.times) for m in runs]
    return np.array([np.log([p.ttft / ttft, p.tpot / tpot]) for p, (ttft, tpot) in found])


def _start(table: Table, generation: str, kind: str) -> NDArray[np.float64]:
    experts = _experts(table, generation)
    own = experts.get(kind, experts[NEAREST.get(kind, kind)])
    return np.clip(np.log([max(1e-9, own[name]) for name in NAMES]), LOW, HIGH)


def _with(table: Table, x: Mapping[Set, NDArray[np.float64]]) -> Table:
    """Experts in 16 bits, which no run has, follow MXFP4 on Hopper, as in the first fit."""
    changed = {name: dict(g) for name, g in table["generations"].items()}
    for (generation, kind), values in x.items():
        experts = dict(changed[generation]["experts"])
        base = experts.get(kind, experts[NEAREST.get(kind, kind)])
        experts[kind] = {**base, **{n: float(f"{np.exp(v):.4g}") for n, v in zip(NAMES, values, strict=True)}}
        changed[generation]["experts"] = experts
    sixteen = changed["hopper"]["experts"]["mxfp4"]
    for generation in ("hopper", "blackwell"):
        changed[generation]["experts"] = {**changed[generation]["experts"], "bf16": sixteen}
    return {**table, "generations": changed}


def lines(table: Table) -> Iterable[str]:
    """A Markdown table of all 923 rows: the experts' fit had some, dense models and contradictions are kept out."""
    runs, _ = read_runs((DATA / "e2e_vllm.csv").read_text().splitlines(), "e2e_vllm.csv")
    replay = Replay(partial(build, table))
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for run in runs:
        found = replay(run)
        kept = "in the fit" if format_of(run) and part(run) and not contradicts(run) else "kept out"
        errors = (found.ttft / run.ttft - 1, found.tpot / run.tpot - 1)
        for group in ((run.model.split("/")[-1], run.precision, run.system, kept), ("all", "", "", kept)):
            groups.setdefault(group, []).append(errors)
    yield "| model | weights | GPU | | rows | TTFT median | mean | bias | TPOT median | mean | bias |\n"
    yield "|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
    for key, pairs in sorted(groups.items(), key=lambda g: (g[0][0] == "all", g[0])):
        cells = []
        for values in np.array(pairs).T:
            size = np.abs(values)
            cells += [f"{100 * np.median(size):.1f}", f"{100 * size.mean():.1f}", f"{100 * values.mean():+.1f}"]
        yield f"| {' | '.join(key)} | {len(pairs)} | {' | '.join(cells)} |\n"
