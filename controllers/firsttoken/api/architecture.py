"""InferenceService spec, the shape of a model that is not in the catalogue."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, PositiveInt, Rule, Rules

Tokens = PositiveInt


class InlineArchitecture(ApiModel):
    """Facts of a model that is not in the catalogue, named as in its Hugging Face config.json."""

    hidden_size: Annotated[PositiveInt, Field(description="Width of the residual stream.")]
    num_hidden_layers: Annotated[int, Field(ge=1, le=1000, description="Transformer layers.")]
    num_attention_heads: Annotated[int, Field(ge=1, le=4096, description="Query heads a layer.")]
    num_key_value_heads: Annotated[
        int | None, Field(ge=1, le=4096, description="KV heads a layer (GQA, MQA); default: the query heads.")
    ] = None
    head_dim: Annotated[
        int | None,
        Field(ge=8, le=1024, description="Elements of a head; default: hiddenSize / numAttentionHeads."),
    ] = None
    intermediate_size: Annotated[PositiveInt, Field(description="Width of the (dense) feed-forward layer.")]
    vocab_size: Annotated[PositiveInt, Field(description="Rows of the embedding.")]
    max_position_embeddings: Annotated[Tokens, Field(description="Longest sequence the model was made for, tokens.")]
    tie_word_embeddings: Annotated[bool, Field(description="Input and output embedding share their weights.")] = False
    gated_mlp: Annotated[bool, Field(description="Feed-forward with a gate (SwiGLU): three matrices, not two.")] = True
    sliding_window: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="Attention window in tokens, if every layer has one.")
    ] = None
    alibi: Annotated[
        bool, Field(description="Positions by ALiBi (MPT, BLOOM, Falcon-RW; not Falcon-7B): rules out some kernels.")
    ] = False
    num_experts: Annotated[int | None, Field(ge=2, le=4096, description="Experts a layer (MoE).")] = None
    num_experts_per_tok: Annotated[
        int | None, Field(ge=1, le=4096, description="Experts each token is sent to (MoE).")
    ] = None
    moe_intermediate_size: Annotated[
        int | None, Field(ge=1, le=2**31 - 1, description="Width of one expert; default: intermediateSize.")
    ] = None
    parameters: Annotated[
        int | None, Field(ge=1, le=10**14, description="Published parameter count; replaces the computed one.")
    ] = None

    # Rules are evaluated although a value is out of its bounds, so they must not divide by zero.
    RULES: ClassVar[Rules] = (
        Rule(
            "architecture-moe-pair",
            "has(self.numExperts) == has(self.numExpertsPerTok)",
            "numExperts and numExpertsPerTok belong together: give both for a mixture of experts, or neither",
        ),
        Rule(
            "architecture-kv-heads",
            "!has(self.numKeyValueHeads) || self.numKeyValueHeads < 1"
            " || self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numKeyValueHeads must divide numAttentionHeads: copy both from the model's config.json",
            ".numKeyValueHeads",
        ),
        Rule(
            "architecture-head-dim",
            "has(self.headDim) || self.numAttentionHeads < 1 || self.hiddenSize % self.numAttentionHeads == 0",
            "numAttentionHeads does not divide hiddenSize: give headDim, as in the model's config.json",
            ".headDim",
        ),
        Rule(
            "architecture-experts",
            "!has(self.numExperts) || !has(self.numExpertsPerTok) || self.numExpertsPerTok <= self.numExperts",
            "numExpertsPerTok is above numExperts: copy both from the model's config.json",
            ".numExpertsPerTok",
        ),
        Rule(
            "architecture-expert-width",
            "!has(self.moeIntermediateSize) || has(self.numExperts)",
            "moeIntermediateSize belongs to a mixture of experts: give numExperts too, or remove it",
            ".moeIntermediateSize",
        ),
    )


class Architecture(ApiModel):
    """Where the planner takes the model's shape from: a catalogue entry or facts given here."""

    preset: Annotated[
        str | None, Field(min_length=1, max_length=96, description="Name in Firsttoken's model catalogue.")
    ] = None
    inline: Annotated[InlineArchitecture | None, Field(description="Facts of a model not in the catalogue.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "architecture-one-of",
            "has(self.preset) != has(self.inline)",
            "set exactly one of preset (a name in the catalogue) and inline (facts from config.json)",
        ),
    )
