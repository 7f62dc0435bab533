"""Prefill and decode apart, on the same GPUs or on those that the spec names for them: proposed where it is predicted
to pay (M4.5, M7).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.forecast import ASSUMED_LOAD, TPOT_P95, TTFT_P95, Forecast, Question, handover_to
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import TPOT, Target, value
from firsttoken.planning.load.layouts import Comparison, RoleGoodput, Split, best_split, compare
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.roles import Role, own_devices
from firsttoken.planning.routing import choose_routing
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.timing.links import ASSUMED_LINK
from firsttoken.planning.token_budgets import allowed_budgets, best_budget
from firsttoken.planning.types import Reason
from firsttoken.planning.words import count, milliseconds, number

# Long prompts with short outputs (M7): every prompt holds up everybody's streams. A split is worth a look even where
# it carries no more, if tokens come so many times faster, and colocated replicas that had to do so carry clearly less.
STEADIER = 2.0
# What that may cost of the requests carried as promised today. Both layouts are timed by one model on one device, so
# its interval says little of the difference, and a wide one must not excuse a loss.
MOST_LOSS = 0.10
# The best split follows what a replica carries, which follows how many there are of it.
MOST_ROUNDS = 3


# Prefill and decode as the spec would have them; raises InfeasibleError.
Apart = Callable[[], tuple[Sized, ...]]


@dataclass(frozen=True)
class Layouts:
    """The forecasts of the two layouts: each role among as many of its like as it has on the GPUs that both have."""

    question: Question  # with the routing of a split
    serve: Forecast
    prefill: Forecast
    decode: Forecast
    limit: int | None  # spec.accelerator.maxCount
    split: Split

    @property
    def interval(self) -> float:
        """What step times of the least known device may be off, relative."""
        return max(f.interval for f in (self.serve, self.prefill, self.decode))

    @property
    def together(self) -> int:
        """Colocated replicas on the same GPUs."""
        return _together(self.serve, self.split, self.limit)

    def words(self, split: Split) -> str:
        """What a split consists of."""
        sides = ((split.prefill, self.prefill), (split.decode, self.decode))
        if len({(f.device, f.gpus) for f in (self.serve, self.prefill, self.decode)}) == 1:
            return f"{split.prefill} prefill and {count(split.decode, 'decode replica')} of the same shape"
        return " and ".join(f"{count(n, f'{f.role} replica')} of {f.gpus} × {f.device.name}" for n, f in sides)

    @property
    def compared(self) -> Comparison:
        """What both carry within the promises."""
        return compare(self.serve.goodput, self.serve.gpus, self.split, self.limit, self.interval)

    def promising(self, target: Target, budgets: tuple[int, ...], most_running: int) -> "Layouts | None":
        """The same with another TPOT promise, colocated with the token budget that carries most then. None where a
        split can't keep it.
        """
        kept = tuple(p for p in self.serve.promises if p.metric != TPOT)
        serve, decode = (
            replace(f, promises=(*kept, target), near=0.0, near_kept=False) for f in (self.serve, self.decode)
        )
        found = _settled(self.question, self.prefill, decode, self.limit)
        if found is None:
            return None
        return Layouts(self.question, best_budget(serve, budgets, most_running), *found[:2], self.limit, found[2])

    def carrying(self, rate: float, replicas: int) -> tuple[int, Split]:
        """Colocated replicas and a split to show at `rate`: the plan's `replicas`, and what carries it on their GPUs;
        all where those don't.
        """
        if replicas * self.serve.goodput.rate < rate:
            return self.together, self.split
        return replicas, self._best(replicas * self.serve.gpus, rate) or self.split

    def _best(self, gpus: int, rate: float) -> Split | None:
        found = best_split(_goodput(self.prefill), _goodput(self.decode), gpus)
        return found if found is not None and found.rate >= rate else None

    def answers(self, rate: float, replicas: int, split: Split) -> tuple[tuple[float, float], tuple[float, float]]:
        """TTFT and TPOT at P95, of so many colocated replicas and apart, when the service has `rate` requests a second.
        Seconds.
        """
        router = self.question.router
        together = self.serve.load.behind(replace(self.serve.load.router, replicas=replicas)).at(rate / replicas)
        tokens = self.decode.load.behind(router("decode", split.decode)).at(rate / split.decode)
        first = self.prefill.load.behind(router("prefill", split.prefill))
        prompts = first.handed_to(tokens).at(rate / split.prefill)
        return (
            (value(together, TTFT_P95), value(together, TPOT_P95)),
            (value(prompts, TTFT_P95), value(tokens, TPOT_P95)),
        )


def layouts_of(
    question: Question, sized: Sized, prefill: Forecast, decode: Forecast, limit: int | None
) -> Layouts | None:
    """Both layouts on the same GPUs; None where a split doesn't fit or can't keep the promises."""
    serve = sized.forecast
    assert serve is not None  # noqa: S101 - as the caller saw
    split_question = replace(question, routing=choose_routing(question.shape))
    found = _settled(split_question, prefill, decode, limit)
    if found is None:
        return None
    router = question.router("serve", _together(serve, found[2], limit))
    if sized.among is not None and sized.among.load.router == router:
        serve = sized.among
    return Layouts(split_question, serve.behind(router), *found[:2], limit, found[2])


def _settled(
    question: Question, prefill: Forecast, decode: Forecast, limit: int | None
) -> tuple[Forecast, Forecast, Split] | None:
    """The roles behind the routers of as many as the best split has, which follows what they carry there."""
    split = None
    for _ in range(MOST_ROUNDS):
        then = best_split(_goodput(prefill), _goodput(decode), limit)
        if then is None:
            return None
        if split is not None and (then.prefill, then.decode) == (split.prefill, split.decode):
            return prefill, decode, then
        split = then
        prefill = prefill.behind(question.router("prefill", split.prefill))
        decode = decode.behind(question.router("decode", split.decode))
    assert split is not None  # noqa: S101 - there are rounds
    rate = min(split.prefill * prefill.goodput.rate, split.decode * decode.goodput.rate)
    return (prefill, decode, replace(split, rate=rate)) if rate else None


def _goodput(found: Forecast) -> RoleGoodput:
    return RoleGoodput(found.goodput.rate, found.gpus)


def _together(serve: Forecast, split: Split, limit: int | None) -> int:
    return max(1, limit // serve.gpus if limit is not None else round(split.gpus / serve.gpus))


@dataclass(frozen=True)
class Sides:
    """How both layouts answer at the same rate: TTFT and TPOT at P95, seconds."""

    rate: float  # requests a second of the service
    named: bool  # by the spec; else the assumed part of what the weaker layout carries
    gpus: int  # that either layout has
    together: tuple[float, float]
    apart: tuple[float, float]
    fewer: str = ""  # what answers at that rate in both layouts, in words, where that isn't all the GPUs

    @property
    def steadier(self) -> float:
        """How many times faster tokens come, prefill and decode apart."""
        return self.together[1] / self.apart[1]


@dataclass(frozen=True)
class Tighter:
    """The comparison under a promise of tokens STEADIER times as fast as they come colocated."""

    seconds: float  # TPOT P95
    colocated: float  # requests a second
    disaggregated: float

    def clear(self, interval: float) -> bool:
        """Whether a split carries more by more than the model may be off."""
        return self.disaggregated > self.colocated * (1 + interval)


def split_proposal(forecasting: Forecasting, role: Role, sized: Sized, replicas: int, apart: Apart) -> list[Reason]:
    """The proposal to split, or why there is none. Nothing where it can't be or the spec has decided.

    On the same device prefill and decode have the same shape as today; where the spec names others
    (accelerator.prefill, accelerator.decode), `apart` sizes them. `replicas`: of the plan.
    """
    spec, limit, serve = forecasting.spec, forecasting.spec.accelerator.max_count, sized.forecast
    if spec.layout.mode != LayoutMode.AUTO or serve is None:
        return []
    if own_devices(spec):
        try:
            prefill, decode = (s.forecast for s in apart())
        except InfeasibleError as refused:
            return [
                Reason("NoDisaggregation", f"prefill and decode on the devices named: {refused.infeasible.message}")
            ]
        if prefill is None or decode is None:
            return []
    elif max(sized.candidate.pipeline_parallel, sized.candidate.nodes) > 1 or (
        limit is not None and limit < 2 * serve.gpus
    ):
        return []
    else:
        prefill, decode = _roles(forecasting, role, sized, serve)
    layouts = layouts_of(forecasting.question, sized, prefill, decode, limit)
    return [] if layouts is None else _judged(forecasting, role, sized, layouts, max(1, replicas))


def _judged(forecasting: Forecasting, role: Role, sized: Sized, layouts: Layouts, replicas: int) -> list[Reason]:
    found = layouts.compared
    if found.gain is None:
        return []
    sides = _at_one_rate(forecasting.question.rate, found, layouts, replicas)
    tighter = None
    if not found.clear and sides.steadier >= STEADIER:
        budgets = allowed_budgets(forecasting.spec, role.name, sized.budgets)
        tighter = _tighter(layouts, sides, budgets, forecasting.running(role, sized.candidate))
    return [split_reason(found, layouts.words(layouts.split), layouts.interval, sides, tighter)]


def _roles(forecasting: Forecasting, role: Role, sized: Sized, serve: Forecast) -> tuple[Forecast, Forecast]:
    """Prefill and decode on the device and in the shape of today, each alone."""
    limits = serve.load.engine
    # Without prompts in its steps a decode engine needs no budget, and a prefill engine keeps vLLM's whole one.
    decode = forecasting.ask(replace(role, name="decode"), sized.budgets, sized.candidate, limits=limits)
    wide = EngineLimits(sized.budgets.ceiling, limits.max_running, limits.kv_tokens)
    prefill = forecasting.ask(
        replace(role, name="prefill"),
        sized.budgets,
        sized.candidate,
        limits=wide,
        handover=handover_to(decode),
        near=serve.goodput.rate,
    )
    return prefill, decode


def _at_one_rate(named: float | None, found: Comparison, layouts: Layouts, replicas: int) -> Sides:
    """Both layouts at the spec's rate where both carry it, else at the assumed part of what the weaker one does."""
    most = min(found.colocated, found.disaggregated)
    gpus = layouts.limit or layouts.split.gpus
    if named is None or named > most:
        rate = most * ASSUMED_LOAD
        return Sides(rate, False, gpus, *layouts.answers(rate, layouts.together, layouts.split))
    together, split = layouts.carrying(named, replicas)
    fewer = ""
    if (together, split) != (layouts.together, layouts.split):
        fewer = f" ({split.prefill} prefill and {split.decode} decode instead of {count(together, 'serve replica')})"
    return Sides(named, True, gpus, *layouts.answers(named, together, split), fewer)


def _tighter(layouts: Layouts, sides: Sides, budgets: tuple[int, ...], most_running: int) -> Tighter | None:
    """Both layouts if tokens had to come STEADIER times as fast as they do colocated."""
    target = Target(TPOT, 95, sides.together[1] / STEADIER)
    found = layouts.promising(target, budgets, most_running)
    return None if found is None else Tighter(target.seconds, found.compared.colocated, found.compared.disaggregated)


def split_reason(
    found: Comparison, replicas: str, interval: float, sides: Sides, tighter: Tighter | None = None
) -> Reason:
    """The proposal, or why there is none, with the numbers that decided. `replicas`: of the split, in words;
    `interval`: what the model may be off.
    """
    gain = found.gain or 0.0
    source = "" if sides.named else f" ({ASSUMED_LOAD * 100:.0f} % of what the weaker of both carries)"
    text = (
        f"{replicas} would carry {number(found.disaggregated)} requests/s within the SLOs on "
        f"{count(sides.gpus, 'GPU')}, colocated {number(found.colocated)} ({gain * 100:+.0f} %); at "
        f"{number(sides.rate)} requests/s in either layout{source}{sides.fewer} TTFT P95 would be "
        f"{milliseconds(sides.apart[0])} instead of {milliseconds(sides.together[0])}, TPOT P95 "
        f"{milliseconds(sides.apart[1])} instead of {milliseconds(sides.together[1])} ({ASSUMED_LINK})"
    )
    if found.clear:
        why = f"the gain is more than the model may be off ({interval * 100:.0f} %)"
    elif tighter is not None and gain >= -MOST_LOSS and tighter.clear(interval):
        why = f"worth it where tokens have to come {STEADIER:.0f} times as fast: {_then(tighter)}"
    else:
        return Reason("NoDisaggregation", f"{text}: {_too_little(gain, interval, sides, tighter)}")
    ask = "confirm the imbalance by measurements, then set spec.layout.mode: Disaggregated"
    return Reason("DisaggregationProposal", f"{text}: {why}; {ask}")


def _then(tighter: Tighter) -> str:
    more = f" ({(tighter.disaggregated / tighter.colocated - 1) * 100:+.0f} %)" if tighter.colocated else ""
    return (
        f"with TPOT P95 within {milliseconds(tighter.seconds)} a split would carry {number(tighter.disaggregated)} "
        f"requests/s, colocated {number(tighter.colocated)}{more}"
    )


def _too_little(gain: float, interval: float, sides: Sides, tighter: Tighter | None) -> str:
    """Which of the conditions of the second way isn't met, after the first: a gain beyond the interval."""
    first = f"too little, the model may be off by {interval * 100:.0f} %"
    fast = f"tokens come {sides.steadier:.2g} times as fast"
    if sides.steadier < STEADIER:
        return f"{first}, and {fast} only ({STEADIER:.0f} times would be worth a look)"
    if gain < -MOST_LOSS:
        return f"{first}; {fast}, but {-gain * 100:.0f} % fewer requests are carried ({MOST_LOSS * 100:.0f} % at most)"
    return f"{first}; {fast}, but colocated replicas can do as much: {_then(tighter)}" if tighter else first
