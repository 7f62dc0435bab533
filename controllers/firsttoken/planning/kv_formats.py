"""Formats of the KV cache: what an element takes, and the sentence that says so (facts: vLLM's quantised KV)."""

from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, is_cpu
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Reason

PIN = "spec.engine.pins.kvCacheDtype"


@dataclass(frozen=True)
class KVFormat:
    """Bytes of one element, and of the scale that each key and each value of a token and head has beside it."""

    element: float
    scale: int
    words: str


_FP8 = KVFormat(1, 0, "one byte an element")
_EIGHT_BITS_SCALED = KVFormat(1, 4, "one byte an element and a 4-byte scale for each token and head")
FORMATS = {
    "fp8": _FP8,
    "fp8_e4m3": _FP8,
    "fp8_e5m2": _FP8,
    "fp8_per_token_head": _EIGHT_BITS_SCALED,
    "int8_per_token_head": _EIGHT_BITS_SCALED,
    "int4_per_token_head": KVFormat(0.5, 4, "half a byte an element and a 4-byte scale for each token and head"),
    # An FP8 scale for each block of 16 elements.
    "nvfp4": KVFormat(0.5 + 1 / 16, 0, "0.5625 byte an element, scales included"),
}


def kv_format(name: str, element: int) -> KVFormat:
    """The format vLLM calls `name`; auto is the model's own, `element` bytes. Raises InfeasibleError."""
    if name == "auto":
        return KVFormat(element, 0, f"{element} bytes an element")
    found = FORMATS.get(name)
    if found is None:
        text = f"{PIN} is {name}, which the planner does not know; there are: auto, {', '.join(FORMATS)}"
        raise InfeasibleError("KVCacheDtype", text, {PIN: "auto"})
    return found


def check_outside_cuda(name: str, profile: AcceleratorProfileSpec) -> None:
    """Raises InfeasibleError for a format that a device without CUDA can't keep KV in."""
    if name == "auto" or capability(profile) is not None:
        return
    if is_cpu(profile):
        why = "vLLM keeps KV on a CPU in the model's own format"
    elif name == "nvfp4":
        why = "NVFP4 is NVIDIA's"
    else:
        return
    raise InfeasibleError("KVCacheDtype", f"{PIN} is {name}, but this is {profile.product}: {why}", {PIN: "auto"})


def kv_dtype_reason(pinned: str | None, profile: AcceleratorProfileSpec) -> tuple[Reason, ...]:
    """A quantised KV cache is never the planner's idea: it changes answers (M4.4)."""
    if pinned is None or pinned == "auto":
        return ()
    words = kv_format(pinned, 2).words
    text = f"{pinned} as pinned, {words} on {profile.product}: compare the answers before it gets traffic"
    return (Reason("KVCacheDtype", text),)
