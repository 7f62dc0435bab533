"""Replicas on several nodes: one LeaderWorkerSet, whose leaders alone are sent requests."""

import os
import subprocess
from typing import Any

import pytest

from firsttoken.manifests import groups, names
from firsttoken.manifests.engine import start_seconds
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import Images
from firsttoken.manifests.revision import revision_objects
from manifests import cases

REVISION = "kb-assistant-1a2b3c4d"


def rendered(**spec: Any) -> dict[str, dict[str, Any]]:
    objects = revision_objects(cases.service(**spec), REVISION, cases.over_nodes(), cases.PROFILES, Images())
    return {f"{o['kind']}/{o['metadata']['name']}": o for o in objects}


def templates(**spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the leader and of a worker."""
    found = rendered(**spec)[f"{groups.KIND}/{REVISION}"]["spec"]["leaderWorkerTemplate"]
    return found["leaderTemplate"], found["workerTemplate"]


def container(template: dict[str, Any]) -> dict[str, Any]:
    (found,) = template["spec"]["containers"]
    return dict(found)


def selects(match: dict[str, str], template: dict[str, Any]) -> bool:
    return match.items() <= template["metadata"]["labels"].items()


def test_a_leader_worker_set_takes_the_place_of_the_deployment() -> None:
    found = rendered()
    assert f"Deployment/{REVISION}" not in found
    spec = found[f"{groups.KIND}/{REVISION}"]["spec"]
    assert spec["leaderWorkerTemplate"]["size"] == 2
    assert spec["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert spec["networkConfig"] == {"subdomainPolicy": "UniquePerReplica"}, "the shared Service is called like ours"
    assert "replicas" not in spec


def test_a_group_whose_second_node_is_bought_is_not_thrown_away() -> None:
    """LWS 0.8 deletes the leader when a container restarts, unless this annotation is there and a pod is pending."""
    found = rendered()[f"{groups.KIND}/{REVISION}"]
    assert "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start" in found["metadata"]["annotations"]
    probe = container(templates()[0])["startupProbe"]
    alone = start_seconds(cases.over_nodes().memory.weights_bytes, remote=True)
    assert probe["failureThreshold"] * probe["periodSeconds"] == alone + 1800


def test_only_leaders_are_sent_requests_and_all_pods_count_against_disruptions() -> None:
    leader, worker = templates()
    found = rendered()
    service = found[f"Service/{REVISION}"]["spec"]["selector"]
    assert (selects(service, leader), selects(service, worker)) == (True, False)
    budget = found[f"PodDisruptionBudget/{REVISION}"]["spec"]["selector"]["matchLabels"]
    assert (selects(budget, leader), selects(budget, worker)) == (True, True)
    router = container(found[f"Deployment/{REVISION}-router"]["spec"]["template"])["args"]
    chosen = dict(a.split("=") for a in router if a.startswith("firsttoken.dev/"))
    assert (selects(chosen, leader), selects(chosen, worker)) == (True, False)
    assert not selects(budget, found[f"Deployment/{REVISION}-router"]["spec"]["template"])


def test_both_are_started_with_the_same_flags_but_for_who_they_are() -> None:
    """vLLM's own multi-node arguments: docs, Parallelism and Scaling, "Running vLLM with MultiProcessing"."""
    leader, worker = (set(container(t)["args"]) for t in templates())
    assert leader - worker == {"--node-rank=0"}
    assert worker - leader == {"--node-rank=$(LWS_WORKER_INDEX)", "--headless"}
    assert leader & worker >= {
        "--nnodes=2", "--master-addr=$(LWS_LEADER_ADDRESS)", "--tensor-parallel-size=8", "--pipeline-parallel-size=2",
        "--distributed-executor-backend=mp",
    }  # fmt: skip


def test_each_pod_takes_the_devices_of_its_node() -> None:
    for template in templates():
        resources = container(template)["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == "8"
        assert resources["requests"]["cpu"] == "17"


def test_probes_and_scraping_are_the_leaders() -> None:
    leader, worker = templates()
    assert {"startupProbe", "readinessProbe", "livenessProbe", "ports"} <= container(leader).keys()
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "ports"} & container(worker).keys()
    assert "prometheus.io/scrape" in leader["metadata"]["annotations"]
    assert "prometheus.io/scrape" not in worker["metadata"].get("annotations", {})


def test_what_deployments_have_both_have() -> None:
    """Security, live settings, environment, what users add: from one function."""
    leader, worker = templates(podTemplate=cases.POD_TEMPLATE)
    for part in (
        "securityContext",
        "volumes",
        "affinity",
        "tolerations",
        "terminationGracePeriodSeconds",
        "nodeSelector",
    ):
        assert leader["spec"][part] == worker["spec"][part], part
    for part in ("image", "env", "securityContext", "volumeMounts", "resources"):
        assert container(leader)[part] == container(worker)[part], part
    assert {
        "name": "FIRSTTOKEN_ROLE",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{names.ROLE_LABEL}']"}},
    } in (container(worker)["env"])


def test_a_worker_waits_for_its_leaders_last_request() -> None:
    """A node that is drained ends a worker while its leader still streams."""
    command = container(templates()[1])["lifecycle"]["preStop"]["exec"]["command"]
    assert command[-1] == "http://$LWS_LEADER_ADDRESS:8000/metrics"
    compile(command[2], "hook", "exec")
    assert "expandvars" in command[2]
    # A leader that never had an address is gone: nobody waits for it until the deadline.
    command[-1] = "http://$LEADER.invalid:8000/metrics"
    command[3:6] = ["0", "600", "0"]
    subprocess.run(command, env={"PATH": os.environ["PATH"], "LEADER": "nobody"}, timeout=60, check=True)


def test_a_name_that_does_not_fit_the_labels_of_workers_is_refused() -> None:
    """The StatefulSet of workers is `<revision>-<group>`, and its pods carry `<that>-<hash>` as a label."""
    fits, too_long = "a" * groups.MAX_NAME_LENGTH, "a" * (groups.MAX_NAME_LENGTH + 1)
    assert len(f"{fits}-00000000-99-") + 10 <= 63
    revision_objects(cases.service(fits), f"{fits}-1a2b3c4d", cases.over_nodes(), cases.PROFILES, Images())
    with pytest.raises(UnsupportedPlan, match="a service name of 40 characters at most"):
        revision_objects(cases.service(too_long), f"{too_long}-1a2b3c4d", cases.over_nodes(), cases.PROFILES, Images())


def test_more_devices_a_pod_than_a_node_has_are_refused() -> None:
    plan = cases.plan(cases.role(tensor_parallel=8, pipeline_parallel=2))
    with pytest.raises(UnsupportedPlan, match="one pod of serve needs 16 GPUs"):
        revision_objects(cases.service(), REVISION, plan, cases.PROFILES, Images())
