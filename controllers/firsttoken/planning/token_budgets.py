"""Token budgets: which ones a role may start with, and with which of them a replica carries most (M4.2)."""

from collections.abc import Sequence

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import Forecast
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import TPOT
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


def with_budget(found: Forecast, budget: int, most_running: int) -> Forecast:
    """The same replica with another token budget. Each running request takes at least one token of a step."""
    kv = found.load.engine.kv_tokens
    return found.with_limits(EngineLimits(budget, min(most_running, budget), kv))


def best_budget(found: Forecast, allowed: Sequence[int], most_running: int) -> Forecast:
    """The replica with the token budget that carries most, starting from the one it has.

    Smaller steps leave a decode less to wait for, larger ones spend fewer steps on a prompt: what a higher rate would
    break says where to look, and the first budget that carries less ends the search.
    """
    at = allowed.index(found.load.engine.token_budget)
    binding = found.goodput.binding
    down = binding is not None and binding.metric == TPOT
    best = found
    for budget in reversed(allowed[:at]) if down else allowed[at + 1 :]:
        other = with_budget(found, budget, most_running)
        if (other.goodput.rate, -other.goodput.missed_by) <= (best.goodput.rate, -best.goodput.missed_by):
            break
        best = other
    return best
