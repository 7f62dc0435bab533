"""Which attention backend can serve a model on a device, and why not (M4.1)."""

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, is_cpu
from firsttoken.planning.backends import AMPERE, BLACKWELL, HOPPER, able_backends, beyond_flashinfer, ruled_out
from firsttoken.planning.kv_formats import PIN as KV_PIN
from firsttoken.planning.kv_formats import check_outside_cuda
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import ModelFacts, Reason

Choice = tuple[str | None, tuple[Reason, ...]]


def choose_backend(
    pinned: str | None, facts: ModelFacts, profile: AcceleratorProfileSpec, kv_cache_dtype: str
) -> Choice:
    """The backend to name to vLLM (None: its own choice is right) and why. Raises InfeasibleError for a bad pin."""
    cuda = capability(profile)
    if cuda is None:
        check_outside_cuda(kv_cache_dtype, profile)
        return _outside_cuda(pinned, profile)
    able = able_backends(facts, cuda, kv_cache_dtype)
    if not able:
        raise _no_kernel(facts, profile, kv_cache_dtype)
    if pinned is not None:
        why = ruled_out(pinned, facts, cuda, kv_cache_dtype)
        if why is not None:
            raise _bad_pin(pinned, why, able, facts, profile)
        return pinned, (Reason("AttentionBackend", f"{pinned}, as pinned"),)
    if facts.kv_lora_rank is not None:
        return _choose_latent(profile, cuda)
    return _choose(facts, profile, cuda, kv_cache_dtype, able)


def _choose_latent(profile: AcceleratorProfileSpec, cuda: tuple[int, int]) -> Choice:
    if cuda < HOPPER:
        return _forced("TRITON_MLA", f"the other MLA kernels need compute capability 9.0, {profile.product} has", cuda)
    return None, ()


def _choose(
    facts: ModelFacts, profile: AcceleratorProfileSpec, cuda: tuple[int, int], kv_cache_dtype: str, able: list[str]
) -> Choice:
    if cuda < AMPERE:
        text = f"FLASH_ATTN and FLASHINFER need compute capability 8.0, {profile.product} has"
        return _forced(able[0], text, cuda)
    why = ruled_out("FLASH_ATTN", facts, cuda, kv_cache_dtype)
    unverified = beyond_flashinfer(facts)
    if unverified and cuda[0] == BLACKWELL[0]:
        text = f"vLLM tries FLASHINFER first, which is not verified with {unverified}, on compute capability"
        return _forced(able[0], text, cuda)
    if facts.alibi and why is None:
        text = f"vLLM's own choice, FLASH_ATTN, serves the ALiBi positions of {facts.name}; FLEX_ATTENTION can't"
        return None, (Reason("AttentionBackend", text),)
    if unverified and why is not None:
        text = f"FLASH_ATTN is ruled out: {why}; FLASHINFER is not verified with {unverified}"
        return able[0], (Reason("AttentionBackend", f"{able[0]}: {text}"),)
    if why is not None:
        return None, (Reason("AttentionBackend", f"FLASH_ATTN is ruled out: {why}; vLLM takes its next choice"),)
    return None, ()


def _forced(backend: str, text: str, cuda: tuple[int, int]) -> Choice:
    return backend, (Reason("AttentionBackend", f"{backend}: {text} {cuda[0]}.{cuda[1]}"),)


def _outside_cuda(pinned: str | None, profile: AcceleratorProfileSpec) -> Choice:
    if pinned is None:
        return None, ()
    if is_cpu(profile):
        message = (
            f"spec.engine.pins.attentionBackend is {pinned}, a GPU's kernel, but this is {profile.product}: unset it"
        )
        raise InfeasibleError("AttentionBackend", message)
    return pinned, (Reason("AttentionBackend", f"{pinned}, as pinned; not checked for {profile.product}"),)


def _no_kernel(facts: ModelFacts, profile: AcceleratorProfileSpec, kv_cache_dtype: str) -> InfeasibleError:
    latent = "latent attention (MLA) of " if facts.kv_lora_rank is not None else ""
    if kv_cache_dtype == "auto":
        text = f"no attention backend serves {latent}{facts.name} on {profile.product}: choose another GPU"
        return InfeasibleError("AttentionBackend", text)
    cuda = capability(profile) or AMPERE
    others = [d for d in ("fp8", "auto") if able_backends(facts, cuda, d)]
    return InfeasibleError(
        "KVCacheDtype",
        f"{KV_PIN} is {kv_cache_dtype}, which no attention backend reads for {latent}{facts.name} on "
        f"{profile.product}: choose {' or '.join(others) or 'another GPU'}",
        {KV_PIN: others[0]} if others else {},
    )


def _bad_pin(
    pinned: str, why: str, able: list[str], facts: ModelFacts, profile: AcceleratorProfileSpec
) -> InfeasibleError:
    return InfeasibleError(
        "AttentionBackend",
        f"spec.engine.pins.attentionBackend is {pinned}, which can't serve {facts.name} on {profile.product}: {why}; "
        f"pin one of {', '.join(able)}, or none",
        {"spec.engine.pins.attentionBackend": able[0]},
    )
