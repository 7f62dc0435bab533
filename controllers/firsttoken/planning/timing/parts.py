"""What a StepModel has prepared, as plain values: for programs that evaluate steps in compiled loops."""

from typing import NamedTuple

from firsttoken.planning.timing.attention import AttentionRates, AttentionShape
from firsttoken.planning.timing.efficiency import HostEfficiency
from firsttoken.planning.timing.layout import Layout


class StepParts(NamedTuple):
    """Constants of `StepModel.step_seconds` beside what depends on the number of tokens or requests alone.

    Shapes are of one layer on one rank.
    """

    prefill: AttentionShape
    decode: AttentionShape
    rates: AttentionRates
    host: HostEfficiency
    layout: Layout
    full_layers: int  # without a sliding window
    windowed_layers: int
    largest_graph: int  # tokens; larger steps are launched without a CUDA graph
    tiled: bool
    overlap: bool  # the CPU prepares the next step meanwhile: the longer of both counts, not the sum
    expand_token: float  # MLA: seconds to expand the latent vectors of one earlier token, all layers; else 0
    scales: tuple[float, float]  # measured over predicted: steps with prompts in them, those without
    peak: float  # FLOP/s of the layers' number format, all ranks

    @property
    def layers(self) -> int:
        """Of the model."""
        return self.full_layers + self.windowed_layers


def layer_flops(parts: StepParts, hidden: int) -> int:
    """FLOPs of all matrix products in the layers for one token; attention itself and the output head left out."""
    shape = parts.layout
    expert = shape.expert_matrices * shape.expert_width * hidden * shape.experts_per_token
    sparse = shape.expert_layers * (expert + shape.experts * hidden + _size(shape.shared)) if shape.experts else 0
    return 2 * (parts.layers * _size(shape.attention) + shape.dense_layers * _size(shape.dense) + sparse)


def _size(products: tuple[tuple[int, int, str], ...]) -> int:
    return sum(outputs * inputs for outputs, inputs, _ in products)
