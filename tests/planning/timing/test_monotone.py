"""A longer prompt never takes less, nor a larger batch; whatever the shape, times are finite and positive."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import efficiencies
from firsttoken.planning.timing.gemm import PARTIAL_SUM_BYTES, SPLITS, TILES, GemmRates, gemm_seconds
from firsttoken.planning.timing.step import Decodes, StepModel
from firsttoken.planning.types import ModelFacts
from planning.timing.models import DEEPSEEK_LITE, LLAMA_8B, LLAMA_70B, MIXTRAL, device, facts, step_model

MODELS = st.sampled_from(
    [
        (LLAMA_8B, "nvidia-h100-80gb", {}),
        (LLAMA_8B, "nvidia-l4", {"kv_cache_dtype": "fp8"}),
        (LLAMA_8B, "nvidia-t4", {"tiled": False}),
        (LLAMA_8B, "cpu", {}),
        (LLAMA_70B, "nvidia-a100-80gb", {"tensor_parallel": 8}),
        (MIXTRAL, "nvidia-b200", {"tensor_parallel": 2, "pipeline_parallel": 2}),
        (DEEPSEEK_LITE, "nvidia-l40s", {"tensor_parallel": 2, "async_scheduling": False}),
        ("Qwen/Qwen2.5-0.5B", "amd-mi300x", {}),
    ]
)
TOKENS = st.integers(1, 20_000)
CONTEXTS = st.lists(st.integers(1, 40_000), max_size=40)
Choice = tuple[str, str, dict[str, Any]]
ROUNDING = 1 - 1e-12


def model_of(choice: Choice) -> StepModel:
    uri, gpu, options = choice
    return step_model(uri, gpu, **options)


@given(MODELS, TOKENS, TOKENS, st.integers(64, 8192), CONTEXTS)
def test_a_longer_prompt_never_takes_less(choice: Choice, a: int, b: int, budget: int, running: list[int]) -> None:
    model = model_of(choice)
    short, long = (model.prefill_seconds(n, 0, budget, running) for n in sorted((a, b)))
    assert 0 < short * ROUNDING <= long < math.inf


@given(MODELS, TOKENS, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_longer_cached_prefix_never_takes_longer(choice: Choice, tokens: int, a: int, b: int) -> None:
    model = model_of(choice)
    less, more = (model.prefill_seconds(tokens, min(c, tokens), 8192) for c in sorted((a, b)))
    assert more * ROUNDING <= less


@given(
    MODELS,
    CONTEXTS,
    st.integers(1, 40_000),
    st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), max_size=3),
)
def test_another_decode_never_lowers_a_step(
    choice: Choice, contexts: list[int], another: int, chunks: list[tuple[int, int]]
) -> None:
    model = model_of(choice)
    before = model.step_seconds(chunks, contexts)
    after = model.step_seconds(chunks, [*contexts, another])
    assert before.seconds * ROUNDING <= after.seconds < math.inf


@given(MODELS, CONTEXTS, st.integers(0, 9000), st.integers(1, 3000))
def test_another_chunk_never_lowers_a_step(choice: Choice, contexts: list[int], prefix: int, chunk: int) -> None:
    model = model_of(choice)
    assert (
        model.step_seconds((), contexts).seconds * ROUNDING <= model.step_seconds([(prefix, chunk)], contexts).seconds
    )


@given(MODELS, st.integers(1, 600), st.integers(1, 600), st.integers(1, 40_000), st.integers(1, 40_000))
def test_decode_grows_with_batch_and_context(choice: Choice, a: int, b: int, c: int, d: int) -> None:
    model = model_of(choice)
    small, large = sorted((a, b))
    short, long = sorted((c, d))
    assert model.decode_seconds(small, short) * ROUNDING <= model.decode_seconds(large, long)


SIZES = st.integers(1, 40_000)


@given(
    st.sampled_from(["nvidia-a100-80gb", "nvidia-l40s", "nvidia-h100-80gb", "nvidia-b200", "nvidia-t4", "cpu"]),
    st.sampled_from(["bf16", "fp8", "fp8_block"]),
    st.tuples(SIZES, SIZES, SIZES),
    st.tuples(SIZES, SIZES, SIZES),
)
def test_a_larger_product_never_takes_less(
    gpu: str, kind: str, one: tuple[int, int, int], more: tuple[int, int, int]
) -> None:
    found: Device = device(gpu)
    rates = GemmRates(found.flops, found.bandwidth, found.processors, 2, 2, efficiencies(found).gemm[kind])
    larger = [a + b for a, b in zip(one, more, strict=True)]
    assert 0 < gemm_seconds(*one, rates) * ROUNDING <= gemm_seconds(*larger, rates) < math.inf


@given(
    st.sampled_from(sorted(catalogue())),
    st.builds(
        lambda hidden, layers, heads, kv, width, experts, latent: ModelFacts(
            name="odd",
            parameters=max(1, hidden * layers * width),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads * kv,
            num_key_value_heads=kv,
            head_dim=64,
            intermediate_size=width,
            vocab_size=1000,
            max_position_embeddings=1 << 20,
            num_experts=experts,
            num_experts_per_tok=2 if experts else None,
            kv_lora_rank=latent,
        ),
        st.integers(1, 20_000),
        st.integers(1, 200),
        st.integers(1, 16),
        st.integers(1, 16),
        st.integers(1, 60_000),
        st.sampled_from([None, 1, 2, 7, 512]),
        st.sampled_from([None, 512]),
    ),
    st.sampled_from([1, 2, 3, 8, 64]),
    st.tuples(st.integers(0, 1 << 20), st.integers(1, 1 << 16)),
)
def test_odd_shapes_give_finite_positive_times(gpu: str, shape: ModelFacts, ranks: int, chunk: tuple[int, int]) -> None:
    model = StepModel(shape, device(gpu), tensor_parallel=ranks)
    step = model.step_seconds([chunk], Decodes(3, 30, 20))
    assert all(math.isfinite(part) and part >= 0 for part in step)
    assert step.seconds > 0
    assert math.isfinite(model.transfer_seconds(100))


@pytest.mark.parametrize("work", [((), ()), ([(5, 0)], ()), ((), Decodes(0, 0, 0))])
def test_nothing_to_do_takes_no_time(work: Any) -> None:
    assert step_model().step_seconds(*work).seconds == 0


def test_facts_are_not_changed() -> None:
    before = facts(LLAMA_8B)
    step_model().step_seconds([(0, 10)])
    assert facts(LLAMA_8B) == before


@given(st.sampled_from(["nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-l40s"]), TOKENS, TOKENS, TOKENS)
def test_no_tile_that_is_left_out_would_end_sooner(name: str, m: int, n: int, k: int) -> None:
    """All tiles and splits, against the search that stops where a bound decides. Without memory, launch and droop."""
    gpu = device(name)
    fitted = replace(efficiencies(gpu).gemm["bf16"], droop=0.0, ragged=0.0, floor_us=0.0, inner_us=0.0)
    rates = GemmRates(gpu.flops, gpu.bandwidth, gpu.processors, 0.0, 0.0, replace(fitted, mbu=1e12))
    found = []
    for rows, columns, halvings in TILES:
        tiles = math.ceil(m / rows) * math.ceil(n / columns)
        kept = rates.flops * fitted.mfu * fitted.small_tile**halvings
        for split in (1, *SPLITS):
            waves = tiles * split / gpu.processors
            waves = 1.0 if waves < 1 else waves + fitted.wave_rounding * (math.ceil(waves) - waves)
            sums = split * m * n * PARTIAL_SUM_BYTES / gpu.bandwidth if split > 1 else 0.0
            found.append(waves * 2 * rows * columns * k * gpu.processors / kept / split + sums)
    assert gemm_seconds(m, n, k, rates) == pytest.approx(min(found), rel=1e-9)
