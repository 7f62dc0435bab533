"""What one rank of a model executes: number formats, matrices and widths after the split over GPUs."""

import math
from dataclasses import dataclass

from firsttoken.planning.kv_formats import kv_format
from firsttoken.planning.memory import kv_bytes_per_token_and_layer
from firsttoken.planning.timing.attention import AttentionRates, AttentionShape
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import Efficiencies
from firsttoken.planning.timing.experts import ExpertShape
from firsttoken.planning.timing.gemm import GemmRates
from firsttoken.planning.timing.layout import Layout, head_widths
from firsttoken.planning.types import ModelFacts

# Formats of weights that tensor cores may multiply as they are stored; weights of all others are expanded to 16 bits.
MULTIPLIED = ("fp8", "modelopt", "compressed-tensors")
# Bytes of an 8-bit weight at least: what takes less is 4 bits with scales.
LEAST_EIGHT_BITS = 0.9
# Formats of the KV cache that attention was measured with (accuracy/data); fp8 is vLLM's name for fp8_e4m3.
MEASURED_KV = ("auto", "fp8", "fp8_e4m3")
MXFP4_BYTES = 0.5 + 1 / 32


@dataclass(frozen=True)
class Formats:
    """Rates by what they multiply. `backed`: kernel tables or whole steps were measured in these formats."""

    layers: GemmRates
    experts: GemmRates
    head: GemmRates  # output embedding: 16 bits under every quantisation
    experts_key: str
    backed: bool


def multiplied_in(facts: ModelFacts, device: Device) -> str:
    """In what a product of the layers (MXFP4: of the experts) is computed here: bf16, fp8, int8 or fp4.

    Weights *and* activations must be of that width, and the device have such units; W4A16 and W8A16 are computed in 16
    bits (vLLM: Marlin and Machete kernels).
    """
    if facts.quantization == "mxfp4":
        # Blackwell multiplies MXFP4 by MXFP8 as it is; elsewhere weights are expanded to 16 bits.
        return "fp8" if device.generation == "blackwell" and device.fp8_flops else "bf16"
    if facts.quantization not in MULTIPLIED:
        return "bf16"
    if facts.activations == "fp4" and device.fp4:
        return "fp4"
    if facts.weight_bytes_per_parameter < LEAST_EIGHT_BITS:
        return "bf16"
    rate = {"fp8": device.fp8_flops, "int8": device.int8_flops}.get(facts.activations)
    return facts.activations if rate else "bf16"


def peak_flops(facts: ModelFacts, device: Device) -> float:
    """FLOP/s that no product of the model exceeds here. Infinite for FP4, for which profiles name no rate."""
    rates = {"bf16": device.flops, "fp8": device.fp8_flops, "int8": device.int8_flops}
    return rates.get(multiplied_in(facts, device), math.inf) or device.flops


def formats(facts: ModelFacts, device: Device, found: Efficiencies) -> Formats:
    """How weights are stored and multiplied on this device."""
    element = 4 if device.cpu else 2
    head = _rates(device, found, "bf16", element)
    if not facts.quantization:
        return Formats(head, head, head, "bf16", facts.num_experts is None)
    computed = multiplied_in(facts, device)
    if facts.quantization == "mxfp4":
        return Formats(head, _rates(device, found, computed, MXFP4_BYTES), head, "mxfp4", True)
    if computed == "bf16":
        stored = _rates(device, found, "bf16", facts.weight_bytes_per_parameter)
        four = facts.weight_bytes_per_parameter < LEAST_EIGHT_BITS
        return Formats(stored, stored, head, "int4" if four and "int4" in found.experts else "bf16", False)
    # INT8 and FP4 have no kernel table: at the efficiency of FP8, INT8 of its own peak, FP4 of the peak of FP8, which
    # it is not slower than.
    key = "fp8_block" if facts.weight_group == 128 else "fp8"
    layers = _rates(device, found, key, facts.weight_bytes_per_parameter, integers=computed == "int8")
    experts = "nvfp4" if computed == "fp4" and "nvfp4" in found.experts else "fp8"
    return Formats(layers, layers, head, experts, computed == "fp8")


def _rates(device: Device, found: Efficiencies, key: str, weight_bytes: float, *, integers: bool = False) -> GemmRates:
    eight = key != "bf16"
    peak = (device.int8_flops if integers else device.fp8_flops) if eight else None
    return GemmRates(
        flops=peak or device.flops,
        bandwidth=device.bandwidth,
        processors=device.processors,
        weight_bytes=weight_bytes,
        activation_bytes=1 if eight else (4 if device.cpu else 2),
        efficiency=found.gemm[key],
    )


def attention(
    facts: ModelFacts, device: Device, found: Efficiencies, tensor_parallel: int, kv_cache_dtype: str
) -> tuple[AttentionShape, AttentionShape, AttentionRates]:
    """Shape during prefill and during decode (with MLA they differ), and the rates of both."""
    kv = kv_format(kv_cache_dtype, 4 if device.cpu else 2)
    kv_bytes = kv_bytes_per_token_and_layer(facts, tensor_parallel, kv.element, kv.scale)
    fitted = found.attention["fp8" if kv.element <= 1 else "bf16"]
    # FlashAttention 2 keeps KV in 16 bits; the kernels for other formats, MLA and sinks take decodes apart.
    one_kernel = device.flash_attention_2 and kv.element > 1 and not (facts.kv_lora_rank or facts.attention_sinks)
    rates = AttentionRates(device.flops, device.bandwidth, device.processors, fitted, one_kernel)
    heads = max(1, -(-facts.num_attention_heads // tensor_parallel))
    query_width, value_width = head_widths(facts)
    if facts.kv_lora_rank:
        # Prefill works on expanded heads. Decode has one latent "KV head" that all query heads read: for each token and
        # head, the query on the whole of it and the weighted sum over the part without positions.
        latent = 2 * heads * (2 * facts.kv_lora_rank + (facts.qk_rope_head_dim or 0))
        prefill = AttentionShape(heads, heads, query_width, value_width, kv_bytes)
        return prefill, AttentionShape(heads, 1, query_width, value_width, kv_bytes, None, latent), rates
    kv_heads = max(1, facts.num_key_value_heads // tensor_parallel)
    shape = AttentionShape(heads, min(heads, kv_heads), query_width, value_width, kv_bytes, facts.sliding_window)
    return shape, shape, rates


def unmeasured(
    facts: ModelFacts, found: Formats, fitted: Efficiencies, kv_cache_dtype: str, *, tiled: bool
) -> tuple[str, ...]:
    """What of a model no kernel table of the device's generation covers, in words; empty where all is."""
    said = []
    if not found.backed:
        said.append(f"{facts.quantization} weights" if facts.quantization else "experts in 16 bits")
    elif facts.num_experts and ("experts", found.experts_key) in fitted.borrowed:
        said.append("experts")
    if facts.kv_lora_rank:
        said.append("latent attention (MLA)")
    if kv_cache_dtype not in MEASURED_KV or (kv_cache_dtype != "auto" and ("attention", "fp8") in fitted.borrowed):
        said.append(f"a KV cache in {kv_cache_dtype}")
    if not tiled:
        said.append("untiled attention")
    return tuple(said)


def split(products: tuple[tuple[int, int, str], ...], ranks: int) -> tuple[tuple[int, int], ...]:
    """(outputs, inputs) of each product on one of `ranks` ranks."""
    return tuple(
        (_columns(outputs, how, ranks), -(-inputs // ranks) if how == "rows" else inputs)
        for outputs, inputs, how in products
    )


def _columns(outputs: int, how: str, ranks: int) -> int:
    """On one rank. KV heads are replicated where there are more ranks than heads (vLLM: QKVParallelLinear)."""
    kind, *kv = how.split() or [""]
    if kind != "columns":
        return outputs
    heads, width = map(int, kv) if kv else (0, 0)
    kept = max(1, -(-heads // ranks)) * width
    return -(-(outputs - heads * width) // ranks) + kept


def expert_shape(layout: Layout, hidden: int, ranks: int) -> ExpertShape:
    """Each rank has a slice of every expert."""
    return ExpertShape(
        experts=layout.experts,
        per_token=layout.experts_per_token,
        hidden=hidden,
        width=layout.expert_width / ranks,
        matrices=layout.expert_matrices,
    )


def elementwise_bytes(facts: ModelFacts, layout: Layout, ranks: int) -> float:
    """Traffic of a token in one layer outside products and attention, 16-bit values, on one rank.

    Two norms with the residual (four values in and out for each hidden element), the rotary embedding (queries and keys
    in and out), and the activation between the feed-forward products (up to two values in, one out).
    """
    queries = facts.num_attention_heads * head_widths(facts)[0]
    width = layout.expert_width * layout.experts_per_token if layout.experts else facts.intermediate_size
    return 2 * (2 * 4 * facts.hidden_size + 3 * queries / ranks + 3 * width / ranks)
