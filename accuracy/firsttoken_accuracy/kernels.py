"""Kernel tables against the product's own functions, and the fit of their parameters.

Two effects of the benchmark itself are modelled here and not in the product: repeated kernels find KV and activations
in L2 (`*_cache`), and FP8 kernels with block scales were launched from Python, so the host's time is a lower bound
(`host_us`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType

from firsttoken.planning.timing.attention import (
    BESIDE_SHARE,
    AttentionEfficiency,
    AttentionRates,
    AttentionShape,
    beside_prompts_work,
    decode_floor,
    decode_work,
    prefill_floor,
    prefill_work,
)
from firsttoken.planning.timing.collectives import LinkEfficiency, all_reduce_seconds
from firsttoken.planning.timing.gemm import GemmEfficiency, GemmRates, gemm_seconds
from firsttoken_accuracy.least_squares import STEPS, Parameter, Values, beginning, fit
from firsttoken_accuracy.tables import L2, AllReduce, Attention, Beside, Gemm, Row, device

Measured = Gemm | Attention | AllReduce
HEAD_WIDTH = 128  # of every row in the attention tables
GEMM = (
    Parameter("floor_us", 3, 0, 10),
    Parameter("inner_us", 0.2, 0, 3),
    Parameter("mfu", 0.75, 0.2, 1.2),
    Parameter("droop", 0.1, 0, 1),
    Parameter("mbu", 0.85, 0.3, 1),
    Parameter("small_tile", 0.9, 0.5, 1),
    Parameter("wave_rounding", 0.4, 0, 1),
    Parameter("ragged", 0.1, 0, 2),
)
PREFILL = (
    Parameter("prefill_floor_us", 11, 0, 40),
    Parameter("prefill_mfu", 0.62, 0.1, 1.2),
    Parameter("prefill_half_tokens", 60, 0, 2000),
    Parameter("prefill_tail", 0.4, 0, 2),
    Parameter("prefill_mbu", 0.4, 0.05, 1),
    Parameter("prefill_cache", 0.4, 0, 0.9),
)
DECODE = (
    Parameter("decode_floor_us", 12, 0, 40),
    Parameter("decode_mbu", 0.85, 0.3, 1),
    Parameter("decode_request_us", 3.6, 0, 60),
    Parameter("decode_overlap", 2, 1, 8),
    Parameter("decode_split_us", 1.6, 0, 20),
    Parameter("decode_length_us", 1.5, 0, 20),
    Parameter("decode_cache", 0.4, 0, 0.9),
    Parameter("decode_reach", 0.8, 0.2, 3),
)
LINK = (
    Parameter("latency_us", 4.5, 1, 30),
    Parameter("rank_latency_us", 0.2, 0, 10),
    Parameter("direct", 0.6, 0.02, 1),
    Parameter("set_up_us", 20, 0, 100),
    Parameter("large", 0.9, 0.02, 1),
    Parameter("rank_decay", 0, 0, 3),
)
BENCHMARK = ("host_us", "prefill_cache", "decode_cache", "decode_reach")
PREFILL_REACH = 0.7  # part of L2 that a benchmark's activations may fill before they spill


def gemm_efficiency(values: Values) -> GemmEfficiency:
    """The product's parameters out of fitted ones."""
    return GemmEfficiency(**{p.name: values[p.name] for p in GEMM})


def gemm_predicted(values: Values, row: Gemm) -> float:
    """Seconds the benchmark should show."""
    gpu, eight = device(row.system), row.kind != "bf16"
    rates = GemmRates(
        gpu.fp8_flops or gpu.flops if eight else gpu.flops,
        gpu.bandwidth,
        gpu.processors,
        1 if eight else 2,
        1 if eight else 2,
        gemm_efficiency(values),
    )
    seconds = gemm_seconds(row.m, row.n, row.k, rates, ragged=row.m % 16 != 0)
    return max(seconds, values.get("host_us", 0) * 1e-6)


def attention_efficiency(values: Values) -> AttentionEfficiency:
    """The product's parameters; those of the phase that is not fitted are irrelevant and 1."""
    names = AttentionEfficiency.__dataclass_fields__
    return AttentionEfficiency(**{name: values.get(name, 1.0) for name in names})


def prefill_predicted(values: Values, row: Attention) -> float:
    """Seconds the benchmark should show for whole prompts."""
    shape, rates = _attention(values, row)
    traffic = row.batch * row.length * (row.heads * HEAD_WIDTH * 4 + row.kv_heads * HEAD_WIDTH * 8 + shape.kv_bytes)
    hot = _in_cache(traffic, L2[row.system] * PREFILL_REACH)
    read = 1 - hot * values["prefill_cache"]
    return prefill_floor(rates) + prefill_work(0, row.length, shape, rates, batch=row.batch, read=read)


def decode_predicted(values: Values, row: Attention) -> float:
    """Seconds the benchmark should show for decodes of equal context."""
    shape, rates = _attention(values, row)
    context = row.batch * row.length
    hot = _in_cache(context * shape.kv_bytes, L2[row.system] * values["decode_reach"])
    read = 1 - hot * values["decode_cache"]
    return decode_floor(row.length, rates) + decode_work(row.batch, context, row.length, shape, rates, read=read)


def beside_predicted(values: Values, row: Beside, share: float = BESIDE_SHARE) -> float:
    """Seconds of decodes beside a short chunk, with the `values` of prefill on their GPU."""
    gpu, e = device(row.system), AttentionEfficiency(**values)
    shape = AttentionShape(32, 8, HEAD_WIDTH, HEAD_WIDTH, 2 * 8 * HEAD_WIDTH * 2)
    rates = AttentionRates(gpu.flops, gpu.bandwidth, gpu.processors, e, one_kernel=True)
    total = row.count * row.context
    work = beside_prompts_work(row.count, total, row.context, shape, rates) * BESIDE_SHARE / share
    return prefill_floor(rates) + work


def beside_counts(row: Beside) -> bool:
    """Rows that the formula is for: tiles for all SMs, and the KV of one head in L2, where its readers share it."""
    gpu = device(row.system)
    return row.count * 32 >= gpu.processors and row.count * row.context * 2 * HEAD_WIDTH * 2 <= L2[row.system]


def fit_beside(values: Values, rows: Sequence[Beside]) -> float:
    """BESIDE_SHARE by the rows that count and are not kept out."""
    kept = [r for r in rows if not r.out and beside_counts(r)]
    share = Parameter("share", 0.8, 0.3, 1.2)
    found = fit([share], kept, lambda v, r: beside_predicted(values, r, v["share"]), lambda r: r.seconds)
    return found["share"]


def all_reduce_predicted(values: Values, row: AllReduce) -> float:
    """Seconds of one all-reduce."""
    gpu = device(row.system)
    efficiency = LinkEfficiency(**{p.name: values[p.name] for p in LINK})
    return all_reduce_seconds(row.message_bytes, row.ranks, gpu.link or gpu.pcie, efficiency)


# What rows that the host's launches bound say nothing of; FP8 with block scales takes it from FP8 with tensor scales.
LAUNCH_BOUND = ("floor_us", "inner_us", "mbu")


NOTHING: Values = MappingProxyType({})


def fit_gemm(
    rows: Sequence[Gemm], fixed: Values = NOTHING, begin: Values = NOTHING, steps: int = STEPS
) -> dict[str, float]:
    """`rows` of one number format; `fixed` parameters are taken as they are, others begin at `begin`."""
    free = [p for p in GEMM if p.name not in fixed]
    if rows[0].kind == "fp8_block":
        # Most small products take the host's time, whatever their size.
        free.append(Parameter("host_us", 1e6 * median(r.seconds for r in rows if r.m <= 64), 0, 500))

    def predict(values: Values, row: Gemm) -> float:
        return gemm_predicted({**fixed, **values} if fixed else values, row)

    return {**fixed, **_fitted(beginning(free, begin), rows, predict, steps)}


def fit_attention(
    prefill: Sequence[Attention], decode: Sequence[Attention], begin: Values = NOTHING, steps: int = STEPS
) -> dict[str, float]:
    """Rows of one KV format."""
    chunks = _fitted(beginning(PREFILL, begin), prefill, prefill_predicted, steps)
    return {**chunks, **_fitted(beginning(DECODE, begin), decode, decode_predicted, steps)}


def fit_link(rows: Sequence[AllReduce], begin: Values = NOTHING, steps: int = STEPS) -> dict[str, float]:
    """Rows over one kind of link."""
    return _fitted(beginning(LINK, begin), rows, all_reduce_predicted, steps)


def _fitted(
    free: Sequence[Parameter], rows: Sequence[Row], predict: Callable[[Values, Row], float], steps: int
) -> dict[str, float]:
    """The `free` parameters by the seconds of the rows."""
    return fit(free, rows, predict, lambda row: row.seconds, _equal_generations(rows), steps=steps)


def _attention(values: Values, row: Attention) -> tuple[AttentionShape, AttentionRates]:
    gpu = device(row.system)
    kv_bytes = 2 * row.kv_heads * HEAD_WIDTH * (2 if row.kind == "bf16" else 1)
    shape = AttentionShape(row.heads, row.kv_heads, HEAD_WIDTH, HEAD_WIDTH, kv_bytes)
    return shape, AttentionRates(gpu.flops, gpu.bandwidth, gpu.processors, attention_efficiency(values))


def _in_cache(moved: float, room: float) -> float:
    """Part of the traffic that stays in L2: all of it below half the room, nothing beyond one and a half."""
    return min(1.0, max(0.0, 1.5 - moved / room))


def _equal_generations(rows: Iterable[Measured]) -> Callable[[Measured], float]:
    """Each generation counts alike, and each GPU of one: two Hoppers are no second opinion on Ada."""
    systems: dict[str, int] = {}
    for row in rows:
        systems[row.system] = systems.get(row.system, 0) + 1
    peers: Mapping[str, int] = {
        s: sum(device(s).generation == device(other).generation for other in systems) for s in systems
    }
    weights = {s: 1000.0 / (systems[s] * peers[s]) for s in systems}
    return lambda row: weights[row.system]
