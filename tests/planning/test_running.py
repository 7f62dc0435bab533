"""How many requests run (M4.4): as many as KV holds at a random moment, in memory that is counted for as many."""

import random

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.kv_groups import KVGroups
from firsttoken.planning.load.held import HeldKV, held_kv
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.memory import EngineLoad, memory_budget
from firsttoken.planning.mig import slice_profile
from firsttoken.planning.models import model_facts
from firsttoken.planning.parallelism import LEAST_KV_SHARE, kv_share
from firsttoken.planning.plan import make_plan
from firsttoken.planning.running import consistent_memory, places
from firsttoken.planning.types import ModelFacts, Plan
from planning.specs import planned, reason, service

LLAMA_8B, LLAMA_2 = "hf://meta-llama/Llama-3.1-8B-Instruct", "hf://meta-llama/Llama-2-7b-hf"
PLAIN = KVGroups(block=16, layers=1, width=1, full=1)
# Long tails, so that P95 says little of what most requests take.
SPREAD = {"profile": "Chat", "promptTokens": {"p50": 500, "p95": 2500},
          "outputTokens": {"p50": 200, "p95": 1000}, "sharedPrefixTokens": 0}  # fmt: skip


def seqs(plan: Plan) -> int:
    return int(plan.roles[-1].engine_args["max-num-seqs"])


def test_memory_is_counted_for_the_requests_that_are_started_with() -> None:
    """A pin to the same number changes nothing."""
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 1))
    pinned = planned(service(LLAMA_8B, "nvidia-h100-80gb", 1, engine={"pins": {"maxNumSeqs": seqs(plan)}}))
    assert plan.memory == pinned.memory
    assert plan.memory.max_num_seqs == seqs(plan)
    assert plan.roles[0].engine_args == pinned.roles[0].engine_args


@pytest.mark.parametrize("device", ["nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-b200", "nvidia-l4"])
def test_the_number_is_the_largest_that_its_own_memory_has_places_for(device: str) -> None:
    model = model_facts(ModelSpec(uri=LLAMA_8B))
    assert isinstance(model, ModelFacts)
    held, profile = HeldKV(1600.0, 1400.0, 256.0), catalogue()[device]
    load = EngineLoad(2048, 1024, 8192, 4547)
    found = consistent_memory(model, profile, (1, 1), load, held)
    assert 1 <= found.max_num_seqs <= places(found, held)
    if found.max_num_seqs < 1024:
        more = memory_budget(model, profile, 1, 1, EngineLoad(2048, found.max_num_seqs + 1, 8192, 4547))
        assert places(more, held) < found.max_num_seqs + 1


def test_a_small_device_runs_fewer_requests_before_it_is_refused() -> None:
    """Qwen2.5 0.5B on a MIG slice of 5 GB: a sampler for 256 requests would leave nothing for KV."""
    profiles = {**catalogue(), "slice": slice_profile(catalogue()["nvidia-a100-40gb"], "1g.5gb")}
    plan = make_plan(service("hf://Qwen/Qwen2.5-0.5B-Instruct", "slice", 1), profiles)
    assert isinstance(plan, Plan)
    assert 12 < seqs(plan) < 256
    assert kv_share(plan.memory) >= LEAST_KV_SHARE


def test_tight_memory_runs_fewer_than_kv_has_places_for() -> None:
    """Where the share of KV is what is short (LEAST_KV_SHARE), fewer requests and their smaller sampler make room."""
    model = model_facts(ModelSpec(uri=LLAMA_8B))
    assert isinstance(model, ModelFacts)
    profile = catalogue()["nvidia-l4"].model_copy(update={"memory": "21Gi"})
    held, load = HeldKV(20.0, 1.0), EngineLoad(2048, 256, 256, 40)
    assert kv_share(memory_budget(model, profile, 1, 1, load)) < LEAST_KV_SHARE
    found = consistent_memory(model, profile, (1, 1), load, held)
    assert found.max_num_seqs < min(256, places(found, held))
    assert kv_share(found) >= LEAST_KV_SHARE


def test_M4_4_running_requests_follow_what_they_hold_not_their_p95() -> None:
    plan = planned(service(LLAMA_2, "nvidia-a100-40gb", 1, workload=SPREAD))
    fit = plan.memory.max_concurrent_requests
    assert fit == plan.memory.kv_cache_tokens // 3504, "in whole blocks of 16"
    assert seqs(plan) > 2 * fit
    by_p95 = planned(service(LLAMA_2, "nvidia-a100-40gb", 1, workload=SPREAD, engine={"pins": {"maxNumSeqs": fit}}))
    assert (plan.roles[0].capacity or 0) > 1.5 * (by_p95.roles[0].capacity or 0)
    said = reason(plan, "MaxNumSeqs")
    assert f"{fit} of 3500 tokens (P95) fit at once" in said
    assert "95 % of all moments" in said


def test_a_shared_prefix_is_stored_once() -> None:
    """The more of a prompt is shared, the more requests run."""
    work = {"promptTokens": {"p50": 2000, "p95": 3000}, "outputTokens": {"p50": 100, "p95": 200}}
    few, many = (
        planned(service(LLAMA_2, "nvidia-a100-40gb", 1, workload={**work, "sharedPrefixTokens": n})) for n in (64, 1600)
    )
    assert seqs(many) > 1.5 * seqs(few)
    assert "beside a shared prefix of 1600, stored once" in reason(many, "MaxNumSeqs")


def test_requests_of_one_length_leave_no_margin_to_chance() -> None:
    prompts = LengthDistribution(1000, 1000, 4096)
    held = held_kv(prompts, None, PLAIN, 0)
    assert (held.mean, held.deviation) == (pytest.approx(1008), 0.0), "half a block more"
    assert held.places(10_080) == 10


def test_kv_suffices_at_nineteen_of_twenty_moments() -> None:
    """Drawn at random: prompts, outputs in proportion to their length, and how much of one is made."""
    prompts, outputs = LengthDistribution(500, 2500, 8192), LengthDistribution(200, 1000, 8192)
    held = held_kv(prompts, outputs, PLAIN, 0)
    capacity = 200_000
    running, draw = held.places(capacity), random.Random(7)  # noqa: S311
    sizes = [outputs.quantile(draw.random()) for _ in range(20_000)]
    made = draw.choices(sizes, weights=sizes, k=running * 1000)

    def used() -> float:
        return sum(prompts.quantile(draw.random()) + made.pop() * draw.random() + 8 for _ in range(running))

    enough = sum(used() <= capacity for _ in range(1000)) / 1000
    assert 0.92 <= enough <= 0.97


def test_a_prefill_engine_holds_prompts_and_a_decode_engine_all_of_them() -> None:
    prompts, outputs = LengthDistribution(1000, 1000, 4096), LengthDistribution(200, 200, 4096)
    assert held_kv(prompts, None, PLAIN, 0).mean == pytest.approx(1008)
    assert held_kv(prompts, outputs, PLAIN, 0).mean == pytest.approx(1108), "half of its output"
