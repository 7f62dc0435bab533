"""Which attention backend can serve a model on a device, and why not (M4.1; facts: vLLM 0.32's source)."""

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, is_cpu
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import ModelFacts, Reason

AMPERE, HOPPER, BLACKWELL = (8, 0), (9, 0), (10, 0)
FLASHINFER_HEADS = (64, 128, 256, 512)
MLA_BACKENDS = ("FLASHMLA", "TRITON_MLA")


def ruled_out(backend: str, facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    """Why `backend` can't serve this, or None. `cuda` is the compute capability."""
    mla = facts.kv_lora_rank is not None
    if mla != (backend in MLA_BACKENDS):
        return f"{facts.name} {'has' if mla else 'does not have'} latent attention (MLA)"
    if backend == "FLASHMLA":
        return None if cuda[0] in (9, 10) else _needs("9.0 or 10.0", cuda)
    rules = {"FLASH_ATTN": _flash_attn, "FLASHINFER": _flashinfer, "FLEX_ATTENTION": _flex, "TRITON_ATTN": _triton}
    rule = rules.get(backend)
    return rule(facts, cuda, kv_cache_dtype) if rule else None


def choose_backend(
    pinned: str | None, facts: ModelFacts, profile: AcceleratorProfileSpec, kv_cache_dtype: str
) -> tuple[str | None, tuple[Reason, ...]]:
    """The backend to name to vLLM (None: its own choice is right) and why. Raises InfeasibleError for a bad pin."""
    cuda = capability(profile)
    if cuda is None:
        return _outside_cuda(pinned, profile)
    if pinned is not None:
        why = ruled_out(pinned, facts, cuda, kv_cache_dtype)
        if why is not None:
            raise _bad_pin(pinned, why, facts, profile, kv_cache_dtype)
        return pinned, (Reason("AttentionBackend", f"{pinned}, as pinned"),)
    return _choose(facts, profile, cuda, kv_cache_dtype)


def _choose(
    facts: ModelFacts, profile: AcceleratorProfileSpec, cuda: tuple[int, int], kv_cache_dtype: str
) -> tuple[str | None, tuple[Reason, ...]]:
    mla = facts.kv_lora_rank is not None
    if mla and cuda < HOPPER:
        return _forced("TRITON_MLA", f"the other MLA kernels need compute capability 9.0, {profile.product} has", cuda)
    if not mla and cuda < AMPERE:
        text = f"FLASH_ATTN and FLASHINFER need compute capability 8.0, {profile.product} has"
        return _forced("TRITON_ATTN", text, cuda)
    if facts.alibi and cuda[0] == BLACKWELL[0]:
        text = "vLLM tries FLASHINFER first, which is not verified with ALiBi, on compute capability"
        return _forced("FLASH_ATTN", text, cuda)
    if facts.alibi:
        text = f"vLLM's own choice, FLASH_ATTN, serves the ALiBi positions of {facts.name}; FLEX_ATTENTION can't"
        return None, (Reason("AttentionBackend", text),)
    why = None if mla else ruled_out("FLASH_ATTN", facts, cuda, kv_cache_dtype)
    if why is not None:
        return None, (Reason("AttentionBackend", f"FLASH_ATTN is ruled out: {why}; vLLM takes its next choice"),)
    return None, ()


def _forced(backend: str, text: str, cuda: tuple[int, int]) -> tuple[str, tuple[Reason, ...]]:
    return backend, (Reason("AttentionBackend", f"{backend}: {text} {cuda[0]}.{cuda[1]}"),)


def _outside_cuda(pinned: str | None, profile: AcceleratorProfileSpec) -> tuple[str | None, tuple[Reason, ...]]:
    if pinned is None:
        return None, ()
    if is_cpu(profile):
        message = (
            f"spec.engine.pins.attentionBackend is {pinned}, a GPU's kernel, but this is {profile.product}: unset it"
        )
        raise InfeasibleError("AttentionBackend", message)
    return pinned, (Reason("AttentionBackend", f"{pinned}, as pinned; not checked for {profile.product}"),)


def _bad_pin(
    pinned: str, why: str, facts: ModelFacts, profile: AcceleratorProfileSpec, kv_cache_dtype: str
) -> InfeasibleError:
    cuda = capability(profile) or AMPERE
    able = [
        b
        for b in ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLASHMLA", "TRITON_MLA")
        if ruled_out(b, facts, cuda, kv_cache_dtype) is None
    ]
    return InfeasibleError(
        "AttentionBackend",
        f"spec.engine.pins.attentionBackend is {pinned}, which can't serve {facts.name} on {profile.product}: {why}; "
        f"pin one of {', '.join(able)}, or none",
        {"spec.engine.pins.attentionBackend": able[0]} if able else {},
    )


def _needs(wanted: str, cuda: tuple[int, int]) -> str:
    return f"it needs compute capability {wanted}, here it is {cuda[0]}.{cuda[1]}"


def _flash_attn(facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if cuda < AMPERE:
        return _needs("8.0", cuda)
    if facts.head_dim % 8 or facts.head_dim > 256:
        return f"head size {facts.head_dim} is not a multiple of 8 up to 256"
    if _fp8(kv_cache_dtype) and cuda[0] not in (9, 10):
        return f"it reads an FP8 KV cache on compute capability 9.0 and 10.0 only, here it is {cuda[0]}.{cuda[1]}"
    return None


def _flashinfer(facts: ModelFacts, cuda: tuple[int, int], _kv_cache_dtype: str) -> str | None:
    if not AMPERE <= cuda <= (12, 1):
        return _needs("8.0 to 12.1", cuda)
    if facts.head_dim not in FLASHINFER_HEADS:
        return f"head size {facts.head_dim} is not one of 64, 128, 256, 512"
    return "it is not verified with ALiBi" if facts.alibi else None


def _flex(facts: ModelFacts, _cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if facts.alibi:
        return "it has no ALiBi"
    return "it has no FP8 KV cache" if _fp8(kv_cache_dtype) else None


def _triton(facts: ModelFacts, _cuda: tuple[int, int], _kv_cache_dtype: str) -> str | None:
    return f"head size {facts.head_dim} is below 32" if facts.head_dim < 32 else None


def _fp8(kv_cache_dtype: str) -> bool:
    return kv_cache_dtype.startswith("fp8")
