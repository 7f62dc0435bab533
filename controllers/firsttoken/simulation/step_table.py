"""The planner's StepModel as flat arrays: the clock of the simulated engine.

What depends on the number of tokens or of requests alone is tabulated (planning/timing/tokens.py, term by term, its
products compiled); attention is evaluated from its formulas (step_cost.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.timing.experts import experts_seconds
from firsttoken.planning.timing.gemm import Product, product_seconds
from firsttoken.planning.timing.parts import StepParts, layer_flops
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.timing.tokens import TokenWork
from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.settings import Stages
from firsttoken.simulation.step_cost import CONSTANTS, StepSums, step_seconds

# Beyond this many tokens only the ends of each output tile of 64 rows are evaluated: between them a product's time is a
# straight line but for the smooth maximum of compute and traffic. The test says how close that is.
EXACT_TOKENS = 2048
TILE_ROWS = 64

_product_seconds = compiled(product_seconds)


@dataclass(frozen=True, eq=False)
class StepTable:
    """Steps of at most `len(by_tokens) - 1` tokens and `len(by_rows) - 1` requests. Seconds."""

    constants: NDArray[Any]  # one record of CONSTANTS
    by_tokens: NDArray[np.float64]
    by_rows: NDArray[np.float64]
    peak_token: float  # what the dense peak needs for the layers' products of one token: tokens x this is compute
    api_request: float
    api_token: float

    def step_seconds(self, chunks: Sequence[tuple[int, int]], contexts: Sequence[int]) -> tuple[float, float]:
        """Seconds of a step, and GPU seconds of it; chunks as (tokens before, tokens), contexts of the decodes."""
        window = self.constants[0]["window"]
        clipped = sum(min(c, window) for c in contexts)
        given = np.array(chunks, np.int64).reshape(-1, 2)
        counts = len(given), int(given[:, 1].sum()), len(contexts), max(contexts, default=0)
        sums = StepSums(*counts, float(sum(contexts)), float(clipped))
        return step_seconds(self.constants[0], self.by_tokens, self.by_rows, given, sums)

    def stages(self, gateway_seconds: float = 0.0, delivery_seconds: float = 0.0) -> Stages:
        """The stages outside the engine as the time model knows them; both arguments are the network's part."""
        return Stages(gateway_seconds, self.api_request, self.api_token, delivery_seconds)


def step_table(model: StepModel, token_budget: int, max_num_seqs: int) -> StepTable:
    """The table of one model on one replica, for steps up to these bounds."""
    parts = model.parts()
    rows = np.array([0.0, *(model.tokens.of_rows(n) for n in range(1, max_num_seqs + 1))])
    return StepTable(
        constants=_constants(parts),
        by_tokens=_by_tokens(model, token_budget),
        by_rows=rows,
        peak_token=layer_flops(parts, model.facts.hidden_size) / parts.peak,
        api_request=parts.host.api_request_us * 1e-6,
        api_token=parts.host.api_token_us * 1e-6,
    )


def _by_tokens(model: StepModel, most: int) -> NDArray[np.float64]:
    points = list(range(1, min(most, EXACT_TOKENS) + 1))
    for tile in range(EXACT_TOKENS, most, TILE_ROWS):
        points += [tile + 1, min(tile + TILE_ROWS, most)]
    tokens = np.unique(np.array(points, np.int64))
    values = _layers(model.tokens, tokens) + [model.tokens.collectives(n) for n in tokens.tolist()]
    return np.concatenate(([0.0], np.interp(np.arange(1, most + 1), tokens, values)))


def _layers(work: TokenWork, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """`TokenWork.linear` of each number of tokens, in the same order of operations."""
    seconds = work.layers * _products(tokens, work.around_attention)
    if work.dense_layers:
        seconds += work.dense_layers * _products(tokens, work.dense)
    if work.routed:
        shape, rates, efficiency, router = work.routed
        each = np.array([experts_seconds(n, shape, rates, efficiency) for n in tokens.tolist()])
        seconds += work.expert_layers * (each + _product(tokens, router) + _products(tokens, work.shared))
    elementwise = work.layer_start + tokens * work.elementwise_bytes / work.elementwise_stream
    return seconds + work.layers * elementwise


def _products(tokens: NDArray[np.int64], products: Sequence[Product]) -> NDArray[np.float64]:
    return sum((_product(tokens, p) for p in products), np.zeros(len(tokens)))


@compiled
def _product(tokens: Any, product: Any) -> Any:
    found = np.empty(len(tokens))
    for i in range(len(tokens)):
        found[i] = _product_seconds(tokens[i], product)
    return found


def _constants(parts: StepParts) -> NDArray[Any]:
    rates, host, prefill, decode = parts.rates, parts.host, parts.prefill, parts.decode
    efficiency = vars(rates.efficiency)
    found = np.zeros(1, CONSTANTS)
    values = {
        **{name: efficiency[name] for name in CONSTANTS.names or () if name in efficiency},
        "flops": rates.flops, "bandwidth": rates.bandwidth, "processors": rates.processors,
        "score_bytes": rates.score_bytes,
        "prefill_heads": prefill.heads, "prefill_kv_heads": prefill.kv_heads,
        "prefill_both": prefill.query_width + prefill.value_width, "prefill_kv_bytes": prefill.kv_bytes,
        "decode_kv_heads": decode.kv_heads, "decode_kv_bytes": decode.kv_bytes, "latent_flops": decode.latent_flops,
        "window": prefill.window if parts.windowed_layers and prefill.window else math.inf,
        "layers": parts.layers, "full_layers": parts.full_layers, "windowed_layers": parts.windowed_layers,
        "tiled": parts.tiled, "one_kernel": rates.one_kernel, "overlap": parts.overlap,
        "expand_token": parts.expand_token,
        "cpu_step_us": host.step_us, "cpu_request_us": host.request_us,
        "cpu_eager_us": host.eager_layer_us * parts.layers, "largest_graph": parts.largest_graph,
        "prefill_scale": parts.scales[0], "decode_scale": parts.scales[1],
    }  # fmt: skip
    for name, value in values.items():
        found[name] = value
    return found
