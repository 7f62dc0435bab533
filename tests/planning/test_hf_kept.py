"""Layers of a quantised checkpoint that stay in 16 bits: how they are named, and what they weigh."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from firsttoken.planning import hf_kept
from firsttoken.planning.hf_config import essentials, read_config
from firsttoken.planning.hf_kept import kept_layers
from firsttoken.planning.memory import weights_bytes
from planning.hf import config, facts

LAYERS = 32
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
ATTENTION = {"query": 32, "key": 32, "value": 32, "output": 32}
FEED_FORWARD = {"gate": 32, "up": 32, "down": 32}


ABSENT = {"experts", "shared", "query_down", "query_up", "latent_down", "latent_up"}  # in a dense model without MLA


def of_llama(kept: Mapping[str, int]) -> dict[str, int]:
    """Counts of the matrices that the model has: a pattern names others as well, and they weigh nothing."""
    return {name: count for name, count in kept.items() if name not in ABSENT}


def said(*ignore: str, key: str = "ignore", **rest: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": NVFP4}}, key: list(ignore), **rest}


@pytest.mark.parametrize(
    ("ignore", "kept"),
    [
        ([], {}),
        (["lm_head", "model.embed_tokens", "re:.*lm_head", "re:.*embed_tokens$"], {}),  # in 16 bits anyway
        (["re:.*self_attn.*"], ATTENTION),
        (["re:.*\\.self_attn\\.(?:q|k|v|o)_proj$"], ATTENTION),
        (["re:.*(q_proj|k_proj)"], {"query": 32, "key": 32}),
        (["re:^model\\.layers\\.\\d+\\.self_attn\\.o_proj$"], {"output": 32}),
        (["re:.*layers.[0-9].mlp.down_proj"], {"down": 10}),
        (["re:model.layers.[3-5].mlp.*"], {"gate": 3, "up": 3, "down": 3}),
        (["re:.*mlp.gate$"], {}),  # the router, not gate_proj
        (["re:.*mlp$"], {}),  # an expression with an end is of this module alone
        (["model.layers.*.self_attn"], ATTENTION),  # transformers: a module stands for all below it
        (["model.layers.0*"], {**dict.fromkeys(ATTENTION, 1), **dict.fromkeys(FEED_FORWARD, 1)}),
        (["*.mlp.down_proj", "*down_proj"], {"down": 32}),
        (["model.layers.0.self_attn.q_proj", "model.layers.7.self_attn.q_proj"], {"query": 2}),
        (["language_model.model.layers.1.mlp.up_proj", "model.language_model.layers.2.mlp.up_proj"], {"up": 2}),
        (["re:language_model.model.layers.4.mlp.up_proj"], {"up": 1}),
        (["self_attn", "layers.31.mlp"], {**ATTENTION, "gate": 1, "up": 1, "down": 1}),
        (["vision_tower.encoder.layers.0.self_attn.q_proj", "re:visual.*", "model.visual.layers.1.mlp*"], {}),
        (["mtp.layers.0.mlp.down_proj", "model.layers.32.mlp.down_proj"], {}),  # beyond the model's own layers
        (["re:(unclosed", "re:.*(a+)+$", "re:(?=.*self_attn).*", "re:[", 7, None], {}),  # not understood
    ],
)  # fmt: skip
def test_lists_of_layers_and_patterns(ignore: list[str], kept: dict[str, int]) -> None:
    assert of_llama(kept_layers(said(*ignore), LAYERS)) == kept


@pytest.mark.parametrize("key", ["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"])
def test_every_method_s_own_key(key: str) -> None:
    assert kept_layers(said("model.layers.3.mlp.down_proj", key=key), LAYERS) == {"down": 1}


def test_the_list_in_modelopt_s_own_file() -> None:
    inner = {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.*.self_attn.*"]}
    value = config("llama-3.1-8b", quantization_config={"producer": {"name": "modelopt"}, "quantization": inner})
    assert of_llama(kept_layers(value["quantization_config"], LAYERS)) == ATTENTION
    assert read_config(essentials(value)) == read_config(value)
    assert facts(value).weight_bytes_per_parameter > 0.5 + 1 / 16


def test_attention_in_16_bits_is_counted_in_16_bits() -> None:
    """Llama 3.1 8B by hand: a layer's attention has 4096 x (4096 + 2 x 1024) + 4096 x 4096 weights."""
    attention, feed_forward = 32 * (4096 * 6144 + 4096 * 4096), 32 * 3 * 4096 * 14336
    head = 2 * 2 * 128_256 * 4096
    quantised, partly = (
        facts(config("llama-3.1-8b", quantization_config=one)) for one in (said(), said("re:.*self_attn.*", "lm_head"))
    )
    assert weights_bytes(quantised) == pytest.approx((attention + feed_forward) * 0.5625 + head, rel=1e-4)
    assert weights_bytes(partly) == pytest.approx(attention * 2 + feed_forward * 0.5625 + head, rel=1e-4)
    assert "in 16 bits" not in quantised.source
    assert "LlamaForCausalLM, bfloat16, 19% of its layers in 16 bits" in partly.source


def test_experts_in_16_bits_are_all_of_a_layer_and_dense_layers_have_none() -> None:
    """DeepSeek V3: 58 layers of 256 experts with three matrices of 7168 x 2048, after 3 dense ones."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    without, kept = (
        facts(config("deepseek-v3", quantization_config={**fp8, "modules_to_not_convert": names}))
        for names in ([], ["re:.*experts.*"])
    )
    experts, shared = 58 * 256 * 3 * 7168 * 2048, 58 * 3 * 7168 * 2048
    assert weights_bytes(kept) - weights_bytes(without) == pytest.approx(experts + shared, rel=1e-4)


def test_latent_attention_has_its_own_matrices() -> None:
    fp8 = {"quant_method": "fp8", "ignored_layers": ["re:.*self_attn.kv_b_proj"]}
    without, kept = (facts(config("deepseek-v3", quantization_config=one)) for one in ({"quant_method": "fp8"}, fp8))
    assert weights_bytes(kept) - weights_bytes(without) == pytest.approx(61 * 512 * 128 * (128 + 128), rel=1e-4)


def test_mxfp4_s_own_list_is_counted_once() -> None:
    listed = facts(config("gpt-oss-20b"))
    bare = facts(config("gpt-oss-20b", quantization_config={"quant_method": "mxfp4"}))
    assert weights_bytes(listed) == weights_bytes(bare)


def test_what_is_not_quantised_at_all_has_nothing_to_keep() -> None:
    plain = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}, "ignore": ["self_attn"]}
    assert facts(config("llama-3.1-8b", quantization_config=plain)).weight_bytes_per_parameter == 2.0


def test_a_record_keeps_counts_instead_of_megabytes() -> None:
    names = [f"model.layers.{i}.mlp.experts.{e}.up_proj" for i in range(32) for e in range(256)]
    value = config("llama-3.1-8b", quantization_config=said("re:.*self_attn.*", *names))
    kept = essentials(value)
    assert of_llama(kept["quantization_config"]["kept_layers"]) == ATTENTION
    assert len(json.dumps(kept)) < 2000
    assert essentials(kept) == kept
    assert read_config(kept) == read_config(value)


def test_counts_of_a_forged_record_are_within_the_model() -> None:
    forged = {"quant_method": "fp8", "kept_layers": {"query": 10**9, "nonsense": 3, "key": "x", "down": -1}}
    assert kept_layers(forged, LAYERS) == {"query": LAYERS}


# --- somebody's patterns bound no work: each list below took from 5 to 43 s of CPU before there were bounds ---


def globs_of(monkeypatch: pytest.MonkeyPatch, *ignore: str) -> list[str]:
    """The globs that a model of 1000 layers is matched against, once the lists are read."""
    seen: list[str] = []
    real = hf_kept.fnmatch.translate

    def translate(glob: str) -> str:
        seen.append(glob)
        return real(glob)

    monkeypatch.setattr(hf_kept.fnmatch, "translate", translate)
    kept_layers(said(*ignore), 1000)
    return seen


HOSTILE = [
    ["?*" * 8000 + str(i) for i in range(254)],
    ["a*" * 500_000],
    ["*" + "?" * 3_000_000],
    ["*a" * 20 + f"Z{i}" for i in range(4000)],
    ["?*" * 20 + f"Z{i}" for i in range(4000)],
    [f"re:({'|'.join(f'a{i}' for i in range(255))}){n}" for n in range(2500)],
]  # fmt: skip


@pytest.mark.parametrize("ignore", HOSTILE, ids=["long", "longest", "marks", "short", "mixed", "expressions"])
def test_globs_are_few_and_short(monkeypatch: pytest.MonkeyPatch, ignore: list[str]) -> None:
    globs = globs_of(monkeypatch, *ignore)
    assert len(globs) * 1000 <= hf_kept.MOST_MATCHES
    for glob in globs:
        assert len(glob.replace("*", "")) <= hf_kept.LONGEST_NAME, "what is longer than any name can't match one"
        assert not any(pair in glob for pair in ("**", "*?")), "stars are not tried against each other"


def test_ways_through_expressions_are_bounded_over_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    understood: list[str] = []
    monkeypatch.setattr(hf_kept, "_glob", understood.append)
    for ignore in (HOSTILE[-1], ["re:" + "(a|b)" * 90 + str(i) for i in range(4000)]):
        understood.clear()
        kept_layers(said(*ignore), 1000)
        assert len(understood) <= 4 * hf_kept.MOST_PATTERNS


def test_a_published_number_of_patterns_is_read_whole() -> None:
    """ModelOpt names modules by globs: two of each layer of a model as deep as DeepSeek V3."""
    names = [f"model.layers.{i}.{part}*" for i in range(61) for part in ("self_attn", "mlp.down")]
    kept = kept_layers(said(*names, "re:.*layers.(0|1|2).mlp.up_proj"), 61)
    assert of_llama(kept) == {**dict.fromkeys(ATTENTION, 61), "down": 61, "up": 3}
