"""Where live tuning begins: the token budget and the decode cap that keep the promises at the expected rate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import ASSUMED_LOAD, TPOT_P95, TTFT_P95, Forecast, Question, describe, milliseconds
from firsttoken.planning.load.curves import GRID, EngineLimits
from firsttoken.planning.load.goodput import TPOT, TTFT, Target, value
from firsttoken.planning.memory import BLOCK_TOKENS
from firsttoken.planning.replicas import replicas_for
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.types import Reason

# Token budgets that are compared (M4.2 names 128 and up; below 256 a GPU does little but launch kernels).
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
SAME_TTFT = 1.03  # a larger budget is not given up for less than this


@dataclass(frozen=True)
class Trial:
    """A token budget, and what is predicted with it at the expected rate: the promised percentiles, seconds."""

    forecast: Forecast
    ttft: float
    tpot: float | None  # None for a prefill engine

    @property
    def budget(self) -> int:
        """Tokens of a step at most."""
        return self.forecast.load.engine.token_budget

    def __str__(self) -> str:
        second = "" if self.tpot is None else f" and TPOT {milliseconds(self.tpot)}"
        return f"TTFT {milliseconds(self.ttft)}{second}"


def start_of(
    spec: InferenceServiceSpec, forecasting: Forecasting, roles: tuple[Role, ...], sized: tuple[Sized, ...]
) -> tuple[Sized, ...]:
    """Each role with its start, forecast again where that changed it. What the spec says itself stands."""
    return tuple(_role_start(spec, forecasting, role, one) for role, one in zip(roles, sized, strict=True))


def _role_start(spec: InferenceServiceSpec, forecasting: Forecasting, role: Role, sized: Sized) -> Sized:
    if sized.forecast is None:
        return sized
    pins, initial = spec.engine.pins or EnginePins(), spec.engine.initial
    given = pins.token_budget or (initial and initial.token_budget) or pins.chunked_prefill is False
    if not given:
        sized = _with_budget(spec, forecasting, role, sized, sized.forecast)
    assert sized.forecast is not None  # noqa: S101 - it only changed
    cap, why = _decode_limit(sized.forecast, forecasting.question)
    if why is None or (initial and initial.decode_cap):
        return sized
    budgets = replace(sized.budgets, reasons=(*sized.budgets.reasons, why))
    return replace(sized, budgets=budgets, decode_cap=cap)


def _with_budget(
    spec: InferenceServiceSpec, forecasting: Forecasting, role: Role, sized: Sized, found: Forecast
) -> Sized:
    def ask(limits: EngineLimits) -> Forecast:
        return forecasting.ask(role, sized.budgets, sized.candidate, limits=limits, handover=found.load.handover)

    bounds = spec.tuning.token_budget if spec.tuning.mode != "Off" else None
    least = bounds.min if bounds else BLOCK_TOKENS
    rate = _rate(forecasting, found)
    if found.role == "decode" or rate <= 0:
        return sized
    allowed = sorted({*(b for b in BUDGETS if least <= b <= sized.budgets.ceiling), found.load.engine.token_budget})
    trials = [_try(found, ask, budget, forecasting.question, rate) for budget in allowed]
    taken = earliest(trials, forecasting.question.target(TPOT))
    chosen, why = taken.forecast, _budget_reason(taken, trials)
    kept = tuple(reason for reason in sized.budgets.reasons if reason.code != why.code)
    said = Reason(why.code, f"{why.message}; {sized.budgets.ceiling} at most")
    budgets = replace(sized.budgets, start=chosen.load.engine.token_budget, reasons=(*kept, said))
    return replace(sized, budgets=budgets, forecast=chosen)


def _rate(forecasting: Forecasting, found: Forecast) -> float:
    """Of one replica when as many run as the rate needs, and the GPUs allow; without a rate the assumed load."""
    limits = forecasting.limits
    if limits.rate is None or found.goodput.rate <= 0:
        return found.goodput.rate * ASSUMED_LOAD
    count = limits.fixed or replicas_for(limits.rate, found.goodput.rate, found.interval)
    if limits.gpus is not None:
        count = min(count, max(1, limits.gpus // found.gpus))
    return min(limits.rate / max(1, count), found.goodput.rate)


def _try(
    found: Forecast, ask: Callable[[EngineLimits], Forecast], budget: int, question: Question, rate: float
) -> Trial:
    engine = found.load.engine
    limits = EngineLimits(budget, min(engine.max_running, budget), engine.kv_tokens)
    forecast = found if limits == engine else ask(limits)
    replica = forecast.load.at(rate)
    ttft, tpot = question.target(TTFT) or TTFT_P95, question.target(TPOT) or TPOT_P95
    return Trial(forecast, value(replica, ttft), value(replica, tpot) if found.role == "serve" else None)


def earliest(trials: Sequence[Trial], tpot: Target | None) -> Trial:
    """The earliest first token that leaves TPOT within its promise; the largest budget of those that are alike."""
    kept = [t for t in trials if tpot is None or t.tpot is None or t.tpot <= tpot.seconds]
    kept = kept or [min(trials, key=lambda t: t.tpot or 0.0)]
    best = min(t.ttft for t in kept)
    return max((t for t in kept if t.ttft <= best * SAME_TTFT), key=lambda t: t.budget)


def _budget_reason(taken: Trial, trials: Sequence[Trial]) -> Reason:
    lower = [t for t in trials if t.budget < taken.budget][-1:]
    upper = [t for t in trials if t.budget > taken.budget][:1]
    others = "".join(f"; {t.budget} would give {t}" for t in (*lower, *upper))
    text = f"{taken.budget} tokens a step to begin with: {taken} predicted{others}; the best value is found by trying"
    return Reason("TokenBudget", text)


def _decode_limit(chosen: Forecast, question: Question) -> tuple[int, Reason | None]:
    """Running requests admitted at first: no more than keep a decode step within the TPOT promise.

    A profile's default caps nothing, and neither does a promise that a single request breaks already: serving one at a
    time would cost throughput and keep it no better.
    """
    most, tpot = chosen.load.engine.max_running, question.target(TPOT)
    if tpot is None or not question.promised or chosen.role == "prefill":
        return most, None
    fitting = [n for n in (*GRID, most) if 1 <= n <= most and chosen.load.curves.decode(n) <= tpot.seconds]
    cap = max(fitting, default=most)
    if cap >= most:
        return most, None
    step = milliseconds(chosen.load.curves.decode(cap))
    text = (
        f"{cap} running requests at first: a step of that many decodes takes {step}, and {describe(tpot)} is promised"
    )
    return cap, Reason("DecodeCap", text)
