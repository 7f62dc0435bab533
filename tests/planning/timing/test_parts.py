"""Kernels, devices, layouts and collectives one by one."""

import math
from typing import Any

import pytest

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.attention import attended, prefill_work
from firsttoken.planning.timing.collectives import NETWORK_SHARE, all_reduce_seconds, over_nodes_seconds
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.efficiency import Accuracy, efficiencies, table
from firsttoken.planning.timing.experts import distinct_experts
from firsttoken.planning.timing.gemm import GemmRates, gemm_seconds
from firsttoken.planning.timing.layout import head_widths, layout
from firsttoken.planning.timing.rank import attention, split
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from planning import hf
from planning.timing.models import DEEPSEEK, DEEPSEEK_LITE, LLAMA_8B, LLAMA_70B, MIXTRAL, device, facts


def rates(gpu: str, kind: str = "bf16") -> GemmRates:
    found = device(gpu)
    eight = kind != "bf16"
    flops = found.fp8_flops if eight else found.flops
    assert flops is not None
    size = 1 if eight else 2
    return GemmRates(flops, found.bandwidth, found.processors, size, size, efficiencies(found).gemm[kind])


@pytest.mark.parametrize(
    ("gpu", "kind", "m", "microseconds"),
    [
        # AIConfigurator's table, n = k = 8192.
        ("nvidia-h100-80gb", "bf16", 16, 46.4),
        ("nvidia-h100-80gb", "bf16", 256, 51.3),
        ("nvidia-h100-80gb", "bf16", 1024, 164.0),
        ("nvidia-h100-80gb", "fp8", 64, 30.4),
        ("nvidia-a100-80gb", "bf16", 1024, 526.6),
        ("nvidia-b200", "bf16", 64, 23.3),
        ("nvidia-l40s", "bf16", 8, 195.5),
    ],
)
def test_measured_products(gpu: str, kind: str, m: int, microseconds: float) -> None:
    assert 1e6 * gemm_seconds(m, 8192, 8192, rates(gpu, kind)) == pytest.approx(microseconds, rel=0.15)


def test_a_ragged_row_count_costs_fp8_a_wave() -> None:
    """ENGINE.md: up to +86 % from 256 to 257 rows."""
    fp8 = rates("nvidia-h100-80gb", "fp8")
    assert gemm_seconds(257, 8192, 8192, fp8) > 1.3 * gemm_seconds(256, 8192, 8192, fp8)
    assert gemm_seconds(512, 8192, 8192, fp8, ragged=False) < gemm_seconds(512, 8192, 8192, fp8)


@pytest.mark.parametrize("window", [None, 1, 7, 100])
@pytest.mark.parametrize(("prefix", "chunk"), [(0, 1), (0, 50), (30, 20), (90, 30), (500, 40)])
def test_pairs_of_query_and_key(prefix: int, chunk: int, window: int | None) -> None:
    exact = sum(min(prefix + i, window or math.inf) for i in range(1, chunk + 1))
    assert attended(prefix, chunk, window) == pytest.approx(exact, abs=chunk)


def test_cutting_a_prompt_keeps_the_pairs() -> None:
    whole = attended(0, 4096, None)
    assert sum(attended(p, 512, None) for p in range(0, 4096, 512)) == pytest.approx(whole)


def test_prefill_attention_of_the_measured_table() -> None:
    """H100, 32 heads, 8 KV heads, 8,192 tokens: 39 to 61 % of the peak (ENGINE.md)."""
    gpu = device("nvidia-h100-80gb")
    shape, _, found = attention(facts(LLAMA_8B), gpu, efficiencies(gpu), 1, "auto")
    flops = 4 * 32 * 128 * 8192**2 / 2
    assert 0.39 < flops / gpu.flops / prefill_work(0, 8192, shape, found) < 0.65


def test_experts_touched() -> None:
    assert distinct_experts(1, 128, 8) == pytest.approx(8)
    assert distinct_experts(10_000, 128, 8) == pytest.approx(128)
    assert distinct_experts(16, 128, 8, spread=0.7) < distinct_experts(16, 128, 8) < 128
    assert distinct_experts(5, 2, 2) == 2


@pytest.mark.parametrize(
    ("ranks", "message", "microseconds"), [(2, 16_384, 4.5), (8, 16_384, 5.3), (2, 2 << 20, 12), (8, 32 << 20, 178)]
)
def test_measured_all_reduces(ranks: int, message: int, microseconds: float) -> None:
    """ENGINE.md, H100."""
    gpu = device("nvidia-h100-80gb")
    seconds = all_reduce_seconds(message, ranks, gpu.link, efficiencies(gpu).nvlink)
    assert 1e6 * seconds == pytest.approx(microseconds, rel=0.35)


def test_an_all_reduce_over_nodes_uses_the_ports_of_all_devices() -> None:
    """NVIDIA/nccl#2409: 216.5 GB/s of bus bandwidth for 1 GiB with 2 x 8 H100 and ports of 50 GB/s, 231 for 8 GiB.

    NVIDIA/nccl#1244: 46 to 48 us for a few bytes with 2 x 8 H20.
    """
    gpu = device("nvidia-h100-80gb")
    nvlink = efficiencies(gpu).nvlink
    for message, gigabytes in ((2**30, 216.5), (2**33, 231)):
        seconds = over_nodes_seconds(message, 16, 8, (gpu.link, 50e9), nvlink)
        assert message * 2 * 15 / 16 / seconds / 1e9 == pytest.approx(gigabytes, rel=0.08)
    assert 46e-6 < over_nodes_seconds(64, 16, 8, (gpu.link, 50e9), nvlink) < 48e-6
    # Faster ports are bounded by the links inside; a device alone on its node has no other way than its port.
    fast, faster = (over_nodes_seconds(2**30, 16, 8, (gpu.link, n), nvlink) for n in (450e9, 900e9))
    assert fast == faster > all_reduce_seconds(2**30, 8, gpu.link, nvlink)
    assert over_nodes_seconds(2**30, 2, 1, (0, 50e9), nvlink) == pytest.approx(47e-6 + 2**30 / 50e9 / NETWORK_SHARE)
    assert over_nodes_seconds(64, 64, 8, (gpu.link, 50e9), nvlink) > over_nodes_seconds(
        64, 16, 8, (gpu.link, 50e9), nvlink
    )


def test_all_reduce_of_one_rank_is_nothing() -> None:
    gpu = device("nvidia-h100-80gb")
    assert all_reduce_seconds(1e9, 1, gpu.link, efficiencies(gpu).nvlink) == 0


@pytest.mark.parametrize(
    ("name", "ranks", "gigabytes"),
    [
        ("amd-mi300x", 2, 64),  # of seven links to seven others
        ("amd-mi300x", 4, 192),
        ("amd-mi300x", 8, 448),
        ("intel-gaudi3", 2, 75),  # three of 21 ports
        ("nvidia-v100-32gb", 2, 150 / 7),  # six links of a cube mesh: a pair has 0, 25 or 50
        ("nvidia-v100-32gb", 4, 450 / 7),
        ("nvidia-v100-16gb", 8, 150),
        ("nvidia-h100-80gb", 2, 450),  # a switch
    ],
)
def test_a_mesh_gives_a_few_ranks_few_links(name: str, ranks: int, gigabytes: int) -> None:
    assert device(name).link_among(ranks) == pytest.approx(gigabytes * 1e9)


def test_all_reduces_of_two_in_a_mesh_take_the_link_of_the_pair() -> None:
    """32 MiB between two MI300X: no less than both ways over 64 GB/s; among eight all seven links carry it."""
    gpu, model = device("amd-mi300x"), facts(LLAMA_70B)
    tokens = (32 << 20) // (model.hidden_size * 2)
    two, eight = (StepModel(model, gpu, tensor_parallel=n).step_seconds(((0, tokens),)).collectives for n in (2, 8))
    each = two / (2 * model.num_hidden_layers)
    assert each > (32 << 20) / 64e9
    assert eight < two / 2


def test_layouts_are_read_off_the_parameter_count() -> None:
    deepseek, lite, mixtral = (layout(facts(u)) for u in (DEEPSEEK, DEEPSEEK_LITE, MIXTRAL))
    assert (deepseek.dense_layers, deepseek.expert_layers, deepseek.shared[1][1]) == (3, 58, 2048)
    assert (lite.dense_layers, lite.shared[1][1]) == (1, 2 * 1408)
    assert (mixtral.dense_layers, mixtral.shared, mixtral.experts) == (0, (), 8)
    assert layout(facts("tiiuae/falcon-7b")).dense == ((18176, 4544, "columns"), (4544, 18176, "rows"))


def test_layouts_that_are_known_are_not_guessed() -> None:
    """DeepSeek-V3 with other widths, dense layers and shared experts than any model that guesses know."""
    changes = {
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "q_lora_rank": 768,
        "first_k_dense_replace": 8, "n_shared_experts": 3,
    }  # fmt: skip
    shape = hf.facts(hf.config("deepseek-v3", **changes))
    found = layout(shape)
    assert head_widths(shape) == (96, 64)
    assert (found.dense_layers, found.expert_layers) == (8, 53)
    assert found.shared[0] == (2 * 3 * 2048, 7168, "columns")
    assert [p[:2] for p in found.attention] == [
        (768 + 512 + 32, 7168), (128 * 96, 768), (128 * (64 + 64), 512), (7168, 128 * 64),
    ]  # fmt: skip
    direct = layout(hf.facts(hf.config("deepseek-v3", **{**changes, "q_lora_rank": 0})))
    assert direct.attention[0] == (128 * 96, 7168, "columns"), "no rank: queries are projected directly"


@pytest.mark.parametrize(("gated", "wanted"), [(True, 3), (False, 2), (None, 2)])
def test_a_gate_is_as_said_inline_and_guessed_by_a_published_count_where_nothing_is(gated: Any, wanted: int) -> None:
    inline = {
        "hiddenSize": 4096, "numHiddenLayers": 32, "numAttentionHeads": 32, "intermediateSize": 16384,
        "vocabSize": 50000, "maxPositionEmbeddings": 2048, "parameters": 6_900_000_000,
    }  # fmt: skip
    given = inline if gated is None else {**inline, "gatedMlp": gated}
    found = model_facts(ModelSpec.model_validate({"uri": "pvc://c/m", "architecture": {"inline": given}}))
    assert isinstance(found, ModelFacts)
    assert len({n for n, _, _ in layout(found).dense}) == 2
    assert layout(found).dense[0][0] == (wanted - 1) * 16384


def test_kv_heads_are_replicated_where_there_are_more_ranks() -> None:
    """vLLM's QKVParallelLinear: Qwen 2.5 7B has 28 heads and 4 KV heads of 128, Falcon 7B 71 and one of 64."""
    qwen = layout(facts("Qwen/Qwen2.5-7B-Instruct")).attention
    assert [split(qwen, r)[0][0] for r in (1, 2, 4, 7)] == [36 * 128, 18 * 128, 9 * 128, (4 + 2) * 128]
    llama = layout(facts(LLAMA_8B)).attention
    assert [split(llama, r)[0][0] for r in (8, 16, 32)] == [(4 + 2) * 128, (2 + 2) * 128, (1 + 2) * 128]
    assert split(llama, 16)[1] == (4096, 256), "the output has no KV heads"


@pytest.mark.parametrize("name", sorted(models()))
def test_every_catalogue_layout_accounts_for_its_parameters(name: str) -> None:
    entry = models()[name]
    shape = facts(entry.uris[0])
    found = layout(shape)
    sizes = {kind: sum(n * k for n, k, _ in getattr(found, kind)) for kind in ("attention", "dense", "shared")}
    experts = found.experts * shape.hidden_size * (found.expert_matrices * found.expert_width + 1)
    layers = shape.num_hidden_layers * sizes["attention"] + found.dense_layers * sizes["dense"]
    total = layers + found.expert_layers * ((experts + sizes["shared"]) if found.experts else 0)
    assert total == pytest.approx(shape.parameters - shape.embedding_parameters, rel=0.02)


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_profile_makes_a_device(name: str) -> None:
    gpu = device(name)
    assert min(gpu.flops, gpu.bandwidth, gpu.pcie, gpu.processors) > 0
    assert all(0 < efficiencies(gpu).interval.of(stage) <= 1 for stage in ("prefill", "decode"))


def test_which_gpus_are_measured() -> None:
    measured = {name for name in catalogue() if device(name).measured}
    assert measured == {"nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-h200", "nvidia-b200", "nvidia-l40s"}


def test_intervals_widen_with_what_is_not_known() -> None:
    for stage in ("prefill", "decode"):
        for names in (
            ("nvidia-h100-80gb", "nvidia-h100-pcie", "nvidia-t4", "cpu"),
            ("nvidia-h100-80gb", "nvidia-a100-80gb", "nvidia-a100-40gb", "nvidia-t4"),
        ):
            widths = [efficiencies(device(name)).interval.of(stage) for name in names]
            assert widths == sorted(widths)
            assert widths[0] < widths[-1]


@pytest.mark.parametrize("name", ["nvidia-a100-80gb", "nvidia-l40s"])
def test_kernels_without_whole_steps_make_a_gpu_less_known(name: str) -> None:
    """Both have kernel tables, and no whole step of theirs was held against the model."""
    own, known = efficiencies(device(name)).interval, efficiencies(device("nvidia-h200")).interval
    assert own.prefill > known.prefill
    assert own.decode > known.decode


def test_prompts_are_less_known_than_tokens_wherever_something_was_measured() -> None:
    found = efficiencies(device("nvidia-h100-80gb")).interval
    assert found.prefill > found.decode
    model = StepModel(facts(LLAMA_8B), device("nvidia-h100-80gb"))
    assert model.step_seconds(((0, 100),), (500,)).relative_interval == found.prefill
    assert model.step_seconds((), (500,)).relative_interval == found.decode


def test_a_profile_without_figures_is_rough() -> None:
    spec = AcceleratorProfileSpec.model_validate(
        {"vendor": "NVIDIA", "product": "NVIDIA Something", "resourceName": "nvidia.com/gpu", "memory": "24Gi"}
    )
    gpu = device_from_profile(spec)
    assert gpu.rough
    assert gpu.generation == "other"
    assert StepModel(facts(LLAMA_8B), gpu).interval == Accuracy(**table()["intervals"]["rough"])
