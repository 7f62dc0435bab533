"""The Argo CD health script, run by a real Lua over the statuses that `decide` writes (S5)."""

from pathlib import Path
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime

from reconcile.world import World, ready

SCRIPT = Path(__file__).parents[2] / "charts" / "firsttoken" / "files" / "argocd-health.lua"


def health(service: dict[str, Any]) -> tuple[str, str]:
    """Status and message, in an interpreter with no more than Argo CD gives: no io, no os, no modules."""
    lua = LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    for library in ("io", "os", "package", "require", "debug", "python"):
        lua.globals()[library] = None
    lua.globals()["obj"] = lua.table_from(service, recursive=True)
    verdict = lua.execute(SCRIPT.read_text())
    assert set(verdict.keys()) == {"status", "message"}
    assert isinstance(verdict["message"], str)
    return verdict["status"], verdict["message"]


def verdict(world: World) -> str:
    return health(world.service)[0]


def test_before_the_operator_looked_it_progresses() -> None:
    assert health(World().service) == ("Progressing", "the operator has not looked at it yet")


def test_from_apply_to_ready() -> None:
    world = World()
    world.reconcile()
    assert verdict(world) == "Progressing"
    world.settle()
    assert health(world.service) == ("Healthy", world.condition("Ready")["message"])  # type: ignore[index]


def test_S2_an_edited_spec_progresses_at_once_and_until_it_serves() -> None:
    world = ready()
    world.edit(model={"maxModelLength": 4096})
    assert health(world.service) == ("Progressing", "the operator has not seen this spec yet")
    world.reconcile()
    assert verdict(world) == "Progressing"
    world.settle()
    assert verdict(world) == "Healthy"


def test_lost_replicas_progress() -> None:
    world = ready()
    world.come_up(ready=0)
    world.reconcile()
    assert verdict(world) == "Progressing"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"accelerator": {"type": "nvidia-h900"}}, "nvidia-h900"),
        ({"model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}}, "maxCount: 8"),
    ],
)
def test_what_needs_a_person_is_degraded_and_says_why(changes: dict[str, Any], word: str) -> None:
    world = World(**changes)
    world.reconcile()
    status, message = health(world.service)
    assert status == "Degraded"
    assert word in message


def test_a_taken_name_is_degraded() -> None:
    world = World()
    world.create("Service", "chat")
    world.reconcile()
    status, message = health(world.service)
    assert (status, message.split(":")[0]) == ("Degraded", "NameTaken")


def test_scaled_to_zero_is_healthy_because_the_spec_wants_it() -> None:
    world = ready(scaling={"minReplicas": 0, "replicas": 0})
    assert world.says("Ready") == ("True", "ScaledToZero")
    assert verdict(world) == "Healthy"


@pytest.mark.parametrize("reason", ["Paused", "AwaitingApproval"])
def test_a_rollout_that_waits_for_a_person_is_suspended(reason: str) -> None:
    world = ready()
    world.edit(model={"maxModelLength": 4096})
    world.reconcile()
    rollout = world.condition("RolloutProgressing")
    assert rollout is not None
    rollout["reason"] = reason
    assert verdict(world) == "Suspended"


def test_being_deleted_progresses() -> None:
    world = ready()
    world.service["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    assert verdict(world) == "Progressing"
