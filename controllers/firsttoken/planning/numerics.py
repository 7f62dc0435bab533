"""Number formats: what weights, activations and KV are kept in, and what a device can't do."""

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import can_serve_fp8_weights, capability, has_bf16, is_cpu
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import ModelFacts, Reason

# Smallest compute capability of vLLM's kernels for a weight quantisation; FP8 has its own rule.
LEAST_CAPABILITY = {
    "awq": (7, 5), "gptq": (7, 0), "bitsandbytes": (7, 0), "compressed-tensors": (7, 0), "modelopt": (8, 9),
    "mxfp4": (8, 0),
}  # fmt: skip
# Formats whose kernels are not for every vendor; the others are checked by compute capability only.
VENDORS = {"modelopt": ("NVIDIA",), "mxfp4": ("NVIDIA", "AMD")}


@dataclass(frozen=True)
class Numerics:
    """vLLM's --dtype (None: as the model's config says) and why."""

    dtype: str | None
    reasons: tuple[Reason, ...] = ()


def choose_numerics(facts: ModelFacts, profiles: Sequence[AcceleratorProfileSpec]) -> Numerics:
    """One dtype for all roles, since KV that travels between them has one format. Raises InfeasibleError."""
    dtype, reason = _dtype(facts, profiles)
    return Numerics(dtype, (*reason, *_quantization(facts, profiles)))


def _dtype(facts: ModelFacts, profiles: Sequence[AcceleratorProfileSpec]) -> tuple[str | None, tuple[Reason, ...]]:
    if any(is_cpu(p) for p in profiles):
        return "float32", (Reason("Dtype", "float32: it runs on every CPU, BF16 needs AVX512 or AMX"),)
    old = [p.product for p in profiles if not has_bf16(p)]
    if not old:
        return None, ()
    if not facts.float16:
        raise InfeasibleError(
            "Dtype",
            f"{old[0]} has no BF16, and vLLM refuses FP16 for {facts.name}, whose activations overflow it: choose a "
            "GPU of compute capability 8.0 or later",
        )
    return "half", (Reason("Dtype", f"half: {old[0]} has no BF16"),)


def _quantization(facts: ModelFacts, profiles: Sequence[AcceleratorProfileSpec]) -> tuple[Reason, ...]:
    """Whether every device can serve the weights as stored, and what that brings."""
    kind = facts.quantization
    if not kind:
        return ()
    for profile in profiles:
        if not _can_serve(kind, profile):
            raise InfeasibleError(
                "Quantization",
                f"{profile.product} can't serve {kind} weights of {facts.name}: choose another GPU or another format",
            )
    weight_only = [p.product for p in profiles if kind == "fp8" and p.fp8_tflops is None]
    text = f"{kind} weights, {facts.weight_bytes_per_parameter:.2g} byte(s) a parameter, embeddings in 16 bits"
    if kind == "mxfp4":
        text += "; MXFP4 holds the experts, all other layers keep 16 bits"
    if weight_only:
        text += f"; {weight_only[0]} has no FP8 units, so this saves memory and not time"
    if kind == "bitsandbytes":
        text += "; made at start where the checkpoint has 16 bits, by the bitsandbytes package of the engine's image"
    if facts.quantized_here:
        text += "; compare the answers before it gets traffic"
    return (Reason("Quantization", text),)


def _can_serve(kind: str, profile: AcceleratorProfileSpec) -> bool:
    if kind == "fp8":
        return can_serve_fp8_weights(profile)
    if profile.vendor not in VENDORS.get(kind, (profile.vendor,)):
        return False
    cuda, least = capability(profile), LEAST_CAPABILITY.get(kind)
    return least is not None and (cuda is None or cuda >= least)
