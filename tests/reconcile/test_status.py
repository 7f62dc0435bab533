"""The status as a whole: what a person reads, what /scale reads, and that the API server takes even the largest."""

import copy
from typing import Any

import pytest

from firsttoken.api.crd import UNSEEN
from firsttoken.api.validation import check_object
from firsttoken.reconcile.failure import failed_status
from reconcile.world import NOW, World, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}
NAME = "c" * 46  # MAX_NAME_LENGTH


def test_a_serving_service_tells_where_it_is_what_runs_and_why() -> None:
    world = ready()
    status, name = world.status, world.revision["stable"]
    assert status["endpoint"] == "http://chat.apps.svc/v1"
    assert status["layout"] == "Colocated"
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    labels = f"firsttoken.dev/service=chat,firsttoken.dev/revision={name},firsttoken.dev/role=serve"
    assert status["selector"] == labels
    (role,) = status["plan"]["roles"]
    assert (role["replicas"], role["readyReplicas"], role["gpusPerReplica"]) == (2, 2, 1)
    assert {"Model", "TokenBudget", "Replicas"} <= {r["code"] for r in status["plan"]["reasons"]}


def kstatus(service: dict[str, Any]) -> str:
    """Flux's verdict (e2e/gitops/verdicts.py)."""
    status, generation = service["status"], service["metadata"]["generation"]
    if status.get("observedGeneration", generation) != generation:
        return "InProgress"
    words = {"Reconciling": "InProgress", "Stalled": "Failed"}
    said = [words[c["type"]] for c in status["conditions"] if c["type"] in words and c["status"] == "True"]
    return said[0] if said else "Current"


def test_a_service_that_nobody_has_looked_at_is_taken_up_like_one_without_a_status() -> None:
    """The definition's default is read, although nothing is stored."""
    world = World()
    world.service["status"] = dict(UNSEEN)
    told = failed_status(world.service, "InternalError", "broken", NOW)
    assert told is not None
    assert {c["type"]: c["observedGeneration"] for c in told["conditions"]} == {"Ready": 1, "Stalled": 1}
    assert kstatus({**world.service, "status": told}) == "Failed"
    edited = {**world.service, "metadata": {**world.service["metadata"], "generation": 2}, "status": told}
    again = failed_status(edited, "InternalError", "broken", NOW)
    assert kstatus({**edited, "status": again}) == "Failed", "nor was the spec after it ever decided"
    world.reconcile()
    world.settle()
    assert world.status == ready().status


def test_a_failure_on_a_spec_that_was_decided_before_says_nothing_of_the_new_one() -> None:
    world = ready()
    world.edit(model={"maxModelLength": 8192})
    told = failed_status(world.service, "InternalError", "broken", NOW)
    assert told is not None
    assert told["observedGeneration"] == 1
    assert kstatus({**world.service, "status": told}) == "InProgress"


def test_S3_fields_without_effect_are_named_in_the_plan() -> None:
    assert not [r for r in ready().status["plan"]["reasons"] if r["code"] == "NotActiveYet"]
    world = ready(tuning={"mode": "Auto"}, rollout={"approval": "Manual"})
    (said,) = [r["message"] for r in world.status["plan"]["reasons"] if r["code"] == "NotActiveYet"]
    assert "spec.tuning.mode" in said
    assert "spec.rollout.approval" in said


def test_S14_the_status_counts_the_desired_revision() -> None:
    world, _, new = rolled(LONGER)
    world.come_up(new, ready=1)
    world.reconcile()
    assert (world.status["replicas"], world.status["readyReplicas"]) == (2, 1)


def test_D27_what_is_no_longer_true_disappears() -> None:
    world = ready()
    world.edit(layout={"mode": "Disaggregated"})
    world.settle()
    assert {"replicas", "readyReplicas", "selector"} & set(world.status) == set()


def test_without_a_plan_the_last_one_stays_readable() -> None:
    world = ready()
    before = world.status
    world.edit(model={"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"})
    world.reconcile()
    assert {k: world.status[k] for k in ("layout", "plan", "selector")} == {
        k: before[k] for k in ("layout", "plan", "selector")
    }


def test_what_others_measured_stays() -> None:
    world = ready()
    world.service["status"]["slo"] = {"ttftP95": "800ms"}
    world.edit(scaling={"replicas": 1})
    world.settle()
    assert world.status["slo"] == {"ttftP95": "800ms"}


def largest_arguments() -> dict[str, str]:
    """As long extra arguments as their bounds let through."""
    return {"chat-template": "y" * 4000, "tokenizer": "y" * 4000}


def long_refusal(world: World) -> None:
    world.settle()
    world.refuse = {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget"}
    world.edit(**LONGER)


def long_pod_message(world: World) -> None:
    world.reconcile()
    waiting = {"reason": "ImagePullBackOff", "message": "x" * 50_000}
    state = {"containerStatuses": [{"name": "engine", "state": {"waiting": waiting}}]}
    labels = {"firsttoken.dev/revision": world.revision["desired"]}
    world.pods = [{"metadata": {"name": "p", "labels": labels}, "spec": {"containers": []}, "status": state}]


def long_unknown_model(world: World) -> None:
    world.edit(model={"uri": "hf://" + "m" * 1019})


def long_unknown_profile(world: World) -> None:
    world.edit(accelerator={"type": "p" * 253})
    world.profiles = {f"{'q' * 240}{i}": world.profiles["nvidia-a100-40gb"] for i in range(100)}


def long_arguments(world: World) -> None:
    world.edit(engine={"extraArgs": largest_arguments()}, layout={"mode": "Disaggregated"})
    world.settle()


def long_names(world: World) -> None:
    world.edit(model={"name": "n" * 128}, podTemplate={"metadata": {"labels": {"k" * 63: "v" * 63}}})
    world.settle()


def everything_inactive(world: World) -> None:
    world.edit(
        slos=[{"metric": "TTFT", "target": "900ms"}],
        tuning={"mode": "Auto"},
        rollout={"steps": [{"weight": 5}, {"weight": 100}], "approval": "Manual", "analysis": {"baseline": "Fresh"}},
        inspection={"schedule": "@daily"},
    )


@pytest.mark.parametrize(
    "arrange",
    [
        long_refusal,
        long_pod_message,
        long_unknown_model,
        long_unknown_profile,
        long_arguments,
        long_names,
        everything_inactive,
    ],
)
def test_the_api_server_takes_the_largest_status(arrange: Any) -> None:
    world = World()
    world.service["metadata"]["name"] = "chat"
    arrange(world)
    world.reconcile()
    assert [c.message for c in check_object(copy.deepcopy(world.service))] == []
    for record in world.objects("InferenceRevision"):
        assert [c.message for c in check_object(copy.deepcopy(record))] == []


def test_the_longest_name_gives_names_that_kubernetes_takes() -> None:
    world = World(layout={"mode": "Disaggregated"}, routing={"gateway": {"name": "public"}})
    world.service["metadata"]["name"] = NAME
    _, decision = world.look()
    assert max(len(o["metadata"]["name"]) for o in decision.apply) <= 63
    values = [v for o in decision.apply for v in o["metadata"]["labels"].values()]
    assert max(map(len, values)) <= 63


def test_many_quick_edits_stay_within_the_bounds_of_the_status() -> None:
    world = ready(rollout={"drainTimeout": "1h"})
    for length in range(4800, 6000, 100):
        world.edit(model={"maxModelLength": length})
        world.settle()
    assert world.draining
    assert [c.message for c in check_object(copy.deepcopy(world.service))] == []
