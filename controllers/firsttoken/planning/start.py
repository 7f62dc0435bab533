"""Where live tuning begins: the token budget and the decode cap that keep the promises at the expected rate."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import ASSUMED_LOAD, TPOT_P95, TTFT_P95, Forecast, Question, describe, milliseconds
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import TPOT, TTFT, value
from firsttoken.planning.replicas import margin
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.token_budgets import SAME_RATE, allowed_budgets, given_budget, with_budget
from firsttoken.planning.types import Reason

SAME_TTFT = 1.03  # a larger budget is not given up for less than this


@dataclass(frozen=True)
class Trial:
    """A token budget, and what is predicted with it at the expected rate: the promised percentiles, seconds."""

    forecast: Forecast
    ttft: float
    tpot: float | None  # None for a prefill engine
    carries: bool  # whether the promises, all of them, are kept at the rate that has to be carried

    @property
    def budget(self) -> int:
        """Tokens of a step at most."""
        return self.forecast.load.engine.token_budget

    def __str__(self) -> str:
        second = "" if self.tpot is None else f" and TPOT {milliseconds(self.tpot)}"
        return f"TTFT {milliseconds(self.ttft)}{second}" + ("" if self.carries else ", and break a promise under load")


def start_of(
    spec: InferenceServiceSpec, forecasting: Forecasting, roles: tuple[Role, ...], sized: tuple[Sized, ...]
) -> tuple[Sized, ...]:
    """Each role with its start, forecast again where that changed it. What the spec says itself stands."""
    return tuple(_role_start(spec, forecasting, role, one) for role, one in zip(roles, sized, strict=True))


def _role_start(spec: InferenceServiceSpec, forecasting: Forecasting, role: Role, sized: Sized) -> Sized:
    if sized.forecast is None:
        return sized
    allowed = allowed_budgets(spec, role.name, sized.budgets)
    if not given_budget(spec) and role.name != "decode":
        most = forecasting.running(role, sized.budgets, sized.candidate)
        sized = _with_budget(forecasting, sized, sized.forecast, [(b, most) for b in allowed])
    return _with_cap(spec, forecasting, sized)


def _with_budget(forecasting: Forecasting, sized: Sized, found: Forecast, allowed: Sequence[tuple[int, int]]) -> Sized:
    """`found` has the budget that carries most. Of those that carry what is asked for as well, the one with the
    earliest first token, so that neither the replicas nor the promises depend on the choice.
    """
    normal, carried = _rates(forecasting, found)
    if normal <= 0:
        return sized
    question = forecasting.question
    trials = [_try(with_budget(found, budget, most), question, normal, carried) for budget, most in allowed]
    taken = earliest(trials)
    why = _budget_reason(taken, trials)
    kept = tuple(reason for reason in sized.budgets.reasons if reason.code != why.code)
    said = Reason(why.code, f"{why.message}; {sized.budgets.ceiling} at most")
    budgets = replace(sized.budgets, start=taken.budget, reasons=(*kept, said))
    return replace(sized, budgets=budgets, forecast=taken.forecast)


def _rates(forecasting: Forecasting, found: Forecast) -> tuple[float, float]:
    """Requests a second of one replica: as expected, and as it has to be able to carry.

    With a rate its share of that, and the margin on top; else the assumed part of what it carries, and about all.
    """
    limits, most = forecasting.limits(), found.capacity * SAME_RATE
    if limits.rate is None:
        return found.capacity * ASSUMED_LOAD, most
    each = limits.rate / limits.count(found)
    return min(each, found.capacity), min(each * (1 + margin(found.interval)), most)


def _try(forecast: Forecast, question: Question, normal: float, carried: float) -> Trial:
    replica = forecast.load.at(normal)
    ttft, tpot = question.target(TTFT) or TTFT_P95, question.target(TPOT) or TPOT_P95
    tokens = value(replica, tpot) if forecast.role == "serve" else None
    return Trial(forecast, value(replica, ttft), tokens, forecast.keeps(carried))


def earliest(trials: Sequence[Trial]) -> Trial:
    """The earliest first token of those that carry the rate; the largest budget of those that are alike.

    Where none does, the fastest of tokens: the longest steps are what broke the promise, or nothing keeps it.
    """
    kept = [t for t in trials if t.carries] or [min(trials, key=lambda t: t.tpot or 0.0)]
    best = min(t.ttft for t in kept)
    return max((t for t in kept if t.ttft <= best * SAME_TTFT), key=lambda t: t.budget)


def _budget_reason(taken: Trial, trials: Sequence[Trial]) -> Reason:
    lower = [t for t in trials if t.budget < taken.budget][-1:]
    upper = [t for t in trials if t.budget > taken.budget][:1]
    others = "".join(f"; {t.budget} would give {t}" for t in (*lower, *upper))
    text = f"{taken.budget} tokens a step to begin with: {taken} predicted{others}; the best value is found by trying"
    return Reason("TokenBudget", text)


def _with_cap(spec: InferenceServiceSpec, forecasting: Forecasting, sized: Sized) -> Sized:
    """With the decode cap that the spec says, or that the TPOT promise asks for; what is carried follows it."""
    found, initial = sized.forecast, spec.engine.initial
    assert found is not None  # noqa: S101 - as the caller saw
    engine, given = found.load.engine, initial.decode_cap if initial else None
    if found.role == "prefill":
        return sized
    cap, why = (min(given, engine.max_running), None) if given else _decode_limit(found, forecasting.question)
    capped = found.with_limits(EngineLimits(engine.token_budget, cap, engine.kv_tokens))
    if why is None:
        return replace(sized, forecast=capped)
    budgets = replace(sized.budgets, reasons=(*sized.budgets.reasons, why))
    return replace(sized, budgets=budgets, decode_cap=cap, forecast=capped)


def _decode_limit(chosen: Forecast, question: Question) -> tuple[int, Reason | None]:
    """Running requests admitted at first: no more than keep a decode step within the TPOT promise.

    A profile's default caps nothing, and neither does a promise that a single request breaks already: serving one at a
    time would cost throughput and keep it no better.
    """
    most, tpot = chosen.load.engine.max_running, question.target(TPOT)
    if tpot is None or not question.promised:
        return most, None
    decode = chosen.load.curves.decode
    cap = bisect_right(range(1, most + 1), tpot.seconds, key=decode)
    if not 0 < cap < most:
        return most, None
    text = (
        f"{cap} running requests at first: a step of that many decodes takes {milliseconds(decode(cap))}, and "
        f"{describe(tpot)} is promised"
    )
    return cap, Reason("DecodeCap", text)
