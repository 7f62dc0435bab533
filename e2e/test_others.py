"""Other people's objects, fields and intentions: left alone, named, or kept out."""

from __future__ import annotations

from e2e.support import GROUP, Space, condition, inference_service


def test_D18_what_others_add_survives(space: Space) -> None:
    space.apply(inference_service("shared"))
    space.wait_quiet("shared")
    revision = space.service("shared")["status"]["revision"]["desired"]
    space.kubectl("annotate", "deployment", revision, "example.com/owner=team-ml")
    space.kubectl("label", "service", "shared", "example.com/cost-centre=42")
    space.kubectl("annotate", "infsvc", "shared", "example.com/touch=1")
    space.wait_no_writes(1.5)
    deployment = space.get("Deployment", revision, "apps/v1")
    service = space.get("Service", "shared", "v1")
    assert deployment is not None
    assert service is not None
    assert deployment["metadata"]["annotations"]["example.com/owner"] == "team-ml"
    assert service["metadata"]["labels"]["example.com/cost-centre"] == "42"


def test_names_of_others_are_never_taken(space: Space) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "mine"},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"name": "http", "port": 80}]},
    }
    space.apply(theirs)
    space.apply(inference_service("mine"))
    stalled = space.wait_condition("mine", "Ready", "False", "NameTaken")
    assert "Service/mine" in next(c["message"] for c in stalled["status"]["conditions"] if c["type"] == "Ready")
    found = space.get("Service", "mine", "v1")
    assert found is not None
    assert found["spec"]["selector"] == {"app": "theirs"}
    assert space.children("mine") == {}, "nothing else is written either"

    space.delete("Service", "mine", "v1")
    space.wait_ready("mine")


def test_somebody_who_changes_a_field_for_ever_is_told_of_and_costs_few_writes(space: Space) -> None:
    space.apply(inference_service("fight"))
    space.wait_quiet("fight")
    revision = space.service("fight")["status"]["revision"]["stable"]
    before = len(space.writes())

    def contested() -> bool:
        space.patch(f"deployment/{revision}", {"spec": {"minReadySeconds": 1, "revisionHistoryLimit": 7}})
        events = space.cluster.client.list("v1", "Event", namespace=space.name)
        return any(e["reason"] == "Contested" and "kubectl-patch" in e["message"] for e in events)

    space.wait("the fight to be told", contested)
    assert len(space.writes()) - before < 40
    assert condition(space.service("fight"), "Available")["status"] == "True"  # type: ignore[index]


def test_an_object_of_others_that_carries_our_label_is_not_taken_either(space: Space) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "labelled-gateway-routes", "labels": {"firsttoken.dev/service": "labelled"}},
        "data": {"precious": "theirs"},
    }
    space.apply(theirs)
    space.apply(inference_service("labelled"))
    space.wait_condition("labelled", "Ready", "False", "NameTaken")
    found = space.get("ConfigMap", "labelled-gateway-routes", "v1")
    assert found is not None
    assert found["data"] == {"precious": "theirs"}
    assert not found["metadata"].get("ownerReferences")


def test_0001_a_forged_revision_is_not_applied(space: Space) -> None:
    """Somebody who may write InferenceRevisions plants one under the name the next revision will have."""
    space.apply(inference_service("victim"))
    stable = space.wait_ready("victim")["status"]["revision"]["stable"]
    record = space.get("InferenceRevision", stable)
    assert record is not None
    space.kubectl("delete", "infsvc", "victim", "--wait=true")
    space.wait("the record to be gone", lambda: space.get("InferenceRevision", stable) is None)
    grant = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "pwn", "labels": {"firsttoken.dev/revision": stable}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    meta = {"name": stable, "labels": record["metadata"]["labels"]}
    forged = {**record["spec"], "objects": [*record["spec"]["objects"], grant]}
    body = {"apiVersion": GROUP, "kind": "InferenceRevision", "metadata": meta, "spec": forged}
    space.apply(body, manager="firsttoken")
    space.apply(inference_service("victim"))
    refused = space.wait_condition("victim", "Ready", "False", "RevisionForged")
    assert stable in next(c["message"] for c in refused["status"]["conditions"] if c["type"] == "Ready")
    assert space.get("RoleBinding", "pwn", "rbac.authorization.k8s.io/v1") is None
    space.kubectl("delete", "infrev", stable)
    space.wait_ready("victim")
