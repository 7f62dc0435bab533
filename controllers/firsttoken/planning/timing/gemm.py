"""Time of one matrix product: tiles in waves over the SMs, against the bytes that must move."""

from dataclasses import dataclass
from math import ceil, inf, sqrt
from typing import NamedTuple

# Rows and columns of the output that one SM computes at a time, and how often the largest is halved for them; libraries
# choose the size that ends first.
TILES = ((128, 256, 0), (128, 128, 1), (64, 128, 2))
# Along the inner dimension a product may also be split over SMs, whose partial sums (4 bytes, written, read) are added.
SPLITS = (2, 4)
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


class Product(NamedTuple):
    """A product of any number of rows with one matrix of weights, and all of its time that the rows don't change.

    Always of the same types, so that what is compiled for one product serves all.
    """

    tiles: tuple[tuple[int, int, float], ...]  # each size of TILES: rows, tiles beside each other, seconds of one
    processors: int
    wave_rounding: float
    row_sums: float  # bytes of partial sums for each part that the inner dimension is split into
    bandwidth: float  # bytes/s, the whole of it
    row_flops: float
    flops: float  # FLOP/s, of the largest tile
    ragged: float  # seconds that more than ALIGNED_ROWS rows add
    droop: float
    weights: float  # bytes
    row_input: float  # bytes
    row_output: float  # bytes
    stream: float  # bytes/s at which weights and activations move
    start: float  # seconds


def gemm_seconds(m: float, n: float, k: float, rates: GemmRates, *, ragged: bool = True) -> float:
    """Seconds for (m x k) by (k x n), m tokens. Never falls when m, n or k grows.

    `ragged`: m may be no multiple of 16, as the token count of a step usually is not.
    """
    return product_seconds(m, product(n, k, rates, ragged=ragged))


def product(n: float, k: float, rates: GemmRates, *, ragged: bool = True) -> Product:
    """The product with weights of (k x n), ready to be timed."""
    e, processors = rates.efficiency, rates.processors
    reached = rates.flops * e.mfu
    return Product(
        tiles=tuple(
            (rows, ceil(n / columns), 2 * rows * columns * k * processors / (reached * e.small_tile**halvings))
            for rows, columns, halvings in TILES
        ),
        processors=processors,
        wave_rounding=float(e.wave_rounding),
        row_sums=float(n * PARTIAL_SUM_BYTES),
        bandwidth=float(rates.bandwidth),
        row_flops=float(2 * n * k),
        flops=reached,
        ragged=e.ragged * 2 * LARGEST_TILE * k * processors / reached if ragged else 0.0,
        droop=float(e.droop),
        weights=float(rates.weight_bytes * n * k),
        row_input=float(rates.activation_bytes * k),
        row_output=float(2 * n),
        stream=rates.bandwidth * e.mbu,
        start=e.floor_us * 1e-6 + e.inner_us * 1e-9 * k,
    )


def product_seconds(m: float, product: Product) -> float:
    """Seconds with `m` rows. Plain enough to be compiled as it is: the simulator does, for tables of many rows."""
    (tiles, processors, rounding, row_sums, bandwidth, row_flops, flops, ragged, droop, weights, row_input, row_output,
     stream, start) = product  # fmt: skip
    sums = m * row_sums / bandwidth
    compute = m * row_flops / flops if processors == 1 else inf  # a CPU has no tiles to fill
    for rows, beside, seconds in tiles:
        count = ceil(m / rows) * beside
        least = count * seconds / processors  # were all SMs busy to the end
        if compute <= least:
            continue
        waves = count / processors
        waves = 1.0 if waves < 1 else waves + rounding * (ceil(waves) - waves)
        found = waves * seconds
        compute = found if found < compute else compute
        for split in SPLITS:
            added = split * sums
            if compute <= least + added:  # more splits add more
                break
            waves = count * split / processors
            waves = 1.0 if waves < 1 else waves + rounding * (ceil(waves) - waves)
            found = waves * seconds / split + added
            compute = found if found < compute else compute
    if m > ALIGNED_ROWS:
        compute += ragged
    compute *= 1 + droop * compute / (compute + DROOP_SECONDS)
    # Their smooth maximum, written out: a compiled function calls no other.
    compute, moved = compute * compute, (weights + row_input * m + row_output * m) / stream
    moved *= moved
    return start + sqrt(sqrt(compute * compute + moved * moved))


def smooth_maximum(a: float, b: float) -> float:
    """Fourth-power norm: of two limits that overlap in time the larger counts, and a little of the other."""
    a, b = a * a, b * b
    return sqrt(sqrt(a * a + b * b))
