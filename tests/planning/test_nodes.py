"""Replicas on several nodes: only for what fits no node, stages over nodes, and a layer's split where it is carried."""

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.choice import ALIKE
from firsttoken.planning.models import model_facts
from firsttoken.planning.network import split_over_nodes, why_not_over_nodes
from firsttoken.planning.nodes import nodes_of
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.plan import make_plan
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.stages import handover_seconds
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.planning.words import number
from planning.specs import DEEPSEEK, LLAMA_70B, planned, reason, refused, service

H100, H200 = "nvidia-h100-80gb", "nvidia-h200"
LLAMA_405B = "hf://meta-llama/Llama-3.1-405B"


def shape(plan: Plan) -> list[tuple[int, int, int, int]]:
    """(replicas, tensor, pipeline, nodes) of each role."""
    return [(r.replicas, r.tensor_parallel, r.pipeline_parallel, r.nodes) for r in plan.roles]


def with_network(spec: Any, gigabytes: float, device: str = H100) -> Plan | Infeasible:
    profiles = catalogue()
    profiles[device] = profiles[device].model_copy(update={"network_gb_per_second": gigabytes})
    return make_plan(spec, profiles)


@pytest.mark.parametrize(
    ("tensor", "stages", "node", "nodes"),
    [(8, 1, 8, 1), (8, 2, 8, 2), (4, 2, 8, 1), (4, 4, 8, 2), (4, 3, 8, 3), (2, 6, 8, 2), (1, 3, 1, 3), (16, 1, 8, 2)],
)
def test_every_node_has_as_many_ranks(tensor: int, stages: int, node: int, nodes: int) -> None:
    assert nodes_of(tensor, stages, node) == nodes
    assert tensor * stages % nodes == 0
    assert tensor * stages // nodes <= node


@pytest.mark.parametrize("count", [16, None])
def test_deepseek_in_fp8_lies_on_two_nodes_of_h100_and_says_why(count: int | None) -> None:
    """M4.6. 671 GB of weights against 8 x 80 GB: the split of a layer inside a node, one stage on each."""
    plan = planned(service(DEEPSEEK, H100, count))
    assert [s[1:] for s in shape(plan)] == [(8, 2, 2)]
    said = reason(plan, "AcrossNodes")
    assert "takes 672.9 GB of weights, and one node of 8 x NVIDIA H100 SXM has 629.4 GB usable" in said
    # 8192 tokens x 7168 wide x 2 bytes x 2 tensors; 61 layers x 2 all-reduces of 117 MB x 2 x 15/16, by 8 ports.
    assert "235 MB of activations go once over a network of 50 GB/s a GPU (assumed" in said
    assert "122 all-reduces over it, of which NCCL reaches 54%, would send 3.36 GB through each device's port" in said
    assert "through 2 stages, with the next step" in said
    assert "so a layer's split stays inside a node" in said
    args = plan.roles[0].engine_args
    assert (args["nnodes"], args["distributed-executor-backend"]) == ("2", "mp")
    assert "pipeline stages" in reason(plan, "Predicted")


def test_deepseek_on_two_nodes_of_h200_is_one_replica_a_node_and_shows_the_other_way() -> None:
    plan = planned(service(DEEPSEEK, H200, 16))
    assert shape(plan) == [(2, 8, 1, 1)]
    assert "a replica stays in one node" in reason(plan, "WithinNode")
    (other,) = [a for a in plan.alternatives if a.nodes == 2]
    assert (other.tensor_parallel, other.pipeline_parallel, other.replicas, other.gpus) == (8, 2, 1, 16)
    capacity = plan.roles[0].capacity
    assert capacity is not None
    assert other.requests_per_second < 2 * capacity
    assert f"two replicas of a node each carry {number(2 * capacity)} requests/s" in reason(plan, "NotAcrossNodes")
    assert f"a replica carries {number(other.requests_per_second)} requests/s" in reason(plan, "NotAcrossNodes")
    assert plan_from_json(plan_to_json(plan)) == plan


def test_llama_405b_in_16_bits_lies_on_two_nodes_of_h100_with_a_replica_for_each_two() -> None:
    plan = planned(service(LLAMA_405B, H100, 40))
    assert shape(plan) == [(2, 8, 2, 2)]
    assert plan.gpus == 32


def test_a_budget_of_one_node_is_refused_with_the_one_that_is_enough() -> None:
    refusal = refused(service(DEEPSEEK, H100, 8))
    assert refusal.constraint == "Memory"
    assert refusal.nearest["spec.accelerator.maxCount"] == 16
    assert refusal.nearest["spec.accelerator.type"] == H200


def test_what_fits_a_node_stays_there_whatever_the_budget() -> None:
    for count in (8, 16, 64, None):
        assert all(role.nodes == 1 for role in planned(service(LLAMA_70B, H100, count)).roles)


def test_a_shorter_maximum_inside_a_node_goes_before_a_longer_one_over_two() -> None:
    """More GPUs change how many replicas there are, not where each lies."""
    profiles = catalogue()
    profiles["nvidia-a100-40gb"] = profiles["nvidia-a100-40gb"].model_copy(update={"memory": "24Gi"})
    for count in (8, 16):
        lengths = {"promptTokens": {"p50": 30_000, "p95": 65_000}, "outputTokens": {"p50": 100, "p95": 300}}
        plan = make_plan(service(LLAMA_70B, "nvidia-a100-40gb", count, workload=lengths), profiles)
        assert isinstance(plan, Plan)
        assert shape(plan) == [(count // 8, 8, 1, 1)]
        assert plan.max_model_length < 2 * 65_300


def test_weights_that_no_eight_nodes_hold() -> None:
    refusal = refused(service(LLAMA_405B, "nvidia-t4"))
    assert refusal.constraint == "AcrossNodes"
    assert "a replica lies on 8 nodes at most" in refusal.message


def test_a_layer_is_split_over_nodes_only_where_the_profile_says_that_the_network_carries_it() -> None:
    """3.36 GB a step through each port: at 200 Gbit/s they are most of the step, at 400 the smaller part of it."""
    spec = service(DEEPSEEK, H100, 16)
    slow, fast = with_network(spec, 25), with_network(spec, 50)
    assert isinstance(slow, Plan)
    assert isinstance(fast, Plan)
    assert shape(slow) == [(1, 8, 2, 2)]
    assert "assumed" not in reason(slow, "AcrossNodes")
    assert shape(fast) == [(1, 16, 1, 2)]
    assert "which it carries" in reason(fast, "AcrossNodes")
    assert "a network of 50 GB/s" in reason(fast, "AcrossNodes")
    (stages,) = [a for a in fast.alternatives if (a.tensor_parallel, a.pipeline_parallel) == (8, 2)]
    capacity = fast.roles[0].capacity
    assert capacity is not None
    assert stages.requests_per_second > capacity, "both are shown; where they serve about the same, nobody waits"


def test_a_split_that_is_carried_gives_way_to_stages_that_serve_much_more() -> None:
    """A batch promises no first token: stages begin the next step sooner. Both are in the plan with what they carry."""
    plan = with_network(service(DEEPSEEK, H100, 16, workload={"profile": "OfflineBatch"}), 50)
    assert isinstance(plan, Plan)
    assert shape(plan) == [(1, 8, 2, 2)]
    (split,) = [a for a in plan.alternatives if (a.tensor_parallel, a.pipeline_parallel) == (16, 1)]
    capacity = plan.roles[0].capacity
    assert capacity is not None
    assert split.requests_per_second * ALIKE < capacity


def test_a_pinned_split_over_nodes_is_refused_with_the_arithmetic() -> None:
    spec = service(DEEPSEEK, H100, 16, engine={"pins": {"tensorParallel": 16}})
    refusal = with_network(spec, 25)
    assert isinstance(refusal, Infeasible)
    assert refusal.constraint == "TensorParallel"
    assert "122 all-reduces over a network of 25 GB/s a GPU, of which NCCL reaches 54%, would send 3.36 GB" in (
        refusal.message
    )
    assert "more than half of it" in refusal.message
    carried = with_network(spec, 50)
    assert isinstance(carried, Plan)
    assert shape(carried) == [(1, 16, 1, 2)]


def test_a_faster_network_never_makes_a_split_slower() -> None:
    profile = catalogue()[H100]
    facts = _facts(DEEPSEEK)
    times = []
    for speed in (6, 12.5, 25, 50, 100, 450):
        device = device_from_profile(profile.model_copy(update={"network_gb_per_second": speed}))
        times.append(split_over_nodes(facts, device, 16, 8192).collectives)
    assert times == sorted(times, reverse=True)
    assert why_not_over_nodes(facts, profile, 16) is not None


def test_stages_on_other_nodes_are_reached_over_the_network() -> None:
    device = device_from_profile(catalogue()[H100])
    message = 8192 * 7168 * 2
    inside, outside = (handover_seconds(message, t, 2, device) for t in (4, 8))
    assert inside == pytest.approx(30e-6 + 2 * message / 4 / 450e9)
    assert outside == pytest.approx(30e-6 + 2 * message / 8 / 50e9)
    slow = replace(device, network=1e9)
    assert handover_seconds(message, 8, 2, slow) > 40 * outside


def test_the_network_is_never_assumed_beyond_pcie() -> None:
    for name, profile in catalogue().items():
        device = device_from_profile(profile)
        if name != "cpu":
            assert device.network_assumed, name
            assert device.network <= min(50e9, device.pcie), name


def test_a_split_keeps_its_roles_inside_a_node() -> None:
    refusal = refused(service(DEEPSEEK, H100, 32, layout={"mode": "Disaggregated"}))
    assert refusal.nearest["spec.layout.mode"] == "Colocated"


def test_plans_of_one_node_are_written_as_before() -> None:
    value = plan_to_json(planned(service(LLAMA_70B, H100, 8)))
    assert "nodes" not in value["roles"][0]
    assert all("nodes" not in a for a in value["alternatives"])
    assert plan_to_json(planned(service(DEEPSEEK, H100, 16)))["roles"][0]["nodes"] == 2


def _facts(uri: str) -> Any:
    return model_facts(service(uri, H100, 8).model, None)
