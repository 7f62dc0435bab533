"""What no software can beat, and in what number format products are computed: one rule for floors and time model."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.floors import active_parameters, decode_floor_seconds, prefill_floor_seconds
from firsttoken.planning.hf_quantization import essentials, stored_as
from firsttoken.planning.mig import slice_profile
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.efficiency import efficiencies
from firsttoken.planning.timing.rank import formats, multiplied_in, peak_flops
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from planning import hf
from planning.specs import planned, refused, service
from planning.timing.models import LLAMA_8B, LLAMA_70B, device, facts

GEMMA = "google/gemma-3-27b-it"


def compressed(weight_bits: int, kind: str, inputs: dict[str, Any] | None) -> ModelFacts:
    """Llama 3.1 8B in compressed-tensors."""
    weights: dict[str, Any] = {"num_bits": weight_bits, "type": kind, "strategy": "channel"}
    if weight_bits == 4:
        weights |= {"strategy": "group", "group_size": 16 if kind == "float" else 128}
    group = {"weights": weights, "input_activations": inputs}
    said = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    return hf.facts(hf.config("llama-3.1-8b", quantization_config=said))


W8A8_FP8 = compressed(8, "float", {"num_bits": 8, "type": "float"})
W8A8_INT8 = compressed(8, "int", {"num_bits": 8, "type": "int"})
W8A16 = compressed(8, "int", None)
W4A16 = compressed(4, "int", None)
W4A4 = compressed(4, "float", {"num_bits": 4, "type": "float"})
NVFP4 = hf.facts(hf.config("llama-3.1-8b", quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"}))
FP8 = facts(LLAMA_8B, quantization="fp8", weight_bytes_per_parameter=1.0)
AWQ = facts(LLAMA_8B, quantization="awq", weight_bytes_per_parameter=0.52)


@pytest.mark.parametrize(
    ("shape", "gpu", "wanted"),
    [
        (FP8, "nvidia-h100-80gb", "fp8"),
        (FP8, "nvidia-a100-80gb", "bf16"),
        (W8A8_FP8, "nvidia-l40s", "fp8"),
        (W8A8_INT8, "nvidia-a100-80gb", "int8"),
        (W8A16, "nvidia-h100-80gb", "bf16"),
        (W4A16, "nvidia-h100-80gb", "bf16"),
        (AWQ, "nvidia-h100-80gb", "bf16"),
        (W4A4, "nvidia-h100-80gb", "bf16"),
        (W4A4, "nvidia-b200", "fp4"),
        (NVFP4, "nvidia-h100-80gb", "bf16"),
        (NVFP4, "nvidia-b200", "fp4"),
        (NVFP4, "nvidia-rtx-pro-6000", "fp4"),
        (facts(LLAMA_8B), "nvidia-b200", "bf16"),
    ],
)
def test_products_are_computed_in_eight_bits_only_where_both_sides_have_them(
    shape: ModelFacts, gpu: str, wanted: str
) -> None:
    gpu_device = device(gpu)
    assert multiplied_in(shape, gpu_device) == wanted
    found = formats(shape, gpu_device, efficiencies(gpu_device))
    assert found.layers.flops <= peak_flops(shape, gpu_device), "no time is predicted below its own floor"
    if wanted == "bf16":
        assert found.layers.flops == gpu_device.flops
        assert peak_flops(shape, gpu_device) == gpu_device.flops


@pytest.mark.parametrize("inputs", [None, {"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "int"}])
def test_what_is_kept_of_a_config_says_what_activations_are_quantised_to(inputs: dict[str, Any] | None) -> None:
    group = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "input_activations": inputs}
    said = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"] * 1000}
    whole, kept = ({"quantization_config": q} for q in (said, essentials(said, 32)))
    assert stored_as(kept, 32) == stored_as(whole, 32)
    assert (
        stored_as(kept, 32).activations == {"None": "", "float": "fp8", "int": "int8"}[str(inputs and inputs["type"])]
    )


def test_four_bit_weights_save_memory_and_no_time_of_long_prompts() -> None:
    gpu = device("nvidia-h100-80gb")
    sixteen, four = StepModel(facts(LLAMA_8B), gpu), StepModel(W4A16, gpu)
    assert four.prefill_seconds(8192) >= 0.99 * sixteen.prefill_seconds(8192)
    assert four.interval.prefill > sixteen.interval.prefill, "no table has such kernels"
    assert StepModel(W8A8_FP8, gpu).prefill_seconds(8192) < 0.8 * sixteen.prefill_seconds(8192)


def test_int8_and_fp4_floors_follow_units_that_are_faster_than_those_of_16_bits() -> None:
    a100, b200 = device("nvidia-a100-80gb"), device("nvidia-b200")
    sixteen = prefill_floor_seconds(facts(LLAMA_8B), a100, 1, 8192, 0)
    assert prefill_floor_seconds(W8A8_INT8, a100, 1, 8192, 0) == pytest.approx(sixteen / 2, rel=0.01)
    # No profile names the rate of FP4, so only reading the weights is left.
    weights = decode_floor_seconds(NVFP4, b200, 1, 0, "auto")
    assert prefill_floor_seconds(NVFP4, b200, 1, 8192, 0) == pytest.approx(weights)


def slo(metric: str, milliseconds: float, bucket: str = "all") -> dict[str, Any]:
    return {"metric": metric, "percentile": 95, "promptTokens": bucket, "target": f"{milliseconds:.2f}ms"}


LONG = {"promptTokens": {"p50": 60_000, "p95": 100_000}, "outputTokens": {"p50": 100, "p95": 200}}


def test_the_floor_of_tpot_reads_kv_in_the_type_that_is_pinned() -> None:
    gpu, shape = device("nvidia-h100-80gb"), facts(LLAMA_8B)
    sixteen, eight = (1e3 * decode_floor_seconds(shape, gpu, 1, 60_000, kv) for kv in ("auto", "fp8"))
    assert eight < 0.85 * sixteen
    between = [slo("TPOT", (sixteen + eight) / 2)]
    spec = {"workload": LONG, "slos": between}
    assert refused(service(f"hf://{LLAMA_8B}", "nvidia-h100-80gb", 1, **spec)).constraint == "SLO"
    planned(service(f"hf://{LLAMA_8B}", "nvidia-h100-80gb", 1, engine={"pins": {"kvCacheDtype": "fp8"}}, **spec))


def test_the_floor_of_tpot_in_a_bucket_begins_with_its_shortest_prompt() -> None:
    gpu, shape = device("nvidia-h100-80gb"), facts(LLAMA_8B)
    low, high = (1e3 * decode_floor_seconds(shape, gpu, 1, tokens, "auto") for tokens in (1, 16_385))
    between = (low + high) / 2
    work = {"promptTokens": {"p50": 500, "p95": 30_000}, "outputTokens": {"p50": 100, "p95": 200}}

    def spec(bucket: str) -> Any:
        return service(f"hf://{LLAMA_8B}", "nvidia-h100-80gb", 1, workload=work, slos=[slo("TPOT", between, bucket)])

    planned(spec("0-64"))
    assert "TPOT P95 of 16384+ tokens" in refused(spec("16384+")).message


def test_layers_without_a_window_attend_to_everything() -> None:
    """Gemma 3: one layer in six sees the whole context."""
    gpu, shape = device("nvidia-h100-80gb"), facts(GEMMA)
    assert shape.sliding_window is not None
    assert shape.windowed_layers is not None
    assert 0 < shape.windowed_layers < shape.num_hidden_layers
    grows = [decode_floor_seconds(shape, gpu, 1, tokens, "auto") for tokens in (shape.sliding_window, 32_768, 65_536)]
    full = shape.num_hidden_layers - shape.windowed_layers
    kv = 2 * shape.num_key_value_heads * shape.head_dim * 2 * full / gpu.bandwidth
    assert grows[2] - grows[1] == pytest.approx(kv * 32_768)
    assert grows[1] - grows[0] == pytest.approx(kv * (32_768 - shape.sliding_window))


def test_the_first_tokens_of_a_prompt_see_less_than_the_window() -> None:
    """Mistral 7B v0.1: of 8192 tokens the first 4096 see 0 to 4096 tokens, the others 4096 each."""
    gpu, shape = device("nvidia-h100-80gb"), replace(facts(LLAMA_8B), sliding_window=4096, windowed_layers=None)
    found = prefill_floor_seconds(shape, gpu, 1, 8192, 0)
    pairs = shape.num_hidden_layers * (4096 * 4096 / 2 + 4096 * 4096)
    flops = 2 * active_parameters(shape) * 8192 + 4 * shape.num_attention_heads * shape.head_dim * pairs
    assert found == pytest.approx(flops / gpu.flops)


GPUS = sorted(name for name, profile in catalogue().items() if profile.vendor == "NVIDIA")
SHAPES = [facts(e.uris[0]) for e in models().values()]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(SHAPES), st.sampled_from(GPUS), st.integers(1, 60_000), st.sampled_from([1, 2, 4, 8]), st.booleans()
)
def test_no_prediction_is_below_the_floor(shape: ModelFacts, gpu: str, tokens: int, ranks: int, eight: bool) -> None:
    kv = "fp8" if eight else "auto"
    model = StepModel(shape, device(gpu), tensor_parallel=ranks, kv_cache_dtype=kv)
    assert decode_floor_seconds(shape, device(gpu), ranks, tokens, kv) <= model.decode_seconds(1, tokens)
    assert prefill_floor_seconds(shape, device(gpu), ranks, tokens, 0) <= model.prefill_seconds(tokens)


@pytest.mark.parametrize(
    ("full", "name", "processors"),
    [
        ("nvidia-a100-40gb", "1g.5gb", 15),  # of 108, in sevenths
        ("nvidia-a100-40gb", "7g.40gb", 108),
        ("nvidia-h100-80gb", "3g.40gb", 56),
        ("nvidia-rtx-pro-6000", "1g.24gb", 47),  # of 188, in quarters
    ],
)
def test_a_slice_has_its_part_of_the_processors(full: str, name: str, processors: int) -> None:
    whole = catalogue()[full]
    assert device_from_profile(slice_profile(whole, name)).processors == processors
    label = whole.model_copy(update={"product": f"{whole.product.replace(' ', '-')}-MIG-{name}"})
    assert device_from_profile(label).processors == processors, "as a node's label writes it"


def test_a_70b_model_is_held_to_the_floor_of_its_own_ranks() -> None:
    gpu, shape = device("nvidia-h100-80gb"), facts(LLAMA_70B)
    one, eight = (decode_floor_seconds(shape, gpu, ranks, 1000, "auto") for ranks in (1, 8))
    assert one == pytest.approx(8 * eight, rel=1e-6)
