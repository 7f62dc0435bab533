"""The parameter count of a transformer, computed from its shape (the matrices; biases and norms are below 0.1 %)."""

from typing import Annotated

from pydantic import Field

from firsttoken.api.architecture import InlineArchitecture
from firsttoken.api.base import ApiModel

Positive = Annotated[int, Field(ge=1)]


class LatentAttention(ApiModel):
    """Multi-head latent attention (MLA): K and V are kept as one latent vector a token."""

    q_lora_rank: Positive | None = None  # None: queries are projected directly
    kv_lora_rank: Positive
    qk_nope_head_dim: Positive
    qk_rope_head_dim: Positive
    v_head_dim: Positive


class ExpertLayout(ApiModel):
    """What a mixture of experts has beside its routed experts."""

    shared_experts: int = 0
    first_dense_layers: int = 0


def head_dim(shape: InlineArchitecture) -> int:
    """Elements of one head, given or `hidden_size / num_attention_heads`."""
    return shape.head_dim or shape.hidden_size // shape.num_attention_heads


def kv_heads(shape: InlineArchitecture) -> int:
    """KV heads a layer, given or as many as query heads (MHA)."""
    return shape.num_key_value_heads or shape.num_attention_heads


def parameters(shape: InlineArchitecture, mla: LatentAttention | None = None, moe: ExpertLayout | None = None) -> int:
    """Parameters of the whole model, the multi-token-prediction head left out."""
    embedding = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
    attention = _latent_attention(shape, mla) if mla else _attention(shape)
    return embedding + shape.num_hidden_layers * attention + _feed_forward(shape, moe or ExpertLayout())


def experts_and_layers(
    shape: InlineArchitecture, mla: LatentAttention | None = None, moe: ExpertLayout | None = None
) -> tuple[int, int]:
    """Parameters of the routed experts, and of all layers (embeddings left out)."""
    matrices, width = 3 if shape.gated_mlp else 2, shape.moe_intermediate_size or shape.intermediate_size
    sparse_layers = shape.num_hidden_layers - (moe or ExpertLayout()).first_dense_layers
    experts = sparse_layers * (shape.num_experts or 0) * matrices * shape.hidden_size * width
    embedding = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
    return experts, parameters(shape, mla, moe) - embedding


def _attention(shape: InlineArchitecture) -> int:
    query_and_output = 2 * shape.hidden_size * shape.num_attention_heads * head_dim(shape)
    return query_and_output + 2 * shape.hidden_size * kv_heads(shape) * head_dim(shape)


def _latent_attention(shape: InlineArchitecture, mla: LatentAttention) -> int:
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    query_width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    query = mla.q_lora_rank * (hidden + query_width) if mla.q_lora_rank else hidden * query_width
    down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + down + up + heads * mla.v_head_dim * hidden


def _feed_forward(shape: InlineArchitecture, moe: ExpertLayout) -> int:
    matrices = 3 if shape.gated_mlp else 2
    dense = matrices * shape.hidden_size * shape.intermediate_size
    if shape.num_experts is None:
        return shape.num_hidden_layers * dense
    width = shape.moe_intermediate_size or shape.intermediate_size
    experts = (shape.num_experts + moe.shared_experts) * matrices * shape.hidden_size * width
    router = shape.hidden_size * shape.num_experts
    sparse_layers = shape.num_hidden_layers - moe.first_dense_layers
    return moe.first_dense_layers * dense + sparse_layers * (experts + router)
