"""What a replica carries among its like behind a router, which may be more than alone (load/routers.py)."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from firsttoken.planning.choice import Limits
from firsttoken.planning.forecast import Forecast, Question
from firsttoken.planning.load.layouts import RoleGoodput
from firsttoken.planning.load.search import GRID_STEP
from firsttoken.planning.replicas import counts_without_rate, margin
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.types import Reason
from firsttoken.planning.words import number

MOST_ROUNDS = 4  # numbers of replicas follow what one carries, and that follows them; they settle in two
WORTH_SAYING = 1.05  # less is two steps of the grid of rates


def among_others(forecasting: Forecasting, sized: tuple[Sized, ...]) -> tuple[Sized, ...]:
    """Each role as it carries its rate on the fewest replicas. Shapes and budgets were compared alone, and stand.

    Prefill and decode without a rate are counted as they share out the GPUs.
    """
    question = forecasting.question
    if len(sized) > 1 and question.rate is None:
        return _sharing_out(forecasting, sized)
    limits = forecasting.limits() if len(sized) == 1 else replace(forecasting.limits(), gpus=None)
    return tuple(replace(s, among=_among(question, s.forecast, limits)) if s.forecast else s for s in sized)


def _sharing_out(forecasting: Forecasting, sized: tuple[Sized, ...]) -> tuple[Sized, ...]:
    """Roles without a rate, behind the routers of as many as there will be, which follows what each carries."""
    alone = [s.forecast for s in sized if s.forecast is not None]
    found, counts = alone, (0,) * len(alone)
    for _ in range(MOST_ROUNDS):
        then = counts_without_rate([RoleGoodput(f.capacity, f.gpus) for f in found], forecasting.spec)
        if then == counts:
            break
        counts = then
        among = zip(alone, counts, strict=True)
        found = [f.behind(forecasting.question.router(f.role, max(1, n))) for f, n in among]
    return tuple(replace(s, among=f) for s, f in zip(sized, found, strict=True))


def _among(question: Question, found: Forecast, limits: Limits) -> Forecast:
    count = limits.count(found)
    if limits.rate is not None and not limits.fixed and found.keeps_promises:
        # One step of the grid more, on which capacities lie.
        rate = limits.rate * (1 + margin(found.interval)) * GRID_STEP * 1.001

        def enough(replicas: int) -> bool:
            return found.behind(question.router(found.role, replicas)).keeps(rate / replicas)

        count = max(limits.least, 1 + bisect_left(range(1, count), True, key=enough))
    return found.behind(question.router(found.role, count))


def among_reasons(sized: Sequence[Sized]) -> tuple[Reason, ...]:
    """Where a replica carries more among others, or less, than alone: by how much."""
    said = []
    for one in sized:
        alone, among = one.forecast, one.among
        if alone is None or among is None or not alone.goodput.rate or not among.goodput.rate:
            continue
        part = among.goodput.rate / alone.goodput.rate
        if not 1 / WORTH_SAYING < part < WORTH_SAYING:
            how = "spreads requests more evenly than chance" if part > 1 else "sends some after each other"
            text = (
                f"one of {among.load.router.replicas} {among.role} replicas carries {number(among.capacity)} "
                f"requests/s within the SLOs, alone {number(alone.capacity)}: what chooses among them {how}"
            )
            said.append(Reason("SpreadByRouter", text))
    return tuple(said)
