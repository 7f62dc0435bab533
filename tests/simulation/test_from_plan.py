"""From a plan to a fleet: what each engine is started with, and what traffic it gets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import ModelFacts, Plan, Routing
from firsttoken.planning.workload import resolve
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.from_plan import engine_at_start, revision_of_plan, whole_blocks_of
from firsttoken.simulation.policies import CacheAware, PowerOfTwo
from firsttoken.simulation.requests import requests
from firsttoken.simulation.service_run import ServiceRun, Traffic, drawn_traffic, run_service, traced_traffic

CHAT: dict[str, Any] = {
    "model": {"uri": "hf://Qwen/Qwen3-8B"},
    "accelerator": {"type": "nvidia-h100-80gb", "maxCount": 4},
    "workload": {"profile": "Chat", "requestsPerSecond": 6.0},
}
SPLIT = {**CHAT, "layout": {"mode": "Disaggregated"}, "workload": {"profile": "Summarization"}}


def planned(value: Mapping[str, Any]) -> tuple[InferenceServiceSpec, Plan, ModelFacts]:
    spec = InferenceServiceSpec.model_validate(value)
    plan, facts = make_plan(spec, catalogue()), model_facts(spec.model)
    assert isinstance(plan, Plan)
    assert isinstance(facts, ModelFacts)
    return spec, plan, facts


def simulated(value: Mapping[str, Any], traffic: Traffic, plan: Plan | None = None) -> ServiceRun:
    spec, own, facts = planned(value)
    bounds = tuple(spec.measurement.prompt_token_buckets)
    return run_service("s", plan or own, facts, catalogue(), traffic, bounds=bounds, seed=1)


def test_a_colocated_engine_has_the_plans_memory_and_live_settings() -> None:
    _, plan, facts = planned(CHAT)
    plan = replace(plan, settings=replace(plan.settings, token_budget=512, decode_cap=40, long_prefill_threshold=256))
    revision = revision_of_plan(plan, facts, catalogue())
    assert revision.decode is None
    assert len(revision.pool.replicas) == plan.roles[0].replicas
    settings = revision.pool.replicas[0].settings
    assert (settings.token_budget, settings.most_running, settings.long_prefill_threshold) == (512, 40, 256)
    assert settings.kv_blocks == plan.memory.kv_cache_tokens // 16 - 1  # the null block
    assert settings.prefix_caching
    assert settings.stages.input_seconds > 0


def test_live_settings_never_change_what_an_engine_was_started_with() -> None:
    """A budget of 16 tokens is raised to room for the decodes and a chunk, as the runtime does; places stay."""
    _, plan, facts = planned(CHAT)
    (started,) = {engine_at_start(plan, r, facts, catalogue()[r.accelerator]).replica.settings for r in plan.roles}
    low = replace(plan, settings=replace(plan.settings, token_budget=16, decode_cap=16))
    settings, table = revision_of_plan(low, facts, catalogue()).pool.replicas[0]
    assert (settings.token_budget, settings.most_running) == (32, 16)
    assert settings.max_num_seqs == started.max_num_seqs == len(table.by_rows) - 1
    assert len(table.by_tokens) - 1 == started.token_budget


def test_kv_goes_with_the_speed_of_the_slower_side() -> None:
    """PCIe of all ranks of a replica together: 64 GB/s each on an H100, 32 on an L40S."""
    _, plan, facts = planned(SPLIT)
    prefill, decode = plan.roles

    def per_token(first: str, second: str, ranks: int = 1) -> float:
        roles = (replace(prefill, accelerator=first), replace(decode, accelerator=second, tensor_parallel=ranks))
        return revision_of_plan(replace(plan, roles=roles), facts, catalogue()).link.token_seconds

    assert plan.roles[0].tensor_parallel == 1
    fast, slow = per_token("nvidia-h100-80gb", "nvidia-h100-80gb"), per_token("nvidia-l40s", "nvidia-l40s")
    assert slow == pytest.approx(2 * fast)
    assert per_token("nvidia-h100-80gb", "nvidia-l40s") == pytest.approx(slow)
    assert per_token("nvidia-h100-80gb", "nvidia-l40s", 2) == pytest.approx(fast)


def test_switches_of_the_engine_are_followed() -> None:
    pins = {"pins": {"chunkedPrefill": False, "prefixCaching": False}}
    _, plan, facts = planned({**CHAT, "engine": pins})
    settings = revision_of_plan(plan, facts, catalogue()).pool.replicas[0].settings
    assert not settings.chunked_prefill
    assert not settings.prefix_caching


def test_the_router_is_the_one_that_would_be_rendered() -> None:
    _, plan, facts = planned(CHAT)
    assert isinstance(revision_of_plan(replace(plan, router=True), facts, catalogue()).pool.policy, CacheAware)
    assert isinstance(revision_of_plan(replace(plan, router=False), facts, catalogue()).pool.policy, PowerOfTwo)
    for routing, policy in ((Routing("cache_aware", 0.55), CacheAware(0.55)), (Routing("power_of_two"), PowerOfTwo())):
        assert revision_of_plan(replace(plan, router=True, routing=routing), facts, catalogue()).pool.policy == policy


def test_a_split_has_two_pools_and_a_link_and_each_its_own_memory() -> None:
    _, plan, facts = planned(SPLIT)
    revision = revision_of_plan(plan, facts, catalogue())
    assert revision.decode is not None
    assert revision.link.token_seconds > 0
    prefill, decode = revision.pool.replicas[0].settings, revision.decode.replicas[0].settings
    assert decode.kv_blocks == plan.memory.kv_cache_tokens // 16 - 1
    assert plan.roles[0].memory is not None
    assert prefill.kv_blocks == plan.roles[0].memory.kv_cache_tokens // 16 - 1
    older = replace(plan, roles=tuple(replace(role, memory=None) for role in plan.roles))
    again = revision_of_plan(older, facts, catalogue())
    assert again.decode is not None
    assert (again.pool.replicas[0].settings, again.decode.replicas[0].settings) == (prefill, decode), "a record of old"
    assert isinstance(revision.decode.policy, PowerOfTwo)
    assert prefill.most_running == prefill.max_num_seqs
    assert decode.most_running == plan.settings.decode_cap


def test_pipeline_stages_and_missing_replicas_are_refused() -> None:
    _, plan, facts = planned(CHAT)
    role = plan.roles[0]
    for wrong, why in (({"pipeline_parallel": 2}, "pipeline stages"), ({"replicas": 0}, "0 serve replicas")):
        with pytest.raises(SimulationInputError, match=why):
            revision_of_plan(replace(plan, roles=(replace(role, **wrong),)), facts, catalogue())  # type: ignore[arg-type]


def test_hashes_of_small_blocks_become_those_of_the_engines_blocks() -> None:
    """Every n-th hash stands for n blocks; what is left of a prompt has none."""
    given = requests([0, 1], [70, 40], [1, 1], block_hashes=[[1, 2, 3, 4], [1, 2]], hash_tokens=16)
    found = whole_blocks_of(given, 32)
    assert (found.hashes.tolist(), found.hash_offsets.tolist(), found.hash_tokens) == ([2, 4, 2], [0, 2, 3], 32)
    assert whole_blocks_of(given, 16) is given
    with pytest.raises(SimulationInputError, match="multiple"):
        whole_blocks_of(given, 24)


def test_drawn_traffic_has_the_rate_asked_for_then_the_specs_then_the_plans() -> None:
    spec, plan, _ = planned(CHAT)
    work = resolve(spec.workload)
    assert drawn_traffic(plan, work, seconds=60, rate=2.0, seed=0).rate == 2.0
    assert drawn_traffic(plan, work, seconds=60, rate=None, seed=0).rate == 6.0
    assert plan.prediction is not None
    silent = drawn_traffic(plan, replace(work, requests_per_second=None), seconds=60, rate=None, seed=0)
    assert (silent.rate, silent.assumed) == (plan.prediction.requests_per_second, True)


@pytest.mark.parametrize(("seconds", "rate", "why"), [(1e7, 10.0, "shorter --duration"), (0.001, 0.1, "no request")])
def test_too_many_or_no_requests_are_refused(seconds: float, rate: float, why: str) -> None:
    spec, plan, _ = planned(CHAT)
    with pytest.raises(SimulationInputError, match=why):
        drawn_traffic(plan, resolve(spec.workload), seconds=seconds, rate=rate, seed=0)


def test_a_trace_is_stretched_to_a_rate_and_cut_after_a_time() -> None:
    given = requests([0.0, 1.0, 2.0, 4.0], [10] * 4, [2] * 4)
    found = traced_traffic(given, "t", seconds=None, rate=1.5)
    assert found.requests.arrival.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert found.rate == pytest.approx(1.5)
    assert len(traced_traffic(given, "t", seconds=1.5, rate=None).requests) == 2


def test_every_request_is_served_once_and_its_stages_add_up() -> None:
    spec, plan, _ = planned(CHAT)
    traffic = drawn_traffic(plan, resolve(spec.workload), seconds=20, rate=None, seed=3)
    found = simulated(CHAT, traffic)
    assert found.buckets["all"].requests + found.refused == len(traffic.requests)
    assert sum(b.requests for name, b in found.buckets.items() if name != "all") == found.buckets["all"].requests
    times = found.outcome.times()
    parts = sum(times[name] for name in ("gateway", "input", "queue", "prefill", "transfer", "delivery"))
    assert np.allclose(parts, times["ttft"])
    assert all(0 < found.busy(one) <= 1 and 0 < found.compute(one) < 1 for one in found.outcome.replicas)


def test_a_prompt_of_the_maximum_length_is_refused_and_an_output_beyond_it_cut() -> None:
    _, plan, _ = planned(CHAT)
    longest = plan.max_model_length
    found = simulated(CHAT, Traffic(requests([0, 1, 2], [longest, longest - 1, 10], [5, 50, 5]), "t", 1.0))
    assert (found.refused, found.buckets["all"].requests) == (1, 2)
    assert found.outcome.requests.output_tokens.tolist() == [1, 5]


def test_the_first_token_of_a_split_waits_for_its_kv() -> None:
    found = simulated(SPLIT, Traffic(requests([0.0, 5.0], [4096, 4096], [8, 8]), "t", 0.2))
    assert found.buckets["all"].times["transfer"].mean > 0
