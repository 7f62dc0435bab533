"""Which attention backend can serve a model on a device, and why not (M4.1)."""

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, is_cpu
from firsttoken.planning.backends import (
    AMPERE,
    FLASH_CLASS,
    HOPPER,
    able_backends,
    beyond_flashinfer,
    preference,
    ruled_out,
)
from firsttoken.planning.kv_formats import PIN as KV_PIN
from firsttoken.planning.kv_formats import check_outside_cuda
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import ModelFacts, Reason
from firsttoken.planning.words import count

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
        return _choose_latent(facts, profile, cuda)
    return _choose(facts, profile, cuda, kv_cache_dtype, able)


def loses_flash(facts: ModelFacts, profile: AcceleratorProfileSpec, kv_cache_dtype: str) -> bool:
    """Whether another KV format leaves no FlashAttention-class kernel where today's has one: no forecast knows that."""
    cuda = capability(profile)
    if cuda is None or facts.kv_lora_rank is not None:
        return False
    now, then = (set(FLASH_CLASS) & set(able_backends(facts, cuda, dtype)) for dtype in ("auto", kv_cache_dtype))
    return bool(now) and not then


def _choose_latent(facts: ModelFacts, profile: AcceleratorProfileSpec, cuda: tuple[int, int]) -> Choice:
    out = f"FLASH_ATTN and FLASHINFER are ruled out: {facts.name} has latent attention (MLA)"
    if cuda < HOPPER:
        text = f"{out}; the other MLA kernels need compute capability 9.0, {profile.product} has"
        return _forced("TRITON_MLA", text, cuda)
    return None, (Reason("AttentionBackend", f"{out}; vLLM takes its first MLA kernel for {profile.product}"),)


def _choose(
    facts: ModelFacts, profile: AcceleratorProfileSpec, cuda: tuple[int, int], kv_cache_dtype: str, able: list[str]
) -> Choice:
    if cuda < AMPERE:
        text = f"FLASH_ATTN and FLASHINFER need compute capability 8.0, {profile.product} has"
        return _forced(able[0], text, cuda)
    # What vLLM does not check of itself, it has to be told; what it does, it chooses better (kernels of two backends).
    named = able[0] if beyond_flashinfer(facts) and able[0] != preference(cuda)[0] else None
    named = None if facts.bidirectional_images and able[0] not in FLASH_CLASS else named
    why = {b: ruled_out(b, facts, cuda, kv_cache_dtype) for b in FLASH_CLASS}
    out = "; ".join(f"{backend} is ruled out: {said}" for backend, said in why.items() if said is not None)
    alone = "" if named else ", as vLLM chooses itself"
    if facts.bidirectional_images and able[0] not in FLASH_CLASS:
        alone = ", alone or paired with another for the steps that have no image, as vLLM chooses itself"
    text = f"{able[0]}{alone}: {_serves(facts, cuda)}"
    return named, (Reason("AttentionBackend", f"{text}; {out}" if out else text),)


def _serves(facts: ModelFacts, cuda: tuple[int, int]) -> str:
    """What a kernel has to fit (M4.1)."""
    heads = f"{facts.num_attention_heads} heads of {facts.head_dim} on {count(facts.num_key_value_heads, 'KV head')}"
    positions = ", ALiBi positions (FLEX_ATTENTION can't)" if facts.alibi else ""
    window = f", a window of {facts.sliding_window} tokens" if facts.sliding_window else ""
    return f"{heads}{positions}{window}, compute capability {cuda[0]}.{cuda[1]}"


def _forced(backend: str, text: str, cuda: tuple[int, int]) -> Choice:
    return backend, (Reason("AttentionBackend", f"{backend}: {text} {cuda[0]}.{cuda[1]}"),)


def _outside_cuda(pinned: str | None, profile: AcceleratorProfileSpec) -> Choice:
    if pinned is None:
        own = f"vLLM's own choice for {profile.product}: FLASH_ATTN and FLASHINFER, as planned here, are CUDA's"
        return None, (Reason("AttentionBackend", own),)
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
