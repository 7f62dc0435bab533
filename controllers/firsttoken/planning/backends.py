"""What each attention backend of vLLM can't serve (facts: vLLM 0.32's source, `validate_configuration` of each backend
and `get_flash_attn_version`), and which it would take first.
"""

from firsttoken.planning.types import ModelFacts

AMPERE, HOPPER, BLACKWELL = (8, 0), (9, 0), (10, 0)
FLASHINFER_HEADS = (64, 128, 256, 512)
# Major compute capabilities with a kernel, and whether it reads an FP8 KV cache; () is any.
MLA_BACKENDS: dict[str, tuple[tuple[int, ...], bool]] = {
    "FLASHMLA": ((9, 10), True),
    "FLASH_ATTN_MLA": ((9,), False),
    "FLASHINFER_MLA": ((10,), True),
    "CUTLASS_MLA": ((10,), True),
    "TRITON_MLA": ((), True),
}
BACKENDS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
FLASH_CLASS = ("FLASH_ATTN", "FLASHINFER")  # tiled kernels made for one generation of GPU each
# FlashAttention 3 and 4 by major compute capability; everywhere else, and where they can't, it is FlashAttention 2.
FLASH_VERSIONS = {9: 3, 10: 4}
FLASH_4_HEADS = 128  # beyond it Blackwell's tensor memory is too small; 256 has a kernel of its own
SINKS_FLASHINFER = (9, 10, 12)  # major compute capabilities of its kernels with attention sinks
# What kernels other than FLASHINFER and TRITON_ATTN mean by an FP8 KV cache.
E4M3 = ("fp8", "fp8_e4m3")
PER_TENSOR_FP8 = (*E4M3, "fp8_e5m2")


def able_backends(facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> list[str]:
    """The backends that can serve this, the preferred first."""
    return [b for b in (*preference(cuda), *MLA_BACKENDS) if ruled_out(b, facts, cuda, kv_cache_dtype) is None]


def preference(cuda: tuple[int, int]) -> tuple[str, ...]:
    """The order in which vLLM tries backends for attention that is not latent."""
    first, second, *rest = BACKENDS
    return (second, first, *rest) if cuda[0] == BLACKWELL[0] else BACKENDS


def ruled_out(backend: str, facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    """Why `backend` can't serve this, or None. `cuda` is the compute capability."""
    rules = {"FLASH_ATTN": _flash_attn, "FLASHINFER": _flashinfer, "FLEX_ATTENTION": _flex, "TRITON_ATTN": _triton}
    rule = rules.get(backend)
    if rule is None and backend not in MLA_BACKENDS:
        return "the planner does not know it"
    mla = facts.kv_lora_rank is not None
    if mla != (backend in MLA_BACKENDS):
        return f"{facts.name} {'has' if mla else 'does not have'} latent attention (MLA)"
    return rule(facts, cuda, kv_cache_dtype) if rule else _latent(backend, cuda, kv_cache_dtype)


def beyond_flashinfer(facts: ModelFacts) -> str:
    """What of the model vLLM gives to FLASHINFER although it is not verified with it, or ""."""
    return "ALiBi" if facts.alibi else "a sliding window" if facts.sliding_window else ""


def flash_version(facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str = "auto") -> tuple[int, str]:
    """FlashAttention's version that FLASH_ATTN runs as, and why it is 2 where the GPU has a newer one, else ""."""
    newest, head = FLASH_VERSIONS.get(cuda[0], 2), facts.head_dim
    if newest > 2 and facts.alibi:
        return 2, f"FlashAttention {newest} has no ALiBi"
    own_kernel = head == 256 and kv_cache_dtype == "auto" and not (facts.attention_sinks or facts.bidirectional_images)
    if newest == 4 and head > FLASH_4_HEADS and not own_kernel:
        return 2, f"FlashAttention 4 does not serve this with heads of {head}"
    return newest, ""


def _needs(wanted: str, cuda: tuple[int, int]) -> str:
    return f"it needs compute capability {wanted}, here it is {cuda[0]}.{cuda[1]}"


def _no_kv(kv_cache_dtype: str) -> str:
    return f"it has no {'FP8' if kv_cache_dtype in PER_TENSOR_FP8 else kv_cache_dtype} KV cache"


def _latent(backend: str, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    majors, fp8 = MLA_BACKENDS[backend]
    if majors and cuda[0] not in majors:
        return _needs(" or ".join(f"{major}.0" for major in majors), cuda)
    if kv_cache_dtype == "auto" or (fp8 and kv_cache_dtype in E4M3):
        return None
    return f"it has no {kv_cache_dtype} KV cache" if fp8 else _no_kv(kv_cache_dtype)


def _flash_attn(facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if cuda < AMPERE:
        return _needs("8.0", cuda)
    if facts.head_dim % 8 or facts.head_dim > 256:
        return f"head size {facts.head_dim} is not a multiple of 8 up to 256"
    if kv_cache_dtype not in ("auto", *E4M3):
        return f"it has no {kv_cache_dtype} KV cache"
    version, older = flash_version(facts, cuda, kv_cache_dtype)
    if facts.bidirectional_images and version < 4:
        return (
            "an image's tokens see each other in both directions, for which it needs FlashAttention 4 and smaller heads"
        )
    here = f"here it is {cuda[0]}.{cuda[1]}"
    if facts.attention_sinks and cuda[0] not in FLASH_VERSIONS:
        return f"it has attention sinks on compute capability 9.0 and 10.0 only, {here}"
    if kv_cache_dtype == "auto" or version > 2:
        return None
    if older:
        return f"it runs as FlashAttention 2, which has no FP8 KV cache ({older})"
    return f"it reads an FP8 KV cache on compute capability 9.0 and 10.0 only, {here}"


def _flashinfer(facts: ModelFacts, cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if not AMPERE <= cuda <= (12, 1):
        return _needs("8.0 to 12.1", cuda)
    if facts.head_dim not in FLASHINFER_HEADS:
        return f"head size {facts.head_dim} is not one of 64, 128, 256, 512"
    if kv_cache_dtype == "nvfp4" and cuda[0] != BLACKWELL[0] and (facts.head_dim == 64 or facts.attention_sinks):
        what = "heads of 64" if facts.head_dim == 64 else "attention sinks"
        return f"it reads an nvfp4 KV cache with {what} on compute capability 10.0 only, here it is {cuda[0]}.{cuda[1]}"
    if kv_cache_dtype not in ("auto", "nvfp4", *PER_TENSOR_FP8):
        return _no_kv(kv_cache_dtype)
    if facts.alibi:
        return "it computes without ALiBi"
    if facts.bidirectional_images:
        return "it has no attention in both directions inside an image"
    if facts.attention_sinks and cuda[0] not in SINKS_FLASHINFER:
        return f"it has no attention sinks on compute capability {cuda[0]}.{cuda[1]}"
    return "it is not verified with a sliding window" if facts.sliding_window else None


def _flex(facts: ModelFacts, _cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if facts.alibi:
        return "it has no ALiBi"
    if facts.attention_sinks:
        return "it has no attention sinks"
    return None if kv_cache_dtype == "auto" else _no_kv(kv_cache_dtype)


def _triton(facts: ModelFacts, _cuda: tuple[int, int], kv_cache_dtype: str) -> str | None:
    if kv_cache_dtype == "nvfp4":
        return _no_kv(kv_cache_dtype)
    return f"head size {facts.head_dim} is below 32" if facts.head_dim < 32 else None
