"""The part of a step that depends on how many tokens and requests are in it, and on nothing else of them."""

from typing import NamedTuple

from firsttoken.planning.timing import rank
from firsttoken.planning.timing.collectives import LinkEfficiency, all_reduce_seconds, over_nodes_seconds
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import Efficiencies
from firsttoken.planning.timing.experts import ExpertEfficiency, ExpertShape, experts_seconds
from firsttoken.planning.timing.gemm import GemmRates, Product, product, product_seconds
from firsttoken.planning.timing.layout import Layout
from firsttoken.planning.timing.stages import handover_seconds
from firsttoken.planning.types import ModelFacts

# The sampler: a logit is cast to FP32, scaled, normalised and read again.
SAMPLER_BYTES = 16

Products = tuple[Product, ...]


class Routed(NamedTuple):
    """The routed experts of a layer, and the product that chooses among them."""

    shape: ExpertShape
    rates: GemmRates
    efficiency: ExpertEfficiency
    router: Product


class Ring(NamedTuple):
    """How the ranks that share a layer reach each other."""

    ranks: int
    node: int  # of them on one node
    link: float  # inside a node, bytes/s, one direction
    network: float  # between nodes, of each rank
    efficiency: LinkEfficiency

    def all_reduce(self, message: float) -> float:
        """Seconds for one all-reduce of `message` bytes."""
        if self.ranks > self.node:
            return over_nodes_seconds(message, self.ranks, self.node, (self.link, self.network), self.efficiency)
        return all_reduce_seconds(message, self.ranks, self.link, self.efficiency)


class TokenWork:
    """Products, experts, element-wise work and collectives of one model on one replica: seconds over all layers.

    Neither the KV cache's format nor a calibration changes them. What was evaluated is remembered.
    """

    def __init__(
        self,
        facts: ModelFacts,
        device: Device,
        shape: Layout,
        formats: rank.Formats,
        found: Efficiencies,
        *,
        ranks: int,
        stages: int,
    ) -> None:
        """More `ranks` than a node has devices lie on several, all devices of each."""

        def products(split: tuple[tuple[int, int, str], ...]) -> Products:
            return tuple(product(n, k, formats.layers) for n, k in rank.split(split, ranks))

        self.layers = facts.num_hidden_layers
        self.dense_layers, self.expert_layers = shape.dense_layers, shape.expert_layers
        self.around_attention, self.dense, self.shared = map(products, (shape.attention, shape.dense, shape.shared))
        self.routed = _routed(facts, shape, formats, found, ranks)
        self.layer_start = found.host.layer_us * 1e-6
        self.elementwise_bytes = rank.elementwise_bytes(facts, shape, ranks)
        self.elementwise_stream = device.bandwidth * formats.head.efficiency.mbu
        self._hidden, self._vocabulary, self._bandwidth = facts.hidden_size, facts.vocab_size, device.bandwidth
        self._columns = product(-(-facts.vocab_size // ranks), facts.hidden_size, formats.head, ragged=False)
        self._ring, self._stages = _ring(device, found, ranks), stages
        self._device = device
        self._by_tokens: dict[int, tuple[float, float]] = {}
        self._by_rows: dict[int, float] = {}

    def of_tokens(self, tokens: int) -> tuple[float, float]:
        """The layers' work for that many tokens, and their collectives."""
        found = self._by_tokens.get(tokens)
        if found is None:
            found = self._by_tokens[tokens] = (self.linear(tokens), self.collectives(tokens))
        return found

    def of_rows(self, rows: int) -> float:
        """Output embedding and sampler for that many requests."""
        found = self._by_rows.get(rows)
        if found is None:
            found = self._by_rows[rows] = self._head(rows)
        return found

    def linear(self, tokens: int) -> float:
        """Products, experts and what is done element by element."""
        seconds = self.layers * _seconds(tokens, self.around_attention)
        if self.dense_layers:
            seconds += self.dense_layers * _seconds(tokens, self.dense)
        if self.routed:
            shape, rates, efficiency, router = self.routed
            each = experts_seconds(tokens, shape, rates, efficiency)
            seconds += self.expert_layers * (each + product_seconds(tokens, router) + _seconds(tokens, self.shared))
        elementwise = self.layer_start + tokens * self.elementwise_bytes / self.elementwise_stream
        return seconds + self.layers * elementwise

    def collectives(self, tokens: int) -> float:
        """All-reduces, and passing activations between pipeline stages."""
        message, ring = tokens * self._hidden * 2, self._ring
        seconds = 2 * self.layers * ring.all_reduce(message)
        if self._stages > 1:
            seconds += handover_seconds(message, ring.ranks, self._stages, self._device)
        return seconds

    def _head(self, rows: int) -> float:
        seconds = product_seconds(rows, self._columns)
        # The logits of all ranks are gathered on one, which samples: an all-reduce moves twice as much.
        seconds += self._ring.all_reduce(rows * self._vocabulary) if self._ring.ranks > 1 else 0.0
        return seconds + rows * self._vocabulary * SAMPLER_BYTES / self._bandwidth


def _seconds(tokens: int, products: Products) -> float:
    return sum([product_seconds(tokens, p) for p in products])


def _routed(facts: ModelFacts, shape: Layout, formats: rank.Formats, found: Efficiencies, ranks: int) -> Routed | None:
    if not shape.experts:
        return None
    efficiency = found.experts[formats.experts_key]
    router = product(shape.experts, facts.hidden_size, formats.head)
    return Routed(rank.expert_shape(shape, facts.hidden_size, ranks), formats.experts, efficiency, router)


def _ring(device: Device, found: Efficiencies, ranks: int) -> Ring:
    node = min(ranks, device.node)
    if device.link:
        return Ring(ranks, node, device.link_among(node), device.network, found.nvlink)
    return Ring(ranks, node, device.pcie, device.network, found.pcie)
