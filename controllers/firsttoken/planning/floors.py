"""What no software can beat: TTFT and TPOT of an idle replica whose every unit works at its data-sheet peak.

A promise below that is refused with the figure; one between the floor and the prediction is planned for and called
missed, since a prediction may be wrong and a data sheet is not.
"""

from firsttoken.planning.kv_formats import kv_format
from firsttoken.planning.memory import kv_bytes_per_token_and_layer, weights_bytes
from firsttoken.planning.timing.attention import attended
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.layout import head_widths
from firsttoken.planning.timing.rank import peak_flops
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts

PROBE = 2048  # tokens of the prompt that a measured stage is held against: enough to fill a GPU


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
    """Seconds to prefill a prompt: 2 FLOPs a parameter and token; 2 a head and pair of tokens for each element of a
    query and of a value.
    """
    new = max(1, prompt_tokens - cached_tokens)
    prefix = prompt_tokens - new
    windowed = _windowed_layers(facts)
    pairs = windowed * attended(prefix, new, facts.sliding_window)
    pairs += (facts.num_hidden_layers - windowed) * attended(prefix, new, None)
    attention = 2.0 * facts.num_attention_heads * sum(head_widths(facts)) * pairs
    computed = (2.0 * active_parameters(facts) * new + attention) / (peak_flops(facts, device) * ranks)
    return max(computed, _weights_seconds(facts, device, ranks))


def decode_floor_seconds(facts: ModelFacts, device: Device, ranks: int, context: int, kv_cache_dtype: str) -> float:
    """Seconds of a decode step of one request: the weights it touches and its own KV are read once.

    `context` in tokens; `kv_cache_dtype` is vLLM's name (auto, fp8, ...). Raises InfeasibleError: unknown KV format.
    """
    kv = kv_format(kv_cache_dtype, 4 if device.cpu else 2)
    token = kv_bytes_per_token_and_layer(facts, ranks, kv.element, kv.scale)
    return _weights_seconds(facts, device, ranks) + token * _seen(facts, context) / device.bandwidth


def least_ratio(model: StepModel, ranks: int, kv_cache_dtype: str, stage: str) -> float:
    """Measured over predicted seconds of a stage (prefill, decode) of `ranks` GPUs below which it would be faster than
    their data sheet allows. 0 where none says what they can do.
    """
    facts, device = model.facts, model.device
    if device.rough:
        return 0.0
    if stage == "prefill":
        return prefill_floor_seconds(facts, device, ranks, PROBE, 0) / model.step_seconds([(0, PROBE)]).seconds
    return decode_floor_seconds(facts, device, ranks, 1, kv_cache_dtype) / model.decode_seconds(1, 1)


def _seen(facts: ModelFacts, context: float) -> float:
    """Tokens that one token attends to, summed over the layers."""
    windowed = _windowed_layers(facts)
    return windowed * min(context, facts.sliding_window or context) + (facts.num_hidden_layers - windowed) * context


def _windowed_layers(facts: ModelFacts) -> int:
    """Layers with a sliding window: all of a model that has one, unless it says how many."""
    if not facts.sliding_window:
        return 0
    return facts.num_hidden_layers if facts.windowed_layers is None else facts.windowed_layers


def _weights_seconds(facts: ModelFacts, device: Device, ranks: int) -> float:
    layers = facts.parameters - facts.embedding_parameters
    element = 4 if device.cpu else 2
    stored = weights_bytes(facts, element) - facts.embedding_parameters * element
    return stored * active_parameters(facts) / layers / ranks / device.bandwidth
