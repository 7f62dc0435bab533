"""The JSON of a plan: fixed keys, nothing that isn't computed, and faults named when it is read back."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from firsttoken.planning.output import plan_from_json, plan_to_json
from planning.specs import LLAMA_70B, QWEN_7B, planned, refused, service


def test_keys_of_a_feasible_plan() -> None:
    value = plan_to_json(planned(service(QWEN_7B, "nvidia-a100-40gb", 8)))
    assert list(value) == [
        "feasible", "layout", "model", "maxModelLength", "gpus", "router", "routing", "roles", "memory", "settings",
        "reasons", "predicted", "alternatives",
    ]  # fmt: skip
    assert value["roles"][0]["parallelism"] == {"tensor": 1, "pipeline": 1, "data": 1}
    assert {"weightsBytes", "kvBytesPerToken", "kvCacheTokens", "maxConcurrentRequests"} <= set(value["memory"])
    assert {"ttftSeconds", "tpotSeconds", "byPromptTokens"} <= set(value["predicted"])
    assert set(value["predicted"]["ttftSeconds"]) == {"p50", "p95", "p99"}


def test_keys_of_a_refusal() -> None:
    value = plan_to_json(refused(service(LLAMA_70B, "nvidia-a100-40gb", 4)))
    assert value["feasible"] is False
    assert list(value["infeasible"]) == ["constraint", "message", "nearest"]


def test_what_a_newer_version_wrote_is_ignored_and_what_an_older_one_left_out_has_a_default() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8))
    value = plan_to_json(plan)
    value["memory"]["newer"] = 1
    assert plan_from_json(value) == plan
    value["predicted"] = {"ttft": "of another version"}
    assert plan_from_json(value) == replace(plan, prediction=None)
    del value["predicted"], value["alternatives"], value["roles"][0]["capacity"]
    assert plan_from_json(value).roles[0].capacity is None
    del value["memory"]["activationBytes"]
    assert plan_from_json(value).memory.activation_bytes == 0


def test_each_role_of_a_split_says_where_its_own_memory_goes() -> None:
    layout = {"mode": "Disaggregated"}
    types = {"type": "nvidia-h100-80gb", "decode": {"type": "nvidia-a100-80gb"}}
    plan = planned(service(QWEN_7B, "nvidia-h100-80gb", 8, layout=layout, accelerator={**types, "maxCount": 8}))
    value = plan_to_json(plan)
    prefill, decode = (role["memory"] for role in value["roles"])
    assert decode == value["memory"], "the top one is of the role that makes the tokens"
    assert set(prefill) == set(decode)
    assert prefill["kvCacheTokens"] != decode["kvCacheTokens"]
    assert prefill["maxConcurrentRequests"] != decode["maxConcurrentRequests"], "it keeps no outputs"
    for budget in (prefill, decode):
        parts = ("weightsBytes", "activationBytes", "overheadBytes", "kvCacheBytes")
        assert sum(budget[part] for part in parts) <= budget["usableBytes"]
    assert plan_from_json(value) == plan
    for role in value["roles"]:
        del role["memory"]
    older = plan_from_json(value)
    assert older.memory == plan.memory
    assert [role.memory for role in older.roles] == [None, None]
    assert plan_to_json(older) == value, "nothing is made up for a plan that did not say it"


def test_what_is_no_plan_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a plan"):
        plan_from_json({"feasible": True})
    with pytest.raises(ValueError, match="not a feasible plan"):
        plan_from_json(plan_to_json(refused(service(LLAMA_70B, "nvidia-a100-40gb", 4))))


def mappings(value: object) -> Iterator[Any]:
    """Every mapping inside a frozen value."""
    if isinstance(value, Mapping):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from mappings(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from mappings(getattr(value, field.name))


def test_what_many_share_can_not_be_changed() -> None:
    """Plans are remembered, and whoever asks again gets the same object."""
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8))
    refusal = refused(service(LLAMA_70B, "nvidia-a100-40gb", 4))
    found = [*mappings(plan), *mappings(plan_from_json(plan_to_json(plan))), *mappings(refusal)]
    assert len(found) == 3 + 3 + 1, "arguments, environment and buckets, twice; the alternatives"
    for mapping in found:
        with pytest.raises(TypeError):
            mapping["max-num-seqs"] = "1"


def test_a_plan_does_not_change_with_what_it_was_made_from() -> None:
    given = {"seed": "1"}
    role = replace(planned(service(QWEN_7B, "nvidia-a100-40gb", 8)).roles[0], engine_args=given)
    given["seed"] = "2"
    assert role.engine_args == {"seed": "1"}
