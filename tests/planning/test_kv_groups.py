"""Sliding windows in vLLM's hybrid KV cache manager: groups of layers, and what a request takes of the blocks."""

import math

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.kv_groups import KVGroups
from firsttoken.planning.load.held import held_kv
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.memory import EngineLoad, groups_of, memory_budget
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import ModelFacts
from planning.specs import planned, reason, service

GEMMA_27B = "hf://google/gemma-3-27b-it"


def facts(uri: str) -> ModelFacts:
    found = model_facts(ModelSpec(uri=f"hf://{uri}"))
    assert isinstance(found, ModelFacts)
    return found


@pytest.mark.parametrize(
    ("uri", "width", "full", "windowed"),
    [
        ("meta-llama/Llama-3.1-8B", 32, 1, 0),
        ("google/gemma-2-9b-it", 21, 1, 1),  # 21 and 21 layers
        ("openai/gpt-oss-20b", 12, 1, 1),
        ("google/gemma-3-12b-it", 8, 1, 5),  # 8 and 40
        ("google/gemma-3-27b-it", 10, 1, 6),  # 10 and 52: the last groups are padded, 60 places for 52 layers
        ("google/gemma-3-4b-it", 5, 1, 6),  # 5 and 29
        ("mistralai/Mistral-7B-v0.1", 32, 0, 1),  # a window in every layer
    ],
)
def test_layers_are_grouped_as_vllm_does(uri: str, width: int, full: int, windowed: int) -> None:
    """`_get_kv_cache_groups_uniform_page_size`: groups as wide as the rarer kind of layer."""
    groups = groups_of(facts(uri), catalogue()["nvidia-h100-80gb"])
    assert (groups.width, groups.full, groups.windowed) == (width, full, windowed)


def test_kinds_of_about_one_number_share_the_larger_width() -> None:
    """vLLM's own example: 12 windowed and 13 full layers are two groups of 13, not three of 12."""
    model = ModelFacts("m", 10**9, 1024, 25, 8, 8, 128, 4096, 1000, 8192, sliding_window=128, windowed_layers=12)
    groups = groups_of(model, catalogue()["nvidia-h100-80gb"])
    assert (groups.width, groups.full, groups.windowed) == (13, 1, 1)


def test_what_a_request_takes() -> None:
    """Blocks by hand for gemma-3-27b: 1 full group, 6 with 1024 tokens (65 blocks: it may begin inside one)."""
    groups = KVGroups(block=16, layers=62, width=10, full=1, windowed=6, window=1024)
    assert groups.running(160) == 7 * 10
    assert groups.running(4547) == 285 + 6 * 65
    assert groups.reserved(9216, 2 * 2048) == 576 + 6 * (math.ceil((1023 + 4096) / 16) + 1)
    assert groups.reserved(1024, 2 * 2048) == 64 + 6 * 65, "no more than the request has"
    assert groups.tokens(62) == 160, "62 blocks of 10 layers hold what 10 blocks of 62 would"


def test_a_windowed_model_holds_more_requests() -> None:
    """4547 tokens: 285 blocks of 62 layers are 1767 of 10, with windows 675."""
    plan = planned(service(GEMMA_27B, "nvidia-a100-80gb", 2))
    every = plan.memory.kv_cache_tokens // (285 * 16)
    assert plan.memory.max_concurrent_requests / every == pytest.approx(1767 / 675, rel=0.03)
    assert "52 of 62 layers see 1024 tokens" in reason(plan, "SlidingWindow")
    parts = plan.memory.kv_cache_tokens * plan.memory.kv_bytes_per_token
    assert plan.memory.kv_cache_bytes == parts, "a KV token is one in every layer"


def test_where_the_platform_has_no_hybrid_manager_windows_save_nothing() -> None:
    gaudi, load = catalogue()["intel-gaudi3"], EngineLoad(2048, 64, 8192, 4547)
    model = facts("google/gemma-3-12b-it")
    groups = groups_of(model, gaudi)
    assert (groups.width, groups.full, groups.windowed) == (48, 1, 0)
    memory = memory_budget(model, gaudi, 1, 1, load)
    assert memory.max_concurrent_requests == memory.kv_cache_tokens // 4608, "whole blocks of 128"
    plan = planned(service("hf://google/gemma-3-12b-it", "intel-gaudi3", 1))
    assert "no hybrid KV cache manager" in reason(plan, "SlidingWindow")


def test_prefill_and_decode_roles_have_it_too() -> None:
    """vLLM's NixlConnector supports it (`SupportsHMA`)."""
    plan = planned(service("hf://google/gemma-3-12b-it", "nvidia-h100-80gb", 2, layout={"mode": "Disaggregated"}))
    assert plan.memory.max_concurrent_requests > plan.memory.kv_cache_tokens // 4547


def test_a_held_window_is_no_longer_than_itself() -> None:
    """All prompts of 4000 tokens, outputs of 400: full groups hold 4200 on average, windowed ones their window."""
    prompts, outputs = LengthDistribution(4000, 4000, 8192), LengthDistribution(400, 400, 8192)
    groups = KVGroups(block=16, layers=4, width=2, full=1, windowed=1, window=1024)
    held = held_kv(prompts, outputs, groups, 0)
    assert held.mean == pytest.approx(0.5 * 4208 + 0.5 * 1040)
    shared = held_kv(prompts, outputs, groups, 512)
    assert shared.mean == pytest.approx(0.5 * (4208 - 512) + 0.5 * 1040), "the window has left the prefix behind"
    assert shared.shared == 0.5 * 512 + 0.5 * 512
