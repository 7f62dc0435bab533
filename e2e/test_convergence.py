"""Whatever happens to the objects or to the operator, the same objects come back, and nothing is written in vain."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from typing import Any

from e2e.support import Space, inference_service

from firsttoken_local.cluster import LocalCluster, up
from firsttoken_local.errors import LocalError
from firsttoken_local.operator import NAME, start_operator

VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
KILLS = 20


Essence = dict[str, str]


def essence(children: dict[str, dict[str, Any]], *, history: bool = True) -> Essence:
    """The objects as text without what differs from one creation to the next, by kind/name.

    Records of older revisions stay by design; `history=False` leaves records out.
    """
    kept = {}
    for key, obj in children.items():
        if obj["kind"] == "InferenceRevision" and not history:
            continue
        meta = {k: v for k, v in obj["metadata"].items() if k not in VOLATILE}
        annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if not k.startswith("deployment.")}
        owned = bool(meta.pop("ownerReferences", None))
        body = {k: v for k, v in obj.items() if k not in ("metadata", "status", "secrets")}
        if obj["kind"] == "Service":  # given out by the API server
            body["spec"] = {k: v for k, v in body["spec"].items() if not k.startswith("clusterIP")}
        kept[key] = json.dumps(
            {**body, "owned": owned, "metadata": {**meta, "annotations": annotations}}, sort_keys=True
        )
    return kept


def wait_same(space: Space, service: str, wanted: Essence, what: str, *, history: bool = True) -> None:
    """Wait until the children are what they were; on time-out show the difference."""
    last: Essence = {}

    def same() -> bool:
        nonlocal last
        last = essence(space.children(service), history=history)
        return last == wanted

    try:
        space.wait(what, same)
    except LocalError:
        keys = sorted(k for k in {*last, *wanted} if last.get(k) != wanted.get(k))
        raise AssertionError(
            "\n".join(f"{k}\n  is     {last.get(k)}\n  wanted {wanted.get(k)}" for k in keys)
        ) from None


def versions(children: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {k: o["metadata"]["resourceVersion"] for k, o in children.items()}


def test_an_unchanged_reconcile_writes_nothing(space: Space) -> None:
    space.apply(inference_service("quiet"))
    space.wait_quiet("quiet")
    before, writes = versions(space.children("quiet")), len(space.writes())
    revision = space.service("quiet")["metadata"]["resourceVersion"]
    reconciles = reconcile_count(space.cluster)
    for i in range(5):  # wakes the operator: an annotation is no spec change
        space.kubectl("annotate", "infsvc", "quiet", f"example.com/touch={i}", "--overwrite")
    space.wait("five more reconciles", lambda: reconcile_count(space.cluster) >= reconciles + 3)
    space.wait_no_writes(1.5)
    assert space.writes()[writes:] == []
    assert versions(space.children("quiet")) == before
    assert space.service("quiet")["metadata"]["resourceVersion"] != revision, "the test itself did touch it"


def reconcile_count(cluster: LocalCluster) -> float:
    port = start_operator(cluster).metrics_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith("firsttoken_operator_reconciles_total")
    )


def test_S26_objects_deleted_or_edited_by_hand_come_back(space: Space) -> None:
    space.apply(inference_service("repair"))
    space.wait_quiet("repair")
    before = essence(space.children("repair"))

    for key in sorted(space.children("repair")):
        kind, _, name = key.partition("/")
        if kind != "InferenceRevision":
            space.kubectl("delete", kind, name, "--wait=false")
    wait_same(space, "repair", before, "deleted objects to come back")
    space.wait_quiet("repair")

    revision = space.service("repair")["status"]["revision"]["desired"]
    edits = {
        f"deployment/{revision}": {"spec": {"replicas": 7}},
        "deployment/repair-gateway": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}},
        "service/repair": {"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 1}]}},
        "configmap/repair-gateway-routes": {"data": {"routes.json": "{}"}},
        f"configmap/{revision}-live": {"data": {"settings.json": "{}"}},
        f"poddisruptionbudget/{revision}": {"metadata": {"labels": {"firsttoken.dev/revision": None}}},
        # Atomic maps: what is added takes the whole of it away from us.
        f"service/{revision}": {"spec": {"selector": {"added": "by-hand"}}},
        f"poddisruptionbudget/{revision}-router": {"spec": {"selector": {"matchLabels": {"added": "by-hand"}}}},
    }
    for resource, patch in edits.items():
        space.patch(resource, patch)
    wait_same(space, "repair", before, "edited objects to be put right")


def test_an_object_that_lost_its_label_or_owner_is_taken_up_again(space: Space) -> None:
    space.apply(inference_service("lost"))
    space.wait_quiet("lost")
    before = essence(space.children("lost"))
    space.kubectl("label", "service", "lost", "firsttoken.dev/service-")
    space.kubectl(
        "patch",
        "configmap",
        "lost-gateway-routes",
        "--type=json",
        "-p",
        '[{"op":"remove","path":"/metadata/ownerReferences"}]',
    )
    wait_same(space, "lost", before, "label and owner to come back")


def test_delete_removes_everything(space: Space) -> None:
    space.apply(inference_service("gone", routing={"gateway": {"name": "public"}}))
    space.wait_condition("gone", "Ready", "False", "WaitingForRoute")
    assert len(space.children("gone", made_by_us=False)) > 10
    space.kubectl("delete", "infsvc", "gone", "--wait=true", "--timeout=30s")
    space.wait("no orphan to be left", lambda: not space.children("gone", made_by_us=False))
    space.wait_no_writes(1.0)
    assert not space.children("gone", made_by_us=False), "nothing is made again"


def test_no_finalizer_and_no_annotation_is_put_on_anything(space: Space) -> None:
    """K4, K10: objects must not hang, and no copy of the spec is kept in annotations."""
    space.apply(inference_service("clean"))
    space.wait_quiet("clean")
    objects = [space.service("clean"), *space.children("clean").values()]
    assert [o["metadata"]["name"] for o in objects if o["metadata"].get("finalizers")] == []
    ours = [a for o in objects for a in o["metadata"].get("annotations") or {} if "kopf" in a or "last-handled" in a]
    assert ours == []


def test_S6_the_spec_is_never_written(space: Space) -> None:
    space.apply(inference_service("spec"))
    space.wait_quiet("spec")
    managers = [(e["manager"], e.get("subresource")) for e in space.service("spec")["metadata"]["managedFields"]]
    assert ("firsttoken", "status") in managers
    assert ("firsttoken", None) not in managers


def test_an_operator_killed_at_any_moment_converges_to_the_same_objects(space: Space) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    space.apply(inference_service("killed", accelerator={"maxCount": 4}))
    space.wait_quiet("killed")
    reference = {False: essence(space.children("killed"), history=False)}
    for attempt in range(KILLS):
        longer = attempt % 2 == 0
        began = time.monotonic()
        space.apply(inference_service("killed", accelerator={"maxCount": 4}, **spec(longer)))
        kill_after(space.cluster, began, moments.uniform(0.0, 1.2))
        start_operator(space.cluster)
        space.wait_quiet("killed")
        got = essence(space.children("killed"), history=False)
        assert got == reference.setdefault(longer, got), f"attempt {attempt}, seed {seed}"


def spec(longer: bool) -> dict[str, Any]:
    return {"model": {"maxModelLength": 8192}} if longer else {}


def kill_after(cluster: LocalCluster, began: float, seconds: float) -> None:
    """SIGKILL the operator some time after the edit: the moment is what the test is about."""
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    cluster.processes.stop([NAME], grace_s=0.0)


def test_the_operator_works_on_after_the_api_server_was_killed(space: Space) -> None:
    space.apply(inference_service("outage"))
    before = space.wait_ready("outage")["status"]["revision"]["stable"]
    processes = space.cluster.processes
    pid = processes.record(NAME)
    processes.stop(["kube-apiserver"], grace_s=0.0)
    assert not processes.alive("kube-apiserver")
    up(directory=space.cluster.directory)  # restarts what died
    space.apply(inference_service("outage", model={"maxModelLength": 8192}))
    space.wait("the new revision", lambda: space.service("outage")["status"]["revision"]["stable"] != before)
    assert processes.alive(NAME), "the operator needed no restart"
    assert processes.record(NAME) == pid
