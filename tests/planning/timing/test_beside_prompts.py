"""Decodes that share a step with prompt chunks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.planning.timing.attention import BESIDE_SHARE
from firsttoken.planning.timing.efficiency import table
from firsttoken.planning.timing.step import StepModel
from firsttoken_accuracy.errors import Errors
from firsttoken_accuracy.kernels import beside_counts, beside_predicted, fit_beside
from firsttoken_accuracy.tables import besides
from planning.timing.models import DEEPSEEK_LITE, LLAMA_8B, device, facts

PREFILL = table()["generations"]["other"]["attention"]["bf16"]
CHUNK = ((0, 16),)


def extra(uri: str, gpu: str, **options: str) -> float:
    """Seconds that 128 decodes take in attention beside a chunk, over what both take alone."""
    model, decodes = StepModel(facts(uri), device(gpu), **options), (600,) * 128
    alone = model.step_seconds((), decodes).attention
    return model.step_seconds(CHUNK, decodes).attention - alone - model.step_seconds(CHUNK).attention


@pytest.mark.parametrize("gpu", ["nvidia-a100-80gb", "nvidia-l40s", "nvidia-l4", "nvidia-rtx-pro-6000"])
def test_flash_attention_2_computes_decodes_beside_a_chunk_as_chunks(gpu: str) -> None:
    assert extra(LLAMA_8B, gpu) > 1e-3


@pytest.mark.parametrize(
    ("uri", "gpu", "options"),
    [
        (LLAMA_8B, "nvidia-h100-80gb", {}),
        (LLAMA_8B, "nvidia-b200", {}),
        (LLAMA_8B, "nvidia-l40s", {"kv_cache_dtype": "fp8"}),  # rules out FlashAttention 2
        (DEEPSEEK_LITE, "nvidia-a100-80gb", {}),
    ],
)
def test_other_kernels_take_decodes_apart(uri: str, gpu: str, options: dict[str, str]) -> None:
    assert extra(uri, gpu, **options) <= 0


@given(chunk=st.integers(1, 2048), contexts=st.lists(st.integers(1, 30_000), min_size=1, max_size=200))
def test_a_chunk_never_makes_a_step_faster(chunk: int, contexts: list[int]) -> None:
    model = StepModel(facts(LLAMA_8B), device("nvidia-a100-80gb"))
    assert model.step_seconds(((0, chunk),), contexts).attention >= model.step_seconds((), contexts).attention


def test_the_one_coefficient_is_that_of_the_rows_in_the_fit() -> None:
    assert fit_beside(PREFILL, besides()) == pytest.approx(BESIDE_SHARE, abs=0.005)


def test_rows_kept_out_of_it_are_predicted_within_the_target_of_attention() -> None:
    rows = [row for row in besides() if row.out and beside_counts(row)]
    assert len(rows) > 10
    assert Errors.of((beside_predicted(PREFILL, row), row.seconds) for row in rows).mape < 0.12
    worse = [replace(row, seconds=row.seconds * 1.5) for row in rows]
    assert Errors.of((beside_predicted(PREFILL, row), row.seconds) for row in worse).mape > 0.12
