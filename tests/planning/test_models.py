"""The model catalogue against published counts, and how a model is found."""

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.memory import weights_bytes
from firsttoken.planning.models import CatalogueEntry, catalogue, model_facts
from firsttoken.planning.types import Infeasible, ModelFacts
from planning.specs import TINY


def facts(**model: object) -> ModelFacts:
    outcome = model_facts(ModelSpec.model_validate(model))
    assert isinstance(outcome, ModelFacts), outcome
    return outcome


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda e: e.name)
def test_computed_parameters_are_within_one_percent_of_the_published_count(entry: CatalogueEntry) -> None:
    assert entry.computed_parameters == pytest.approx(entry.parameters, rel=0.01)


FAMILIES = {
    "Llama 2": "llama-2-7b", "Llama 3": "llama-3-8b", "Llama 3.1": "llama-3.1-405b", "Llama 3.2": "llama-3.2-1b",
    "Llama 3.3": "llama-3.3-70b", "Qwen 2.5": "qwen2.5-7b", "Qwen 3": "qwen3-8b", "Qwen 3 MoE": "qwen3-30b-a3b",
    "Mistral": "mistral-7b-v0.3", "Mixtral": "mixtral-8x7b", "Gemma 2": "gemma-2-9b", "Gemma 3": "gemma-3-27b",
    "Phi-4": "phi-4", "DeepSeek V3 and R1": "deepseek-v3", "Falcon": "falcon-7b", "MPT": "mpt-7b",
    "BLOOM": "bloom-176b", "gpt-oss": "gpt-oss-120b",
}  # fmt: skip


@pytest.mark.parametrize(("family", "preset"), FAMILIES.items())
def test_the_catalogue_has_every_family(family: str, preset: str) -> None:
    assert preset in catalogue(), family


def test_windows_of_some_layers_are_counted_and_a_window_needs_a_shape_that_has_one() -> None:
    gemma = facts(uri="hf://google/gemma-3-4b-it")
    assert (gemma.sliding_window, gemma.windowed_layers, gemma.num_hidden_layers) == (1024, 29, 34)
    mistral = facts(uri="hf://mistralai/Mistral-7B-v0.1")
    assert (mistral.sliding_window, mistral.windowed_layers) == (4096, None), "all of them"
    for entry in catalogue().values():
        assert (entry.windowed_layers or 0) < entry.shape.num_hidden_layers, entry.name
        assert entry.windowed_layers is None or entry.shape.sliding_window, entry.name


def test_an_image_encoder_counts_and_stays_in_16_bits() -> None:
    extra = catalogue()["mistral-small-3.1-24b"].other_parameters
    text = facts(uri="hf://mistralai/Mistral-Small-24B-Instruct-2501", quantization="fp8")
    seeing = facts(uri="hf://mistralai/Mistral-Small-3.1-24B-Instruct-2503", quantization="fp8")
    assert (seeing.parameters - text.parameters, seeing.other_parameters) == (extra, extra)
    assert weights_bytes(seeing) - weights_bytes(text) == 2 * extra


def test_every_uri_belongs_to_one_entry() -> None:
    uris = [uri.lower() for entry in catalogue().values() for uri in entry.uris]
    assert len(uris) == len(set(uris))


def test_hub_uri_is_found_without_regard_to_case() -> None:
    assert facts(uri="hf://QWEN/qwen2.5-7b-INSTRUCT").name == "qwen2.5-7b"


@pytest.mark.parametrize(
    "uri",
    [
        "pvc://models/Qwen2.5-7B-Instruct",
        "oci://registry.local/models/qwen2.5-7b-instruct:1.0",
        "s3://bucket/qwen2.5-7b/",
    ],
)
def test_other_sources_are_matched_by_their_last_segment_and_say_so(uri: str) -> None:
    found = facts(uri=uri)
    assert found.name == "qwen2.5-7b"
    assert "assumed from the name" in found.source


def test_hub_uri_of_another_organisation_is_not_assumed() -> None:
    outcome = model_facts(ModelSpec(uri="hf://somebody/Qwen2.5-7B-Instruct"))
    assert isinstance(outcome, Infeasible)
    assert outcome.constraint == "UnknownModel"
    assert "qwen2.5-7b" in outcome.message
    assert "numAttentionHeads" in outcome.message


def unknown(uri: str) -> Infeasible:
    outcome = model_facts(ModelSpec(uri=uri))
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.constraint == "UnknownModel"
    return outcome


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("hf://Qwen/Qwen2.5-7B-Instrct", "hf://Qwen/Qwen2.5-7B-Instruct"),
        ("hf://Qwem/Qwen2.5-7B-Instruct", "hf://Qwen/Qwen2.5-7B-Instruct"),
        ("hf://Qwen2.5-7B-Instruct", "hf://Qwen/Qwen2.5-7B-Instruct"),
        ("hf://microsoft/phi4", "hf://microsoft/phi-4"),
    ],
)
def test_a_slip_in_a_repository_s_name_is_answered_with_the_repository(uri: str, meant: str) -> None:
    outcome = unknown(uri)
    assert f"did you mean {meant}?" in outcome.message
    assert next(iter(outcome.nearest.items())) == ("spec.model.uri", meant), "before any preset"
    assert ("an hf:// model is org/name" in outcome.message) == ("/" not in uri.removeprefix("hf://"))


@pytest.mark.parametrize(
    "uri",
    [
        "hf://somebody/Qwen2.5-7B-Instruct",  # another copy
        "hf://Qwen/Qwen2.5-9B-Instruct",  # another size
        "hf://Qwen/Qwen2.5-7B-Instruct-AWQ",  # another format
        "pvc://models/Qwen2.5-7B-Instrct",  # no repository
    ],
)
def test_another_model_is_no_slip_and_is_offered_a_preset_at_most(uri: str) -> None:
    outcome = unknown(uri)
    assert "spec.model.uri" not in outcome.nearest
    assert "did you mean the preset qwen2.5-" in outcome.message


def test_unknown_model_without_near_names_still_says_which_fields_are_needed() -> None:
    outcome = model_facts(ModelSpec(uri="pvc://claim/xyzzy"))
    assert isinstance(outcome, Infeasible)
    assert "hiddenSize" in outcome.message
    assert not outcome.nearest


def test_preset_and_unknown_preset() -> None:
    assert facts(uri="pvc://claim/weights", architecture={"preset": "Llama-3.1-8B"}).name == "llama-3.1-8b"
    outcome = model_facts(ModelSpec.model_validate({"uri": "pvc://c/w", "architecture": {"preset": "llama-3.1-8"}}))
    assert isinstance(outcome, Infeasible)
    assert outcome.nearest == {"spec.model.architecture.preset": "llama-3.1-8b"}


def test_inline_facts_have_defaults_and_a_published_count_replaces_the_computed_one() -> None:
    tiny = facts(uri="pvc://claim/tiny", architecture={"inline": TINY})
    assert (tiny.name, tiny.head_dim, tiny.num_key_value_heads) == ("tiny", 64, 2)
    heads = {k: v for k, v in TINY.items() if k != "numKeyValueHeads"}
    assert facts(uri="pvc://c/tiny", architecture={"inline": heads}).num_key_value_heads == 4
    counted = facts(uri="pvc://c/tiny", architecture={"inline": {**TINY, "parameters": 7_000_000}})
    assert counted.parameters == 7_000_000


def test_quantisation_of_the_spec_and_of_the_published_weights() -> None:
    assert facts(uri="hf://Qwen/Qwen3-8B").weight_bytes_per_parameter == 2
    asked = facts(uri="hf://Qwen/Qwen3-8B", quantization="fp8")
    assert (asked.weight_bytes_per_parameter, asked.quantized_here) == (1, True)
    stored = facts(uri="hf://deepseek-ai/DeepSeek-R1")
    assert (stored.quantization, stored.quantized_here, stored.kv_lora_rank) == ("fp8", False, 512)


def not_so(**model: object) -> Infeasible:
    outcome = model_facts(ModelSpec.model_validate(model))
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.constraint == "Quantization"
    return outcome


@pytest.mark.parametrize("kind", ["awq", "gptq", "compressed-tensors"])
@pytest.mark.parametrize("architecture", [None, {"preset": "qwen3-8b"}, {"inline": TINY}])
def test_a_catalogue_repository_in_16_bits_is_no_quantised_checkpoint(kind: str, architecture: object) -> None:
    refusal = not_so(uri="hf://qwen/qwen3-8b", quantization=kind, architecture=architecture)
    assert "spec.model.architecture.preset to qwen3-8b" in refusal.message
    assert refusal.nearest == {"spec.model.quantization": "fp8"}


def test_a_folder_with_a_model_s_name_is_taken_for_its_16_bit_weights_unless_the_user_says_otherwise() -> None:
    not_so(uri="pvc://models/Qwen3-8B", quantization="awq")
    said = facts(uri="pvc://models/Qwen3-8B", quantization="awq", architecture={"preset": "qwen3-8b"})
    assert (said.quantization, said.weight_group) == ("awq", 128)


def test_a_checkpoint_of_another_repository_is_what_the_user_says() -> None:
    preset = facts(uri="hf://Qwen/Qwen3-8B-AWQ", quantization="awq", architecture={"preset": "qwen3-8b"})
    inline = facts(uri="hf://somebody/tiny-gptq", quantization="gptq", architecture={"inline": TINY})
    assert (preset.weight_group, inline.weight_group) == (128, 128)


def test_what_vllm_quantises_at_start_needs_no_other_checkpoint() -> None:
    assert facts(uri="hf://Qwen/Qwen3-8B", quantization="bitsandbytes").quantized_here
    assert facts(uri="hf://Qwen/Qwen3-8B", quantization="fp8").weight_group is None


def test_published_fp8_is_not_made_into_something_else() -> None:
    not_so(uri="hf://deepseek-ai/DeepSeek-R1", quantization="bitsandbytes")
    same = facts(uri="hf://deepseek-ai/DeepSeek-R1", quantization="fp8")
    assert (same.quantized_here, same.weight_group) == (False, 128)


def test_multi_query_and_alibi_models() -> None:
    falcon = facts(uri="hf://tiiuae/falcon-7b")
    assert falcon.num_key_value_heads == 1
    assert not falcon.alibi, "Falcon 7B and 40B rotate; falcon-rw has ALiBi"
    assert facts(uri="hf://mosaicml/mpt-7b").alibi
