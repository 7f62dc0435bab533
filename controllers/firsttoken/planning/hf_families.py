"""What a `model_type` of Hugging Face stands for: one row a family, with what sets it apart from Llama.

Defaults are those of transformers 5.19: a published config.json leaves out keys that equal them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken.planning.hf_bounds import dimension

Config = Mapping[str, Any]

# Our name of a fact -> the keys it goes by, the first that holds something counts; a dot leads into an inner object.
KEYS: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_key_value_heads": (
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "attn_config.kv_n_heads",
    ),
    "head_dim": ("head_dim", "attention_head_dim"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    # model_max_length first: vLLM prefers it where a config has both (Command R).
    "max_position_embeddings": (
        "model_max_length", "max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
    ),
    "tie_word_embeddings": ("tie_word_embeddings",),
    "sliding_window": ("sliding_window",),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "experts_per_token"),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
}  # fmt: skip


def dig(config: Config, path: str) -> Any:
    """The value at a dotted path, None if there is none."""
    node: Any = config
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


# Layers with the sliding window, of so many, where the config has no `layer_types`.
Windows = Callable[[Config, int], int]


def _no_windows(_config: Config, _layers: int) -> int:
    return 0


def _everywhere(_config: Config, layers: int) -> int:
    return layers


def _all_but_every(period: int) -> Windows:
    """Every `period`-th layer sees everything (Gemma 2: 2, Gemma 3: 6, Command R7B: 4)."""

    def windowed(config: Config, layers: int) -> int:
        given = config.get("sliding_window_pattern")
        return layers - layers // (given if isinstance(given, int) and given > 0 else period)

    return windowed


def _late_layers(config: Config, layers: int) -> int:
    """Qwen: layers from max_window_layers on, and only where use_sliding_window says so."""
    if not config.get("use_sliding_window"):
        return 0
    first = config.get("max_window_layers", 28)
    return max(0, layers - first) if isinstance(first, int) else 0


# KV heads of a layer, of so many query heads; None: as KEYS says, or as many as query heads.
KVHeads = Callable[[Config, int], int | None]


def _as_named(_config: Config, _heads: int) -> int | None:
    return None


def _multi_query(config: Config, _heads: int) -> int | None:
    """GPTBigCode: one KV head unless multi_query is off."""
    return 1 if config.get("multi_query", True) else None


def _falcon(config: Config, heads: int) -> int | None:
    """Falcon: the new decoder has num_kv_heads, the old one head or as many as query heads."""
    if config.get("new_decoder_architecture", config.get("model_type") == "RefinedWeb"):
        return None
    return 1 if config.get("multi_query", True) else heads


def _mpt(config: Config, _heads: int) -> int | None:
    return 1 if dig(config, "attn_config.attn_type") == "multiquery_attention" else None


# Weights of an image encoder and of what leads from it to the text model, from vision_config and the text's width.
# Raises InfeasibleError for dimensions that can't be.
Vision = Callable[[Config, Config, int], int]

# Ten times and more what published encoders have: a larger one is a slip or a lie.
_MOST_VISION = {
    "hidden_size": 2**17, "intermediate_size": 2**20, "num_hidden_layers": 1000, "depth": 1000, "patch_size": 1024,
    "image_size": 2**16, "spatial_merge_size": 64,
}  # fmt: skip


def _of(vision: Config, key: str, otherwise: int | None = None) -> int:
    return dimension(vision, f"vision_config.{key}", _MOST_VISION[key], otherwise)


def _tower(vision: Config, matrices: int, layers: str = "num_hidden_layers") -> int:
    hidden, patch = _of(vision, "hidden_size"), _of(vision, "patch_size", 14)
    return _of(vision, layers) * (4 * hidden**2 + matrices * hidden * _of(vision, "intermediate_size")) + (
        patch**2 * 3 * hidden
    )


def _siglip(vision: Config, _config: Config, width: int) -> int:
    """Gemma 3: learned positions, one projection."""
    hidden, side = _of(vision, "hidden_size"), _of(vision, "image_size") // _of(vision, "patch_size")
    return _tower(vision, 2) + side**2 * hidden + hidden * width


def _pixtral(vision: Config, config: Config, width: int) -> int:
    """Mistral 3: patches are merged, then two projections."""
    merge = dimension(config, "spatial_merge_size", _MOST_VISION["spatial_merge_size"], 2)
    hidden = _of(vision, "hidden_size")
    return _tower(vision, 3) + merge**2 * hidden**2 + hidden * width + width**2


def _qwen_vision(vision: Config, _config: Config, width: int) -> int:
    """Qwen 2.5 VL: patches of two frames, a merger of two layers."""
    hidden = _of(vision, "hidden_size")
    merged = _of(vision, "spatial_merge_size", 2) ** 2 * hidden
    second_frame = _of(vision, "patch_size", 14) ** 2 * 3 * hidden
    return _tower(vision, 3, "depth") + second_frame + merged**2 + merged * width


@dataclass(frozen=True)
class Family:
    """What models of one `model_type` have in common."""

    defaults: Mapping[str, Any] = field(default_factory=dict)  # of KEYS' names
    gated: bool = True  # feed-forward with a gate: three matrices
    tied: bool = False  # one matrix for input and output embedding, unless the config says otherwise
    alibi: str = ""  # key that says whether positions are by ALiBi; "always"
    windows: Windows = _no_windows
    kv_heads: KVHeads = _as_named
    feed_forward: str | int = 0  # its width in hidden sizes where none is given: a number, or the key of one
    learned_positions: int | None = None  # rows of a position embedding beyond the maximum length; None: no such matrix
    latent: bool = False  # multi-head latent attention (MLA)
    float16: bool = True  # False: vLLM refuses FP16 (_FLOAT16_NOT_SUPPORTED_MODELS)
    attention_sinks: bool = False
    bidirectional_images: bool = False  # vLLM's MM_PREFIX_LM_MODELS
    rope_stretches: bool = True  # False: max_position_embeddings holds rope's factor already, whatever its type
    text: str = ""  # multimodal: model_type of its text_config where that names none
    vision: Vision | None = None


_QWEN = Family(windows=_late_layers)
_GEMMA = {"head_dim": 256}
_GEMMA_3 = {
    **_GEMMA, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208,
    "max_position_embeddings": 131072, "sliding_window": 4096,
}  # fmt: skip
_DEEPSEEK = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_FALCON = Family(
    {"max_position_embeddings": 2048}, gated=False, tied=True, alibi="alibi", kv_heads=_falcon, feed_forward=4
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "granite": Family(),
    "olmo2": Family(),
    "stablelm": Family(),
    "smollm3": Family(tied=True),
    "mistral": Family({"sliding_window": 4096}, windows=_everywhere),
    "mixtral": Family(windows=_everywhere),
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen3": Family({"head_dim": 128}, windows=_late_layers),
    "qwen3_moe": _QWEN,
    "gemma": Family(_GEMMA, tied=True),
    "gemma2": Family({**_GEMMA, "sliding_window": 4096}, tied=True, windows=_all_but_every(2), float16=False),
    "gemma3_text": Family(_GEMMA_3, tied=True, windows=_all_but_every(6), float16=False, rope_stretches=False),
    "phi": Family(gated=False),
    "phi3": Family(windows=_everywhere),
    "deepseek_v2": Family(_DEEPSEEK, latent=True),
    "deepseek_v3": Family(_DEEPSEEK, latent=True),
    "kimi_k2": Family(_DEEPSEEK, latent=True),
    "glm4": Family({"head_dim": 128}, float16=False),
    "glm4_moe": Family(),
    "gpt_oss": Family({"head_dim": 64, "sliding_window": 128}, windows=_all_but_every(2), attention_sinks=True),
    "cohere": Family(tied=True),
    "cohere2": Family({"sliding_window": 4096}, tied=True, windows=_all_but_every(4)),
    "starcoder2": Family(gated=False, tied=True, windows=_everywhere),
    "falcon": _FALCON,
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "mpt": Family(gated=False, tied=True, alibi="attn_config.alibi", kv_heads=_mpt, feed_forward="expansion_ratio"),
    "bloom": Family({"max_position_embeddings": 2048}, gated=False, tied=True, alibi="always", feed_forward=4),
    "gpt2": Family(gated=False, tied=True, feed_forward=4, learned_positions=0),
    "gpt_bigcode": Family(gated=False, tied=True, kv_heads=_multi_query, feed_forward=4, learned_positions=0),
    "gpt_neox": Family(gated=False),
    "opt": Family(gated=False, tied=True, learned_positions=2),
    "gemma3": Family(text="gemma3_text", vision=_siglip, bidirectional_images=True),
    "mistral3": Family(text="mistral", vision=_pixtral),
    "qwen2_5_vl": Family(text="qwen2_5_vl_text", vision=_qwen_vision),
}
