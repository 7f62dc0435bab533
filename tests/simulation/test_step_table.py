"""The compiled clock against the time model it is made of."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.step_table import EXACT_TOKENS, StepTable, step_table
from planning.timing.models import DEEPSEEK_LITE, LLAMA_8B, LLAMA_70B, MIXTRAL, device, facts

BUDGET, SEQS = 4096, 128
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "plain": (LLAMA_8B, "nvidia-a100-80gb", {}),
    "untiled": (LLAMA_8B, "nvidia-a100-40gb", {"tiled": False}),
    "cpu after": (LLAMA_8B, "nvidia-l40s", {"async_scheduling": False}),
    "ranks": (LLAMA_70B, "nvidia-h100-80gb", {"tensor_parallel": 4, "kv_cache_dtype": "fp8"}),
    "stages": (LLAMA_70B, "nvidia-a100-80gb", {"tensor_parallel": 2, "pipeline_parallel": 2}),
    "experts": (MIXTRAL, "nvidia-h100-80gb", {"tensor_parallel": 2, "scale": (1.1, 0.9)}),
    "latent": (DEEPSEEK_LITE, "nvidia-h200", {"tensor_parallel": 2}),
    "windowed": (LLAMA_8B, "nvidia-b200", {"windowed_layers": 16}),
    "all windowed": (LLAMA_8B, "nvidia-a100-80gb", {"windowed_layers": 32, "tiled": True}),
}
WINDOWS = {"windowed": 1024, "all windowed": 4096}


def chosen(name: str) -> tuple[StepModel, StepTable]:
    uri, gpu, options = MODELS[name]
    if name not in TABLES:
        changes = {"sliding_window": WINDOWS[name]} if name in WINDOWS else {}
        model = StepModel(facts(uri, **changes), device(gpu), **options)
        TABLES[name] = (model, step_table(model, BUDGET, SEQS))
    return TABLES[name]


TABLES: dict[str, tuple[StepModel, StepTable]] = {}
CHUNKS = st.lists(st.tuples(st.integers(0, 40_000), st.integers(1, 1000)), max_size=3)
CONTEXTS = st.lists(st.integers(1, 30_000), max_size=SEQS - 3)


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=60)
@given(chunks=CHUNKS, contexts=CONTEXTS)
def test_a_step_takes_what_the_time_model_says(name: str, chunks: list[tuple[int, int]], contexts: list[int]) -> None:
    model, table = chosen(name)
    tokens = sum(c for _, c in chunks) + len(contexts)
    expected = model.step_seconds(chunks, contexts).seconds
    found = table.step_seconds(chunks, contexts)[0]
    if not tokens:
        return
    assert found == pytest.approx(expected, rel=1e-12 if tokens <= EXACT_TOKENS else 5e-3)


@pytest.mark.parametrize("name", MODELS)
def test_a_table_is_the_time_model_to_the_last_digit(name: str) -> None:
    model, table = chosen(name)
    for tokens in range(1, EXACT_TOKENS + 1):
        assert table.by_tokens[tokens] == sum(model.tokens.of_tokens(tokens))
    for rows in range(1, SEQS + 1):
        assert table.by_rows[rows] == model.tokens.of_rows(rows)


@pytest.mark.parametrize("name", MODELS)
def test_between_tiles_a_straight_line_is_close(name: str) -> None:
    model, table = chosen(name)
    for tokens in range(EXACT_TOKENS, BUDGET, 7):
        assert table.by_tokens[tokens] == pytest.approx(sum(model.tokens.of_tokens(tokens)), rel=5e-3)
