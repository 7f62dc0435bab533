"""Every example is valid and says what it does (S20): one per profile, and one whose GPUs are missing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from firsttoken.api.service import InferenceService
from firsttoken.api.service_inputs import Profile
from firsttoken.api.validation import validate
from firsttoken.planning.types import Plan
from planning.specs import planned

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
OTHERS = ("cant-fit.yaml", "cpu-tiny.yaml", "over-nodes.yaml")  # beside one a profile
LOCAL_TYPE, LOCAL_GPUS, LOCAL_NODE = "nvidia-a100-40gb", 32, 8  # four fake nodes of eight


def load(name: str) -> InferenceService:
    value: Any = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    return InferenceService.model_validate(value)


def plan_of(name: str) -> Plan:
    return planned(load(name).spec)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_example_is_valid_named_after_its_file_and_explained(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = validate(text)
    assert (result.faults, result.checked) == ((), 1)
    assert text.startswith("# ")
    assert load(path.name).metadata.name == path.stem


def test_there_is_one_example_for_each_profile() -> None:
    local = [load(p.name).spec.workload.profile for p in FILES if p.name not in OTHERS]
    assert sorted(local) == sorted(Profile)


def test_examples_fit_the_local_cluster_together() -> None:
    plans = [plan_of(p.name) for p in FILES if p.name not in OTHERS]
    roles = [role for plan in plans for role in plan.roles]
    assert {role.accelerator for role in roles} == {LOCAL_TYPE}
    assert max(role.gpus_per_replica for role in roles) <= LOCAL_NODE
    assert sum(plan.gpus for plan in plans) <= LOCAL_GPUS


def test_kb_assistant_is_the_reference_case() -> None:
    """M8: 7B, 8 x A100-40, prompts 800-1500, outputs 300-500, shared blocks, TTFT P95 1.2 s."""
    spec, plan = load("kb-assistant.yaml").spec, plan_of("kb-assistant.yaml")
    assert (spec.accelerator.max_count, spec.workload.profile) == (8, Profile.KNOWLEDGE_QA)
    assert spec.slos[0].target == "1200ms"
    assert [(r.role, r.replicas) for r in plan.roles] == [("serve", 2)], (
        "for 8 requests/s; the rest of the budget is free"
    )
    assert plan.router


def test_summarization_is_split() -> None:
    plan = plan_of("summarization.yaml")
    assert [(r.role, r.replicas, r.tensor_parallel) for r in plan.roles] == [("prefill", 2, 2), ("decode", 1, 4)]


def test_offline_batch_keeps_its_pinned_budget_over_four_gpus() -> None:
    (role,) = plan_of("offline-batch.yaml").roles
    assert (role.replicas, role.tensor_parallel, role.engine_args["max-num-batched-tokens"]) == (2, 4, "8192")


def test_code_completion_starts_small() -> None:
    assert plan_of("code-completion.yaml").settings.token_budget == 512


def test_chat_keeps_users_on_one_side() -> None:
    spec = load("chat.yaml").spec
    assert spec.rollout.split is not None
    assert spec.rollout.split.header == "x-user-id"


def test_cant_fit_is_feasible_on_gpus_the_local_cluster_lacks() -> None:
    (role,) = plan_of("cant-fit.yaml").roles
    assert (role.accelerator, role.tensor_parallel) == ("nvidia-h200", 2)
