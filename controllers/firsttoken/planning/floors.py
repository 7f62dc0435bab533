"""What no software can beat: TTFT and TPOT of an idle replica whose every unit works at its data-sheet peak.

A promise below that is refused with the figure; one between the floor and the prediction is planned for and called
missed, since a prediction may be wrong and a data sheet is not.
"""

from firsttoken.planning.kv_formats import kv_format
from firsttoken.planning.memory import kv_bytes_per_token_and_layer, weights_bytes
from firsttoken.planning.timing.device import Device
from firsttoken.planning.types import ModelFacts


def active_parameters(facts: ModelFacts) -> float:
    """Parameters that one token is multiplied with: all but the embeddings and the experts it is not sent to."""
    layers = facts.parameters - facts.embedding_parameters
    if not facts.num_experts or not facts.num_experts_per_tok:
        return float(layers)
    width = facts.moe_intermediate_size or facts.intermediate_size
    routed = 3 * facts.hidden_size * width * facts.num_experts * facts.num_hidden_layers
    # Of layers that have no experts, or experts without a gate, `routed` is too much: never below what one pass takes.
    experts = min(routed, 0.98 * layers)
    return layers - experts * (1 - facts.num_experts_per_tok / facts.num_experts)


def prefill_floor_seconds(
    facts: ModelFacts, device: Device, ranks: int, prompt_tokens: int, cached_tokens: int
) -> float:
    """Seconds to prefill a prompt: 2 FLOPs a parameter and token, 4 a head, dimension and pair of tokens."""
    new = max(1, prompt_tokens - cached_tokens)
    peak = _peak(facts, device) * ranks
    window = facts.sliding_window or prompt_tokens
    pairs = new * min(window, (prompt_tokens + cached_tokens) / 2)
    attention = 4.0 * facts.num_hidden_layers * facts.num_attention_heads * facts.head_dim * pairs
    computed = (2.0 * active_parameters(facts) * new + attention) / peak
    return max(computed, _weights_seconds(facts, device, ranks))


def decode_floor_seconds(
    facts: ModelFacts, device: Device, ranks: int, context: int, kv_cache_dtype: str = "auto"
) -> float:
    """Seconds of a decode step of one request: the weights it touches and its own KV are read once."""
    kv = kv_format(kv_cache_dtype, 4 if device.cpu else 2)
    token = kv_bytes_per_token_and_layer(facts, ranks, kv.element, kv.scale) * facts.num_hidden_layers
    seen = min(context, facts.sliding_window or context)
    return _weights_seconds(facts, device, ranks) + token * seen / device.bandwidth


def _weights_seconds(facts: ModelFacts, device: Device, ranks: int) -> float:
    layers = facts.parameters - facts.embedding_parameters
    element = 4 if device.cpu else 2
    stored = weights_bytes(facts, element) - facts.embedding_parameters * element
    return stored * active_parameters(facts) / layers / ranks / device.bandwidth


def _peak(facts: ModelFacts, device: Device) -> float:
    """Of the format that products are computed in: FP8 only where weights are FP8 and the device has such units."""
    return (device.fp8_flops or device.flops) if facts.quantization == "fp8" else device.flops
