"""Prefill and decode apart: which split of the GPUs serves most, and whether it beats colocation (M4.5)."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from firsttoken.planning.load.goodput import Goodput

# Prefill replicas that are tried where nobody limits the GPUs: ratios of larger numbers gain next to nothing.
UNLIMITED = 16


@dataclass(frozen=True)
class RoleGoodput:
    """One replica of a role: requests a second within the SLOs, and the GPUs it takes."""

    rate: float
    gpus: int


@dataclass(frozen=True)
class Split:
    """Replicas of prefill and decode engines that together serve `rate` requests a second on `gpus` GPUs."""

    prefill: int
    decode: int
    rate: float
    gpus: int
    ideal_per_gpu: float  # requests a second and GPU, were replicas divisible

    @property
    def per_gpu(self) -> float:
        """Requests a second and GPU."""
        return self.rate / self.gpus


@dataclass(frozen=True)
class Comparison:
    """What the same GPUs serve in either layout."""

    colocated: float  # requests a second
    disaggregated: float
    gain: float | None  # of disaggregation, relative; None where colocated serves nothing within the SLOs
    clear: bool  # whether the gain is beyond what the time model may be off


def ideal_per_gpu(prefill: RoleGoodput, decode: RoleGoodput) -> float:
    """Requests a second and GPU with the roles balanced: each request takes 1 / rate of a replica of both."""
    if not prefill.rate or not decode.rate:
        return 0.0
    return 1 / (prefill.gpus / prefill.rate + decode.gpus / decode.rate)


def best_split(prefill: RoleGoodput, decode: RoleGoodput, limit: int | None = None) -> Split | None:
    """Most requests a second within `limit` GPUs, then fewest GPUs; without a limit, most for each GPU.

    None where one replica of each does not fit or a role can't keep its SLOs.
    """
    ideal = ideal_per_gpu(prefill, decode)
    if not ideal:
        return None
    if limit is None:
        tried = (_keeping_up(prefill, decode, p, less, ideal) for p in range(1, UNLIMITED + 1) for less in (0, 1))
        return max(tried, key=lambda s: (round(s.per_gpu / ideal, 3), -s.gpus))
    most = (limit - decode.gpus) // prefill.gpus
    return _within(prefill, decode, limit, most, ideal) if most >= 1 else None


def _keeping_up(prefill: RoleGoodput, decode: RoleGoodput, p: int, less: int, ideal: float) -> Split:
    """As many decode replicas as `p` prefill replicas keep busy, or `less` of them."""
    d = max(1, -int(-p * prefill.rate // decode.rate) - less)
    rate = min(p * prefill.rate, d * decode.rate)
    return Split(p, d, rate, p * prefill.gpus + d * decode.gpus, ideal)


def _within(prefill: RoleGoodput, decode: RoleGoodput, limit: int, most: int, ideal: float) -> Split:
    """Most requests a second on `limit` GPUs, which hold up to `most` prefill replicas beside one of decode.

    With each prefill replica more, prefill carries more, and decode on the GPUs that are left carries less or the same.
    So the best is where the two cross: the last number that decode keeps up with, or the next one.
    """

    def left(p: int) -> float:
        return (limit - p * prefill.gpus) // decode.gpus * decode.rate

    crossing = bisect_right(range(1, most + 1), False, key=lambda p: p * prefill.rate > left(p))
    rate = max(min(p * prefill.rate, left(p)) for p in (crossing, crossing + 1) if 1 <= p <= most)
    p, d = _least(prefill.rate, rate, limit), _least(decode.rate, rate, limit)
    return Split(p, d, rate, p * prefill.gpus + d * decode.gpus, ideal)


def _least(each: float, rate: float, limit: int) -> int:
    """The fewest replicas that carry `rate`, of at most `limit`. Searched, since a quotient may round to one less."""
    return 1 + bisect_left(range(1, limit + 1), rate, key=lambda n: n * each)


def compare(colocated: Goodput, gpus: int, split: Split | None, limit: int | None, interval: float) -> Comparison:
    """Colocated replicas of `gpus` GPUs against `split` on equal GPUs: `limit`, or those of the split.

    `interval`: how far the time models may be off, relative. The same model times both layouts, so much of its error
    cancels; the whole of it is asked for all the same, since a proposal costs a proof, and PD a second fleet.
    """
    total = limit if limit is not None else split.gpus if split else gpus
    # Without a limit nobody cares whether replicas divide evenly.
    replicas = total // gpus if limit is not None else total / gpus
    serves, apart = replicas * colocated.rate, split.rate if split else 0.0
    if not serves:
        return Comparison(serves, apart, None, apart > 0)
    return Comparison(serves, apart, apart / serves - 1, beyond(apart, serves, interval))


def beyond(then: float, now: float, interval: float) -> bool:
    """Whether something carries more than what there is by more than the step times of either may be off (relative).

    The one rule for all that is proposed: what is within that may as well be a loss.
    """
    return then > now * (1 + interval)
