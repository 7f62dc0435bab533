"""Prefill and decode apart: which split of the GPUs serves most, and whether it beats colocation (M4.5)."""

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
    found = [s for s in _splits(prefill, decode, limit, ideal) if limit is None or s.gpus <= limit]
    if limit is None:
        return max(found, key=lambda s: (round(s.per_gpu / ideal, 3), -s.gpus))
    return max(found, key=lambda s: (s.rate, -s.gpus), default=None)


def _splits(prefill: RoleGoodput, decode: RoleGoodput, limit: int | None, ideal: float) -> list[Split]:
    """For each number of prefill replicas the decode replicas that keep up, and one less."""
    most = UNLIMITED if limit is None else max(0, limit - decode.gpus) // prefill.gpus
    found = []
    for p in range(1, most + 1):
        enough = max(1, -int(-p * prefill.rate // decode.rate))
        room = enough if limit is None else max(1, (limit - p * prefill.gpus) // decode.gpus)
        for d in {min(enough, room), max(1, min(enough, room) - 1)}:
            rate = min(p * prefill.rate, d * decode.rate)
            found.append(Split(p, d, rate, p * prefill.gpus + d * decode.gpus, ideal))
    return found


def compare(colocated: Goodput, gpus: int, split: Split | None, limit: int | None, interval: float) -> Comparison:
    """Colocated replicas of `gpus` GPUs against `split` on equal GPUs: `limit`, or those of the split.

    `interval`: how far the time models may be off, relative. The same model times both layouts, so much of its error
    cancels; the whole of it is asked for all the same, since PD costs a second fleet and a KV transfer.
    """
    total = limit if limit is not None else split.gpus if split else gpus
    # Without a limit nobody cares whether replicas divide evenly.
    replicas = total // gpus if limit is not None else total / gpus
    serves, apart = replicas * colocated.rate, split.rate if split else 0.0
    if not serves:
        return Comparison(serves, apart, None, apart > 0)
    gain = apart / serves - 1
    return Comparison(serves, apart, gain, gain > interval)
