"""The matrices of a model, from its shape: what one layer multiplies, counted over all ranks.

Facts given inline say neither how many experts are shared or layers dense, nor always whether the feed-forward layer is
gated; those of measured models nothing of MLA's inner widths. The published parameter count does: of the layouts in
use, the one that comes nearest to it is taken (`matrices`, `dense layers`, `shared experts`, `query rank`).
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

from firsttoken.planning.types import ModelFacts

# Widths of a head in DeepSeek's V2, V3 and R1 and in Kimi K2, the models with MLA: without and with rotary part, value.
MLA_NOPE_WIDTH = 128
MLA_VALUE_WIDTH = 128
MLA_ROPE_WIDTH = 64
MLA_QUERY_RANKS = (None, 1536)
MATRICES = (3, 2)  # gated or plain feed-forward layer
DENSE_LAYERS = (0, 1, 2, 3)
SHARED_EXPERTS = (0, 1, 2)


@dataclass(frozen=True)
class Layout:
    """What the layers of a model hold. `split`: "columns" or "rows" by tensor parallelism, "" replicated; columns of
    which some belong to KV heads, by `with_kv_heads`.
    """

    attention: tuple[tuple[int, int, str], ...]  # (outputs, inputs, split) of each product around attention
    dense: tuple[tuple[int, int, str], ...]  # of a dense feed-forward layer
    shared: tuple[tuple[int, int, str], ...]  # of the experts every token passes
    dense_layers: int
    expert_layers: int
    experts: int
    experts_per_token: int
    expert_width: int
    expert_matrices: int


@cache
def layout(facts: ModelFacts) -> Layout:
    """The layout that explains `facts.parameters` best."""
    dense, shared = facts.dense_layers, facts.shared_experts
    choices = product(
        MATRICES if facts.gated is None else ((3,) if facts.gated else (2,)),
        (DENSE_LAYERS if dense is None else (dense,)) if facts.num_experts else (facts.num_hidden_layers,),
        (SHARED_EXPERTS if shared is None else (shared,)) if facts.num_experts else (0,),
        MLA_QUERY_RANKS if facts.kv_lora_rank and not facts.qk_nope_head_dim else (facts.q_lora_rank,),
    )
    candidates = [_layout(facts, *choice) for choice in choices if choice[1] <= facts.num_hidden_layers]
    wanted = facts.parameters - facts.embedding_parameters
    return min(candidates, key=lambda c: abs(_parameters(facts, c) - wanted))


def head_widths(facts: ModelFacts) -> tuple[int, int]:
    """Elements of a query (and key) and of a value in one head during prefill."""
    if facts.kv_lora_rank:
        nope, rope = facts.qk_nope_head_dim or MLA_NOPE_WIDTH, facts.qk_rope_head_dim or MLA_ROPE_WIDTH
        return nope + rope, facts.v_head_dim or MLA_VALUE_WIDTH
    return facts.head_dim, facts.head_dim


def _layout(facts: ModelFacts, matrices: int, dense_layers: int, shared: int, query_rank: int | None) -> Layout:
    hidden, expert = facts.hidden_size, facts.moe_intermediate_size or facts.intermediate_size
    return Layout(
        attention=_latent(facts, query_rank) if facts.kv_lora_rank else _grouped(facts),
        dense=_feed_forward(hidden, facts.intermediate_size, matrices),
        shared=_feed_forward(hidden, expert * shared, matrices) if shared else (),
        dense_layers=dense_layers,
        expert_layers=facts.num_hidden_layers - dense_layers,
        experts=facts.num_experts or 0,
        experts_per_token=min(facts.num_experts_per_tok or 1, facts.num_experts or 1),
        expert_width=expert,
        expert_matrices=matrices,
    )


def with_kv_heads(heads: int, width: int) -> str:
    """A split of columns of which `width` belong to each of `heads` KV heads: every rank has one head at least."""
    return f"columns {heads} {width}"


def _grouped(facts: ModelFacts) -> tuple[tuple[int, int, str], ...]:
    queries = facts.num_attention_heads * facts.head_dim
    keys_and_values = 2 * facts.num_key_value_heads * facts.head_dim
    return (
        (queries + keys_and_values, facts.hidden_size, with_kv_heads(facts.num_key_value_heads, 2 * facts.head_dim)),
        (facts.hidden_size, queries, "rows"),
    )


def _latent(facts: ModelFacts, query_rank: int | None) -> tuple[tuple[int, int, str], ...]:
    """MLA. Keys and values come from the latent vector; in decode the same matrix is applied to queries and outputs."""
    heads, rank = facts.num_attention_heads, facts.kv_lora_rank or 0
    query_width, value_width = head_widths(facts)
    queries = heads * query_width
    down = rank + (facts.qk_rope_head_dim or MLA_ROPE_WIDTH)
    if query_rank:
        first = ((query_rank + down, facts.hidden_size, ""), (queries, query_rank, "columns"))
    else:
        first = ((queries, facts.hidden_size, "columns"), (down, facts.hidden_size, ""))
    return (
        *first,
        (heads * ((facts.qk_nope_head_dim or MLA_NOPE_WIDTH) + value_width), rank, "columns"),
        (facts.hidden_size, heads * value_width, "rows"),
    )


def _feed_forward(hidden: int, width: int, matrices: int) -> tuple[tuple[int, int, str], ...]:
    return (((matrices - 1) * width, hidden, "columns"), (hidden, width, "rows"))


def _parameters(facts: ModelFacts, layout: Layout) -> int:
    def size(products: tuple[tuple[int, int, str], ...]) -> int:
        return sum(outputs * inputs for outputs, inputs, _ in products)

    experts = layout.experts * layout.expert_matrices * layout.expert_width * facts.hidden_size
    router = layout.experts * facts.hidden_size
    per_expert_layer = experts + router + size(layout.shared) if layout.experts else 0
    sparse = layout.expert_layers * per_expert_layer
    return facts.num_hidden_layers * size(layout.attention) + layout.dense_layers * size(layout.dense) + sparse
