"""Token budgets: which ones a role may start with, and with which of them a replica carries most (M4.2)."""

from collections.abc import Sequence
from dataclasses import replace

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import Forecast
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import Goodput
from firsttoken.planning.load.search import GRID_STEP
from firsttoken.planning.memory import BLOCK_TOKENS
from firsttoken.planning.settings import Budgets

# M4.2 names 128 and up; below 256 a GPU does little but launch kernels.
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SAME_RATE = 0.97  # part of the best rate that counts as alike: the grid of rates is not much finer


def given_budget(spec: InferenceServiceSpec) -> bool:
    """Whether the spec itself says which token budget the engine starts with."""
    pins, initial = spec.engine.pins or EnginePins(), spec.engine.initial
    return bool(pins.token_budget or (initial and initial.token_budget) or pins.chunked_prefill is False)


def allowed_budgets(spec: InferenceServiceSpec, role: str, budgets: Budgets) -> tuple[int, ...]:
    """Token budgets that a role may start with, rising: for a decode engine, which computes no prompts, one."""
    if given_budget(spec) or role == "decode":
        return (budgets.start,)
    bounds = spec.tuning.token_budget if spec.tuning.mode != "Off" else None
    least = bounds.min if bounds else BLOCK_TOKENS
    return tuple(sorted({*(b for b in BUDGETS if least <= b <= budgets.ceiling), budgets.start}))


def near(allowed: Sequence[int], budget: int) -> tuple[int, ...]:
    """`budget` and its neighbours among those allowed."""
    at = allowed.index(budget)
    return tuple(allowed[max(0, at - 1) : at + 2])


def with_budget(found: Forecast, budget: int, most_running: int, near: float) -> Forecast:
    """The same replica with another token budget, expected to carry about `near` requests a second.

    Each running request takes at least one token of a step.
    """
    return found.with_limits(EngineLimits(budget, min(most_running, budget), found.load.engine.kv_tokens), near)


def best_budget(found: Forecast, allowed: Sequence[int], most_running: int) -> Forecast:
    """The replica with the token budget that carries most; where none keeps the promises, that misses by least.

    What a budget carries has more than one summit, since prompts that end in a step of their own cost another one. So
    all of `allowed` are looked at, but one that breaks a promise at a rate just above the best so far is left at that.
    """
    best = found
    for budget in reversed([b for b in allowed if b != found.load.engine.token_budget]):
        other = with_budget(best, budget, most_running, best.goodput.rate)
        if best.goodput.rate > 0:
            more = best.goodput.rate * GRID_STEP
            if not other.keeps(more):
                continue
            other = replace(other, near=more, near_kept=True)
        if _better(other.goodput, best.goodput):
            best = other
    return best


def _better(one: Goodput, other: Goodput) -> bool:
    if one.rate != other.rate:
        return one.rate > other.rate
    return one.missed_by < other.missed_by
