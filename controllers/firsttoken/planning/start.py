"""Where live tuning begins: the token budget and the decode cap that keep the promises at the expected rate."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import ASSUMED_LOAD, TPOT_P95, TTFT_P95, Forecast, Question, describe
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import TPOT, TTFT, excess, value
from firsttoken.planning.load.search import GRID_STEP
from firsttoken.planning.replicas import margin
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.token_budgets import SAME_RATE, allowed_budgets, given_budget, with_budget
from firsttoken.planning.types import Reason
from firsttoken.planning.words import milliseconds, number

SAME_TTFT = 1.03  # a larger budget is not given up for less than this


@dataclass(frozen=True)
class Trial:
    """A token budget, and what is predicted with it at the expected rate, computed when it is asked for."""

    forecast: Forecast
    question: Question
    rate: float  # requests a second of one replica
    carries: bool  # whether the promises, all of them, are kept at the rate that has to be carried

    @property
    def budget(self) -> int:
        """Tokens of a step at most."""
        return self.forecast.load.engine.token_budget

    @cached_property
    def ttft(self) -> float:
        """The promised percentile, seconds."""
        return value(self.forecast.load.at(self.rate), self.question.target(TTFT) or TTFT_P95)

    @cached_property
    def tpot(self) -> float | None:
        """The promised percentile, seconds; None for a prefill engine."""
        if self.forecast.role != "serve":
            return None
        return value(self.forecast.load.at(self.rate), self.question.target(TPOT) or TPOT_P95)

    @cached_property
    def excess(self) -> float:
        """The worst of the promises: predicted over promised."""
        return excess(self.forecast.load, self.forecast.promises, self.rate)

    def __str__(self) -> str:
        ttft, tpot = self.question.target(TTFT) or TTFT_P95, self.question.target(TPOT) or TPOT_P95
        second = "" if self.tpot is None else f" and TPOT P{tpot.percentile} {milliseconds(self.tpot)}"
        return f"TTFT P{ttft.percentile} {milliseconds(self.ttft)}{second}" + (
            "" if self.carries else " (breaks a promise under load)"
        )


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
        found, running = sized.forecast, forecasting.running(role, sized.candidate)
        tried = [with_budget(found, b, running, found.goodput.rate) for b in allowed]
        sized = _with_budget(forecasting, sized, sized.forecast, tried)
    return _with_cap(spec, forecasting, sized)


def _with_budget(forecasting: Forecasting, sized: Sized, found: Forecast, tried: Sequence[Forecast]) -> Sized:
    """`found` has the budget that carries most. Of those that carry what is asked for as well, on as many replicas, the
    one with the earliest first token.
    """
    normal, carried = _rates(forecasting, found)
    if normal <= 0:
        return sized
    question = forecasting.question
    trials = []
    for other in tried:
        carries = found.keeps_promises and (other is found or other.keeps(carried))
        trials.append(Trial(other, question, normal, carries))
    if not found.keeps_promises:  # nothing keeps them, so that what is served does not get less is all there is to ask
        trials = [t for t in trials if t.forecast is found or t.forecast.most >= carried]
    taken = earliest(trials)
    why = _budget_reason(taken, trials)
    kept = tuple(reason for reason in sized.budgets.reasons if reason.code != why.code)
    said = Reason(why.code, f"{why.message}; {sized.budgets.ceiling} at most")
    budgets = replace(sized.budgets, start=taken.budget, reasons=(*kept, said))
    return replace(sized, budgets=budgets, forecast=taken.forecast)


def _rates(forecasting: Forecasting, found: Forecast) -> tuple[float, float]:
    """Requests a second of one replica: as expected, and as it has to be able to carry.

    With a rate its share of that, and the margin on top (one step of the grid more, on which capacities lie); else the
    assumed part of what it carries, and about all.
    """
    limits, most = forecasting.limits(), found.capacity * SAME_RATE
    if limits.rate is None:
        return found.capacity * ASSUMED_LOAD, most
    each = limits.rate / limits.count(found)
    return min(each, found.capacity), min(each * (1 + margin(found.interval)) * GRID_STEP * 1.001, found.capacity)


def earliest(trials: Sequence[Trial]) -> Trial:
    """The earliest first token of those that carry the rate; the largest budget of those that are alike.

    Where none does, the one whose worst promise is missed by least.
    """
    kept = [t for t in trials if t.carries]
    if not kept:
        least = min(t.excess for t in trials)
        kept = [t for t in trials if t.excess <= least * SAME_TTFT]
    best = min(t.ttft for t in kept)
    return max((t for t in kept if t.ttft <= best * SAME_TTFT), key=lambda t: t.budget)


def _budget_reason(taken: Trial, trials: Sequence[Trial]) -> Reason:
    lower = [t for t in trials if t.budget < taken.budget][-1:]
    upper = [t for t in trials if t.budget > taken.budget][:1]
    others = "".join(f"; {t.budget} would give {t}" for t in (*lower, *upper))
    basis = f"of one replica alone at {number(taken.rate)} requests/s"
    text = (
        f"{taken.budget} tokens a step to begin with: {taken} predicted {basis}{others}; the best value is found by "
        "trying"
    )
    return Reason("TokenBudget", text)


def _with_cap(spec: InferenceServiceSpec, forecasting: Forecasting, sized: Sized) -> Sized:
    """With the decode cap that the spec says, or that the TPOT promise asks for; what is carried follows it."""
    found, initial = sized.forecast, spec.engine.initial
    assert found is not None  # noqa: S101 - as the caller saw
    engine, given = found.load.engine, initial.decode_cap if initial else None
    if found.role == "prefill":
        return sized
    sized = _without_prompts(sized, found)
    if given:  # counted from the first forecast on
        return sized
    cap, why = _decode_limit(found, forecasting.question)
    if why is None:
        return sized
    capped = found.with_limits(EngineLimits(engine.token_budget, cap, engine.kv_tokens))
    budgets = replace(sized.budgets, reasons=(*sized.budgets.reasons, why))
    return replace(sized, budgets=budgets, decode_cap=cap, forecast=capped)


def _without_prompts(sized: Sized, found: Forecast) -> Sized:
    """A decode engine computes no prompts, so its budget is only a bound."""
    if found.role != "decode":
        return sized
    budgets, text = sized.budgets, f"{sized.budgets.start} tokens a step, of which a decode engine needs one a request"
    kept = tuple(r for r in budgets.reasons if r.code != "TokenBudget")
    return replace(sized, budgets=replace(budgets, reasons=(*kept, Reason("TokenBudget", text))))


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
