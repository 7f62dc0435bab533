"""A model's facts from its config.json: published ones, families by their own keys, and what can't be read."""

import json
from dataclasses import replace
from typing import Any

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.hf_config import essentials, is_config, read_config
from firsttoken.planning.models import catalogue, model_facts, wants_config
from firsttoken.planning.types import ModelFacts
from planning.hf import PUBLISHED, SOMEBODY, config, facts, refused

# A name of its own: the same shape in another format.
VARIANTS = {"qwen3-30b-a3b-fp8": "qwen3-30b-a3b"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_gives_what_the_catalogue_says(name: str) -> None:
    entry = catalogue()[VARIANTS.get(name, name)]
    wanted = model_facts(ModelSpec(uri=f"hf://{entry.uris[0]}"))
    assert isinstance(wanted, ModelFacts)
    found = facts(config(name))
    assert found.parameters == pytest.approx(entry.parameters, rel=0.01)
    if name in VARIANTS:
        found = replace(found, quantization="", weight_bytes_per_parameter=2.0, weight_group=None)
    assert replace(found, name=entry.name, source=wanted.source) == wanted


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_essentials_are_few_and_say_the_same(name: str) -> None:
    whole = {**config(name), "auto_map": {"AutoConfig": "x"}, "id2label": dict.fromkeys(map(str, range(1000)), "y")}
    kept = essentials(whole)
    assert read_config(kept) == read_config(whole)
    assert essentials(kept) == kept
    assert len(json.dumps(kept)) < 3000


def test_lists_of_layers_without_quantisation_are_left_out() -> None:
    said = {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head"] * 10_000,
        "config_groups": {
            "group_0": {
                "targets": ["layer"] * 10_000,
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64},
            }
        },
    }
    whole = config("llama-3.1-8b", quantization_config=said)
    assert len(json.dumps(essentials(whole))) < 2000
    assert read_config(essentials(whole)) == read_config(whole)


def test_there_is_a_config_of_every_family_that_the_issue_names() -> None:
    types = {config(name)["model_type"] for name in PUBLISHED}
    assert types >= {
        "llama", "qwen2", "qwen3", "qwen3_moe", "mistral", "mixtral", "gemma2", "gemma3_text", "gemma3", "phi3",
        "deepseek_v3", "falcon", "mpt", "bloom",
    }  # fmt: skip


# --- how families say things ---


@pytest.mark.parametrize(
    ("changes", "kv_heads", "alibi"),
    [
        ({}, 1, False),
        ({"multi_query": False}, 71, False),
        ({"multi_query": False, "alibi": True}, 71, True),  # falcon-rw
        ({"new_decoder_architecture": True, "num_kv_heads": 71}, 71, False),
    ],
)
def test_falcon_has_its_own_words_for_kv_heads(changes: dict[str, Any], kv_heads: int, alibi: bool) -> None:
    found = facts(config("falcon-7b", **changes))
    assert (found.num_key_value_heads, found.alibi) == (kv_heads, alibi)


def test_falcon_under_its_first_name() -> None:
    """The repository's first config.json, as RefinedWeb."""
    old = {
        "architectures": ["RWForCausalLM"], "model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128,
        "n_head_kv": 8, "n_layer": 60, "alibi": False, "bias": False, "parallel_attn": True, "vocab_size": 65024,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert replace(facts(old), source="") == replace(facts(config("falcon-40b")), source="")
    small = {**old, "model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32}
    del small["n_head_kv"]
    assert facts({**small, "multi_query": True}).num_key_value_heads == 1


def test_mpt_alibi_and_kv_heads_are_in_attn_config() -> None:
    rotary = config("mpt-7b", attn_config={"alibi": False, "attn_type": "grouped_query_attention", "kv_n_heads": 8})
    assert (facts(rotary).alibi, facts(rotary).num_key_value_heads) == (False, 8)
    multi = config("mpt-7b", attn_config={"alibi": True, "attn_type": "multiquery_attention"})
    assert (facts(multi).alibi, facts(multi).num_key_value_heads) == (True, 1)


@pytest.mark.parametrize(
    ("changes", "window", "layers"),
    [
        ({}, None, None),
        ({"use_sliding_window": True, "sliding_window": 4096}, None, None),  # from layer 28 of 28 on: nowhere
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}, 4096, 8),
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}, 4096, None),
        ({"use_sliding_window": True, "sliding_window": 131072, "max_window_layers": 20}, None, None),
    ],
)
def test_qwen_windows_only_late_layers_and_only_where_it_says_so(
    changes: dict[str, Any], window: int | None, layers: int | None
) -> None:
    found = facts(config("qwen2.5-7b", **changes))
    assert (found.sliding_window, found.windowed_layers) == (window, layers)


@pytest.mark.parametrize(
    ("changes", "window", "layers"),
    [
        ({}, 512, 22),
        ({"sliding_window_pattern": 2}, 512, 13),
        ({"layer_types": ["full_attention"] * 26}, None, None),
        ({"layer_types": ["sliding_attention"] * 26}, 512, None),
        ({"layer_types": ["sliding_attention"] * 20 + ["full_attention"] * 6}, 512, 20),
        ({"layer_types": ["full_attention"]}, 512, 22),  # not one a layer: not believed
    ],
)
def test_gemma_3_windows_all_but_every_sixth_layer(
    changes: dict[str, Any], window: int | None, layers: int | None
) -> None:
    found = facts(config("gemma-3-1b", **changes))
    assert (found.sliding_window, found.windowed_layers) == (window, layers)


def test_a_window_that_is_null_is_none_and_one_left_out_is_the_family_s() -> None:
    assert facts(config("mistral-7b-v0.3")).sliding_window is None
    left_out = {k: v for k, v in config("mistral-7b-v0.3").items() if k != "sliding_window"}
    assert facts(left_out).sliding_window == 4096


def test_a_sparse_text_config_is_filled_with_the_family_s_defaults() -> None:
    found = facts(config("gemma-3-4b"))
    assert (found.num_attention_heads, found.num_key_value_heads, found.head_dim) == (8, 4, 256)
    assert (found.vocab_size, found.max_position_embeddings, found.float16) == (262208, 131072, False)
    text = {**config("gemma-3-4b"), "vision_config": None}
    assert found.parameters - facts(text).parameters == catalogue()["gemma-3-4b"].other_parameters


def test_learned_positions_are_weights() -> None:
    gpt2 = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "vocab_size": 50257,
    }  # fmt: skip
    found = facts(gpt2)
    assert (found.intermediate_size, found.tie_word_embeddings) == (3072, True)
    assert found.parameters == pytest.approx(124_439_808, rel=0.01)
    opt = {
        "model_type": "opt", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "ffn_dim": 3072,
        "max_position_embeddings": 2048, "vocab_size": 50272,
    }  # fmt: skip
    assert facts(opt).parameters == pytest.approx(125_239_296, rel=0.01)


def test_shared_experts_of_another_width_and_dense_layers_are_counted() -> None:
    qwen = {
        "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 2048,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
        "num_experts_per_tok": 4, "vocab_size": 151936, "max_position_embeddings": 8192, "decoder_sparse_step": 1,
        "use_sliding_window": False, "sliding_window": 32768,
    }  # fmt: skip
    assert facts(qwen).parameters == pytest.approx(14_315_784_192, rel=0.01), "Qwen1.5-MoE-A2.7B"
    layout = read_config({**qwen, "decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}).moe
    assert layout is not None
    assert (layout.shared_experts, layout.first_dense_layers) == (4, 14)


@pytest.mark.parametrize(
    ("rope", "longest"),
    [
        (None, 4096),
        ({"type": "linear", "factor": 4.0}, 16384),
        ({"rope_type": "dynamic", "factor": 2}, 8192),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
        ({"type": "yarn", "factor": 40, "original_max_position_embeddings": 2048}, 81920),
        ({"type": "yarn", "factor": 0.25, "original_max_position_embeddings": 4096}, 1024),
        ({"type": "yarn", "original_max_position_embeddings": 2048}, 2048),
        ({"type": "yarn", "factor": 4.0}, 4096),
        ({"type": "longrope", "factor": 32.0, "original_max_position_embeddings": 2048}, 4096),
        ({"type": "su", "factor": 32.0, "original_max_position_embeddings": 2048}, 4096),
        ({"rope_type": "llama3", "factor": 8.0}, 4096),
        ({"type": "linear", "factor": None}, 4096),
        ({"factor": 4.0}, 4096),
        ("linear", 4096),
    ],
)
def test_rope_stretches_the_length_as_vllm_counts_it(rope: Any, longest: int) -> None:
    assert facts({**config("llama-2-7b"), "rope_scaling": rope}).max_position_embeddings == longest
    if isinstance(rope, dict):
        assert facts({**config("llama-2-7b"), "rope_parameters": rope}).max_position_embeddings == longest


def test_yarn_stretches_what_the_model_was_trained_at_and_deepseek_holds_that_already() -> None:
    asked = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    qwen = {**config("qwen2.5-7b"), "max_position_embeddings": 32768}
    assert facts({**qwen, "rope_scaling": asked}).max_position_embeddings == 131072
    deepseek = config("deepseek-v3")
    assert deepseek["rope_scaling"]["original_max_position_embeddings"] * 40 == 163840
    assert facts(deepseek).max_position_embeddings == 163840
    assert essentials({**qwen, "rope_scaling": asked})["rope_scaling"] == asked, "what a record keeps says it too"


@pytest.mark.parametrize("original", [0, -1, 1.5, "many", True])
def test_a_trained_length_that_is_none_is_refused_by_its_name(original: Any) -> None:
    rope = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": original}
    said = refused({**config("llama-2-7b"), "rope_scaling": rope})
    assert "rope_scaling.original_max_position_embeddings" in said.message


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2ForSequenceClassification", "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel",
        "LlamaForRewardModeling", "BertForTokenClassification", "Qwen3Model", "LlamaEmbeddingModel",
    ],
)  # fmt: skip
def test_what_makes_no_tokens_is_refused_in_one_line(name: str) -> None:
    said = refused({**config("qwen2.5-7b"), "architectures": [name]})
    assert said.constraint == "PoolingModel"
    assert name in said.message
    assert "makes no tokens" in said.message
    assert "\n" not in said.message


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BaichuanChatModel", "Qwen2ForCausalLM"])
def test_classes_with_a_head_for_tokens_are_planned_whatever_they_end_with(name: str) -> None:
    assert facts({**config("qwen2.5-7b"), "architectures": [name]}).num_hidden_layers == 28


def test_gemma_3_and_its_like_hold_the_stretched_length_already() -> None:
    assert facts(config("gemma-3-27b")).max_position_embeddings == 131072


# --- who is asked first ---


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ({"uri": SOMEBODY}, True),
        ({"uri": "pvc://claim/Qwen2.5-7B-Instruct"}, True),
        ({"uri": "hf://Qwen/Qwen2.5-7B-Instruct"}, False),
        ({"uri": SOMEBODY, "architecture": {"preset": "qwen3-8b"}}, False),
    ],
)
def test_a_config_counts_where_neither_spec_nor_catalogue_know_the_model(model: dict[str, Any], wanted: bool) -> None:
    spec = ModelSpec.model_validate(model)
    assert wants_config(spec) is wanted
    found = model_facts(spec, config("phi-4"))
    assert isinstance(found, ModelFacts)
    assert (found.vocab_size == 100352) is wanted
    assert found.source.startswith("read from config.json of Phi3ForCausalLM, bfloat16") is wanted


def test_a_folder_s_config_beats_its_name_and_names_follow_the_spec() -> None:
    assert facts(config("phi-4"), uri="pvc://claim/qwen3-8b").name == "qwen3-8b"
    assert facts(config("phi-4"), name="assistant").name == "assistant"


# --- what can't be read ---

JAMBA = {
    "architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16, "vocab_size": 65536,
    "max_position_embeddings": 262144,
}  # fmt: skip


def test_an_unknown_architecture_is_named_with_what_was_read_and_what_is_needed() -> None:
    refusal = refused(JAMBA)
    assert refusal.constraint == "UnknownModel"
    for part in (
        "hf://somebody/model", "JambaForCausalLM (model_type jamba)", "spec.model.architecture.inline",
        "hiddenSize: 4096", "numKeyValueHeads: 8", "numExperts: 16",
        "Not found in it, and needed: intermediateSize. ", "gatedMlp: false",
    ):  # fmt: skip
        assert part in refusal.message, part
    assert "and needed" not in refused({**JAMBA, "intermediate_size": 14336}).message


def test_what_surrounds_a_known_text_model_must_be_known_too() -> None:
    text = config("llama-3.1-8b")
    refusal = refused({"architectures": ["NewVLForConditionalGeneration"], "model_type": "new_vl", "text_config": text})
    assert "NewVLForConditionalGeneration (model_type new_vl with llama)" in refusal.message
    assert "hiddenSize: 4096" in refusal.message
    assert "model_type llama" in refused({**text, "text_config": {"hidden_size": 1}}).message


def test_a_known_family_without_a_needed_field_says_which() -> None:
    value = {k: v for k, v in config("llama-3.1-8b").items() if k not in ("vocab_size", "intermediate_size")}
    message = refused(value).message
    assert "Not found in it, and needed: intermediateSize, vocabSize." in message
    assert "maxPositionEmbeddings: 131072" in message


def test_what_is_a_config_json() -> None:
    assert is_config({"model_type": "llama"})
    assert is_config({"architectures": ["X"]})
    assert not any(is_config(v) for v in ({}, {"hidden_size": 1}, [], "x", None))
