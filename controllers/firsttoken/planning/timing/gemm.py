"""Time of one matrix product: tiles in waves over the SMs, against the bytes that must move."""

from dataclasses import dataclass
from math import ceil, inf, sqrt

# Rows and columns of the output that one SM computes at a time, and how often the largest is halved for them; libraries
# choose the size that ends first.
TILES = ((128, 256, 0), (128, 128, 1), (64, 128, 2))
# Along the inner dimension a product may be split over SMs, whose partial sums (4 bytes, written and read) are added.
SPLITS = (1, 2, 4)
PARTIAL_SUM_BYTES = 8
LARGEST_TILE = 128 * 256
# Above this many rows, kernels that scale in the epilogue (FP8) pay for a row count that is no multiple of 16.
ALIGNED_ROWS = 256
# Compute time at which half of the droop is there.
DROOP_SECONDS = 0.5e-3


@dataclass(frozen=True)
class GemmEfficiency:
    """Fitted; one set for a generation and a number format."""

    floor_us: float  # launch and epilogue of a product, however small
    inner_us: float  # for each 1,000 elements of the inner dimension: a tile walks along it step by step
    mfu: float  # part of the dense peak that full waves of the largest tile reach
    droop: float  # what is added to the compute time of long products, when the GPU meets its power limit
    mbu: float  # part of the memory bandwidth at which weights stream
    small_tile: float  # efficiency kept for each halving of the tile
    wave_rounding: float  # how much of an unfilled last wave is paid: 1 all of it, 0 nothing (stream-K, clusters)
    ragged: float  # waves of the largest tile that row counts off the grid of 16 cost


@dataclass(frozen=True)
class GemmRates:
    """A number format on a device: what `gemm_seconds` needs beside the shape."""

    flops: float  # peak for the format, FLOP/s
    bandwidth: float  # bytes/s
    processors: int
    weight_bytes: float  # an element of the weights, scales included
    activation_bytes: float  # an element of the input; the output has 2
    efficiency: GemmEfficiency


def gemm_seconds(m: float, n: float, k: float, rates: GemmRates, *, ragged: bool = True) -> float:
    """Seconds for (m x k) by (k x n), m tokens. Never falls when m, n or k grows.

    `ragged`: m may be no multiple of 16, as the token count of a step usually is not.
    """
    e = rates.efficiency
    compute = _compute(m, n, k, rates)
    if ragged and m > ALIGNED_ROWS:
        compute += e.ragged * 2 * LARGEST_TILE * k * rates.processors / (rates.flops * e.mfu)
    compute *= 1 + e.droop * compute / (compute + DROOP_SECONDS)
    moved = rates.weight_bytes * n * k + rates.activation_bytes * m * k + 2 * m * n
    start = e.floor_us * 1e-6 + e.inner_us * 1e-9 * k
    return start + smooth_maximum(compute, moved / (rates.bandwidth * e.mbu))


def smooth_maximum(a: float, b: float) -> float:
    """Fourth-power norm: of two limits that overlap in time the larger counts, and a little of the other."""
    a, b = a * a, b * b
    return sqrt(sqrt(a * a + b * b))


def _compute(m: float, n: float, k: float, rates: GemmRates) -> float:
    e, processors = rates.efficiency, rates.processors
    if processors == 1:  # a CPU: no tiles to fill
        return 2 * m * n * k / (rates.flops * e.mfu)
    best, sums = inf, m * n * PARTIAL_SUM_BYTES / rates.bandwidth
    for rows, columns, halvings in TILES:
        tiles = ceil(m / rows) * ceil(n / columns)
        tile_seconds = 2 * rows * columns * k * processors / (rates.flops * e.mfu * e.small_tile**halvings)
        least = tiles * tile_seconds / processors  # were all SMs busy to the end
        for split in SPLITS:
            added = split * sums if split > 1 else 0.0
            if best <= least + added:  # more splits add more
                break
            waves = tiles * split / processors
            waves = 1.0 if waves < 1 else waves + e.wave_rounding * (ceil(waves) - waves)
            best = min(best, waves * tile_seconds / split + added)
    return best
