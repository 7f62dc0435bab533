"""Steady state of one engine with continuous batching and chunked prefill, decodes first in each step (vLLM V1).

Decodes and prefill slow each other, so the number of running decodes is a fixed point (Little's law):
n = rate x decode steps a request x TPOT(n). TPOT follows from counting steps: of N steps a second each takes at least d
(a step of decodes), and each prompt adds e seconds to the steps it is in, so N d + rate e = 1, TPOT = d / (1 - rate e).

With pipeline stages, a step stands for one round: a batch through each of them (curves.py).
"""

import math
from bisect import bisect_right
from typing import NamedTuple

from firsttoken.planning.load.curves import GRID, EngineLimits, StepCurves
from firsttoken.planning.load.probability import root

SERVE, PREFILL, DECODE = "serve", "prefill", "decode"

# What an engine runs out of first.
COMPUTE = "Compute"  # prompts arrive faster than steps filled with them can take
RUNNING_REQUESTS = "RunningRequests"  # more requests in flight than may run
KV_MEMORY = "KVMemory"  # more context in flight than the KV cache holds
API_SERVER = "APIServer"  # prompts arrive faster than its one process takes them in

PRECISION = 1e-7  # of the fixed point, relative
BATCH_ROUNDS = 3  # prompts a step and the step's time depend on each other; three rounds settle it
MOST_SPREAD = 3.0  # deviations: beyond, the engine is about to fill up and the queue is what matters


class Steady(NamedTuple):
    """Averages over time. Seconds and requests; a share is 1 where the resource is used up, above where it is short."""

    rate: float
    admitted: float  # requests a second that are served: `rate`, unless places or KV are used up
    role: str
    running: float  # decodes, at most what the limits allow
    tpot: float  # mean over tokens
    spread: float  # standard deviation of the running decodes over the square root of their mean
    excess: float  # what one prompt adds to the steps of the decodes
    residence: float  # how long a request holds its place and its KV
    prefill_share: float  # of prefill capacity in use (rho)
    running_share: float  # of max_running
    kv_share: float  # of the KV cache
    api_share: float  # of the API server's time

    @property
    def utilization(self) -> float:
        """Of the scarcest resource."""
        return max(self.prefill_share, self.running_share, self.kv_share, self.api_share)

    @property
    def binds(self) -> str:
        """The scarcest resource."""
        shares = {COMPUTE: self.prefill_share, RUNNING_REQUESTS: self.running_share, KV_MEMORY: self.kv_share}
        shares[API_SERVER] = self.api_share
        return max(shares, key=lambda name: shares[name])

    @property
    def saturated(self) -> bool:
        """Whether a queue grows without end."""
        return self.utilization >= 1


def solve(curves: StepCurves, limits: EngineLimits, rate: float, role: str = SERVE, held: float = 0.0) -> Steady:
    """The least fixed point, reached from an empty engine, for `rate` requests a second; cut at the engine's limits.

    `held`: seconds that a prefill engine keeps a prompt's KV after computing it, until it is transferred.
    """
    shape = curves.shape
    kv = {PREFILL: shape.held_by_prefill, DECODE: shape.held_by_decode}.get(role, shape.held)
    kv_tokens, context = max(1.0, limits.kv_tokens - kv.shared), kv.mean
    steps = 0.0 if role == PREFILL else shape.mean_decodes
    tokens = curves.stages * limits.token_budget
    most = max(1.0, min(limits.max_running, kv_tokens / context, tokens - 1.0))
    prompts = 0.0 if role == DECODE else rate
    running = _fixed_point(curves, rate, prompts, steps, most)
    admitted = _admitted(curves, rate, steps, running) if running >= most and prompts else rate
    tpot, excess = token_time(curves, min(prompts, admitted), running)
    prefill = prompts * shape.mean_uncached / curves.room(running) * curves.full(running)
    residence = steps * tpot + held
    wanted = rate * residence + prefill
    return Steady(
        rate=rate,
        admitted=admitted,
        role=role,
        running=running,
        tpot=tpot,
        spread=_spread(curves, admitted, min(prompts, admitted), steps, running),
        excess=excess,
        residence=residence,
        prefill_share=prefill,
        running_share=wanted / min(limits.max_running, tokens),
        kv_share=wanted * context / kv_tokens,
        api_share=rate * curves.mean_api,
    )


def token_time(curves: StepCurves, prompts: float, running: float) -> tuple[float, float]:
    """Mean TPOT beside `running` other decodes and `prompts` a second, and the seconds that one prompt adds to steps.

    A lone prompt adds its own step less that of the decodes. The fuller a step, the more its tokens cost, up to a step
    that is full: while weights are read, the first tokens are free. In between by the mean number of prompts that share
    a step, x / (1 - exp(-x)) with x arrivals a step. No step is longer than a full one.
    """
    found = curves.token_times.get((prompts, running))
    if found is None:
        found = curves.token_times[prompts, running] = _token_time(curves, prompts, running)
    return found


def _token_time(curves: StepCurves, prompts: float, running: float) -> tuple[float, float]:
    seen = running + 1  # a request that decodes sees itself beside the average of the others (M/G/infinity)
    if not prompts:
        return curves.decode(seen), 0.0
    decode, full, one = curves.steps(seen)
    uncached, room = curves.shape.mean_uncached, curves.room(seen)
    single, crowded = min(curves.typical, curves.chunk(seen)), (full - decode) * uncached / room
    alone = max(0.0, one - decode) * uncached / single
    if curves.stages > 1:
        alone = crowded = _staged(curves, prompts, seen, alone, crowded)
    crowded = max(alone, crowded)
    most = room / single  # prompts that fit into a step
    excess, tpot = alone, decode
    for _ in range(BATCH_ROUNDS):
        tpot = decode / (1 - prompts * excess) if prompts * excess < 1 - decode / full else max(full, decode)
        arrivals = prompts * tpot
        together = arrivals / -math.expm1(-arrivals)
        share = min(1.0, (together - 1) / (most - 1)) if most > 1 else 1.0
        excess = alone + (crowded - alone) * share
    rho = min(1.0, prompts * uncached * full / room)
    later = rho * full + (1 - rho) * decode - tpot
    return (tpot + later * first_steps(curves, rho, full / room, full) if later > 0 else tpot), excess


def _staged(curves: StepCurves, prompts: float, seen: float, alone: float, crowded: float) -> float:
    """What a prompt adds to steps of several batches: a lone one keeps all stages waiting, and many no longer.

    Its chunks follow each other before the first is through. Prompts that come while it is on its way follow it as
    closely; with x of them on average, the way of the first is paid by x / (1 - exp(-x)).
    """
    stages, chunks = curves.stages, max(1.0, curves.typical / curves.chunk(seen))
    follow = (1 + (chunks - 1) / stages) / chunks
    on_its_way = prompts * curves.steps(seen).single * follow * chunks
    alone = max(alone * follow, crowded)
    return crowded + (alone - crowded) * -math.expm1(-on_its_way) / on_its_way


def first_steps(curves: StepCurves, rho: float, token: float, full: float) -> float:
    """Part of a request's steps that are as a random moment is, and not as the average step is.

    A request begins to decode when a prefill ends, and leaves behind what a random moment finds (M/G/1: departures see
    time averages): full steps by the time they take, not by their number. That is forgotten after the relaxation time
    of the queue, rho E[x^2] / (2 E[x]) / (1 - rho)^2.
    """
    memory = rho * curves.typical * token / 2 / max(1e-6, (1 - rho) ** 2) / full
    shape = curves.shape
    tokens = sum(made / (decodes + memory) for made, decodes in shape.decodes) * memory
    return min(1.0, tokens / max(1.0, shape.mean_decodes))


def _admitted(curves: StepCurves, rate: float, steps: float, running: float) -> float:
    """Requests a second that full places let through: one ends, one is prefilled."""

    def spare(admitted: float) -> float:
        return running - admitted * steps * token_time(curves, admitted, running)[0]

    at_rate = spare(rate)
    return rate if at_rate >= 0 else root(spare, (0.0, running), (rate, at_rate), PRECISION)


def _spread(curves: StepCurves, rate: float, prompts: float, steps: float, running: float) -> float:
    """Deviation of the running decodes, relative to that of a Poisson number.

    Each decode slows the others, so a deviation decays more slowly: by the slope of the fixed point's right side its
    variance is n / (1 - slope). (M/M/1 with processor sharing: slope rho, mean rho / (1 - rho), variance mean / (1 -
    rho).)
    """
    if not running:
        return 1.0
    step = max(1.0, running / 8)
    more, less = (token_time(curves, prompts, max(0.0, running + s))[0] for s in (step, -step))
    slope = rate * steps * (more - less) / (step + min(step, running))
    return min(MOST_SPREAD, 1 / math.sqrt(1 - min(0.99, max(0.0, slope))))


def _fixed_point(curves: StepCurves, rate: float, prompts: float, steps: float, most: float) -> float:
    """The least n with rate x steps x TPOT(n) <= n, at most `most`.

    What n decodes make wait is never more than the solution, so it is approached from below without passing it.
    """
    if not steps:
        return 0.0

    def wanted(running: float) -> float:
        return rate * steps * token_time(curves, prompts, running)[0]

    low = wanted(0.0)
    while low < most:
        high = min(most, float(GRID[min(bisect_right(GRID, low), len(GRID) - 1)]))
        more = wanted(high)
        if more <= high:
            return root(lambda n: wanted(n) - n, (low, wanted(low) - low), (high, more - high), PRECISION)
        low = max(high, min(more, most))
    return most
