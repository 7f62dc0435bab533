"""Time of a layer of routed experts on one rank."""

import math
from dataclasses import dataclass

from firsttoken.planning.timing.gemm import GemmRates, smooth_maximum


@dataclass(frozen=True)
class ExpertEfficiency:
    """Fitted on whole steps, since no kernel table for experts is at hand: compare with care."""

    floor_us: float  # routing, sorting tokens by expert, two grouped products and the sum
    mfu: float  # part of the dense peak that full tiles reach
    mbu: float  # part of the memory bandwidth at which the weights of the touched experts stream
    spread: float  # exponent of the token count in the experts touched: below 1, tokens of a batch choose alike
    tile_rows: float  # each touched expert's tokens are rounded up to this many rows, half of it on average


@dataclass(frozen=True)
class ExpertShape:
    """The routed experts of one layer on one rank."""

    experts: int
    per_token: int
    hidden: int
    width: float  # columns of one expert on this rank
    matrices: int


def distinct_experts(tokens: float, experts: int, per_token: int, spread: float = 1.0) -> float:
    """Experts that `tokens` tokens touch on average, each choosing `per_token` of them.

    With `spread` 1 they choose independently and with equal odds; below it they touch fewer. One token touches
    `per_token`, and many touch all.
    """
    return experts * (1.0 - math.pow(1.0 - per_token / experts, math.pow(tokens, spread)))


def experts_seconds(tokens: float, shape: ExpertShape, rates: GemmRates, efficiency: ExpertEfficiency) -> float:
    """Seconds for `tokens` tokens. Weight bytes grow with the experts touched and saturate when all are."""
    e = efficiency
    touched = distinct_experts(tokens, shape.experts, shape.per_token, e.spread)
    elements = shape.matrices * shape.hidden * shape.width
    rows = tokens * shape.per_token + touched * e.tile_rows / 2
    compute = 2 * rows * elements / (rates.flops * e.mfu)
    # Copies of each token for its experts, and their outputs until they are summed: in and out, 2 bytes each.
    copies = tokens * shape.per_token * shape.hidden * 2 * 4
    moved = touched * elements * rates.weight_bytes / e.mbu + copies / rates.efficiency.mbu
    return e.floor_us * 1e-6 + smooth_maximum(compute, moved / rates.bandwidth)
