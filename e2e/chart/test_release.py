"""The chart on a real API server: install, the operator with no more than its rights, upgrade, uninstall."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from e2e.chart.release import Release, apply_service, profile, ready, run_helm
from e2e.chart.rendering import CHART, REPOSITORY, helm
from e2e.support import GROUP, inference_service, unique

from firsttoken.api.service import InferenceService
from firsttoken.manifests.sources import served_name
from firsttoken_local.builds import ensure
from firsttoken_local.cluster import LocalCluster, ephemeral_cluster
from firsttoken_local.progress import Printed
from firsttoken_local.waiting import wait_for

NAMESPACE = "firsttoken-system"
CRD = "inferenceservices.firsttoken.dev"
DEFINITIONS = (CRD, *(f"{kind}.firsttoken.dev" for kind in ("acceleratorprofiles", "inferencerevisions")))
MONITORS = ("podmonitors", "servicemonitors")


@pytest.fixture(scope="module")
def empty() -> Iterator[LocalCluster]:
    """A cluster without Firsttoken's definitions, with the Prometheus operator's."""
    with ephemeral_cluster(nodes=2, prometheus=False, progress=Printed()) as cluster:
        cluster.kubectl("delete", "crd", *DEFINITIONS, "performancereports.firsttoken.dev", "--wait=true")
        folder = ensure(["prometheus-operator"], Printed())["prometheus-operator"] / "crds"
        cluster.apply([folder / f"monitoring.coreos.com_{name}.yaml" for name in MONITORS])
        yield cluster


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart as an older version would be: a definition without a column, another figure in the catalogue."""
    folder = tmp_path_factory.mktemp("previous") / "firsttoken"
    shutil.copytree(CHART, folder)
    chart = folder / "Chart.yaml"
    chart.write_text(chart.read_text().replace("\nversion: 0.1.0", "\nversion: 0.0.9"))
    path = folder / "files" / "crds" / "firsttoken.dev_inferenceservices.yaml"
    definition = yaml.safe_load(path.read_text())
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    columns[:] = [column for column in columns if column["name"] != "Bottleneck"]
    path.write_text(yaml.safe_dump(definition))
    profiles = folder / "files" / "accelerators.yaml"
    profiles.write_text(profiles.read_text().replace("devicesPerNode: 8", "devicesPerNode: 4"))
    return folder


@pytest.fixture(scope="module")
def release(empty: LocalCluster, previous: Path) -> Iterator[Release]:
    """The older chart, installed; tests below run in their order."""
    flags = ("--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout=90s")
    monitors = {"metrics": {kind: {"enabled": True} for kind in ("serviceMonitor", "podMonitor")}}
    notes = run_helm(empty, "install", "firsttoken", previous, *flags, values=monitors)
    yield Release(empty, "firsttoken", NAMESPACE, notes.split("NOTES:\n")[1])
    empty.processes.stop([f"operator-{NAMESPACE}"])


def columns(cluster: LocalCluster) -> list[str]:
    definition = cluster.client.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD)
    assert definition is not None
    return [column["name"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]]


def test_install_into_an_empty_cluster(release: Release) -> None:
    assert release.deployment()["status"]["availableReplicas"] == 2
    assert "Bottleneck" not in columns(release.cluster)
    monitors = release.cluster.client.list("monitoring.coreos.com/v1", "PodMonitor", NAMESPACE)
    assert len(monitors) == 3


def test_notes_say_what_to_do_next_and_their_service_is_valid(release: Release) -> None:
    for command in (
        "rollout status deployment/firsttoken-operator",
        "get acceleratorprofiles",
        "wait --for=condition=Ready",
    ):
        assert command in release.notes
    text = release.notes.split("<<'EOF'\n")[1].split("EOF")[0]
    service = InferenceService.model_validate(yaml.safe_load(text))
    assert service.metadata.name == "first"
    assert f'"model": "{served_name(service.spec.model)}"' in release.notes
    release.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)


def test_catalogue_is_applied_with_the_operator_s_rights(release: Release) -> None:
    lines = release.apply_catalogue().splitlines()
    assert len(lines) == 23
    assert all(line.endswith(": applied") for line in lines), lines
    assert profile(release.cluster, "nvidia-a100-40gb")["spec"]["devicesPerNode"] == 4


def test_the_operator_serves_with_no_more_than_its_rights(release: Release) -> None:
    """Two replicas with a router: its Role is handed out without `escalate`."""
    cluster = release.cluster
    log = release.start_operator()
    apply_service(cluster, "one", "default")
    wait_for("one to be Ready", lambda: ready(cluster, "one", "default"), timeout_s=90.0, logs=[log])
    roles = cluster.client.list("rbac.authorization.k8s.io/v1", "Role", "default")
    assert any(r["metadata"]["name"].endswith("-router") for r in roles)
    lease = cluster.client.get("coordination.k8s.io/v1", "Lease", "firsttoken-operator", NAMESPACE)
    assert lease is not None
    events = cluster.client.list("v1", "Event", "default")
    assert any(e["involvedObject"]["kind"] == "InferenceService" for e in events)
    apply_service(cluster, "two", "default")
    cluster.client.delete(GROUP, "InferenceService", "two", "default")
    _change_live_weights(release)
    text = log.read_text().lower()
    assert "forbidden" not in text, text[-4000:]
    assert "permission" not in text, text[-4000:]


def _change_live_weights(release: Release) -> None:
    """A new revision: routes change, pods are annotated, the old one's objects are deleted."""
    cluster = release.cluster
    service = inference_service("one", model={"maxModelLength": 4096})
    service["metadata"]["namespace"] = "default"
    before = ready(cluster, "one", "default")
    assert before is not None
    old = before["status"]["revision"]["stable"]
    cluster.client.apply(service, field_manager="test")

    def moved() -> bool:
        now = ready(cluster, "one", "default")
        return (
            now is not None
            and now["status"]["revision"]["stable"] != old
            and not now["status"]["revision"].get("draining")
        )

    wait_for("the new revision to serve alone", moved, timeout_s=90.0, logs=[cluster.processes.log(release.process)])

    def gone() -> bool:
        return cluster.client.get("apps/v1", "Deployment", old, "default") is None

    wait_for("the old revision to be gone", gone, timeout_s=60.0, logs=[cluster.processes.log(release.process)])


def test_users_may_write_services_and_never_revisions(release: Release) -> None:
    cluster, namespace = release.cluster, unique("team")
    cluster.kubectl("create", "namespace", namespace)
    for role in ("view", "edit", "admin"):
        cluster.kubectl("-n", namespace, "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er")

    def may(user: str, verb: str, resource: str) -> bool:
        answer = cluster.client.request(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "spec": {
                    "user": user,
                    "resourceAttributes": {
                        "namespace": namespace,
                        "verb": verb,
                        "group": "firsttoken.dev",
                        "resource": resource,
                    },
                }
            },
        )
        return bool(answer["status"]["allowed"])

    # The aggregation controller needs a moment.
    wait_for("aggregated roles", lambda: may("editer", "create", "inferenceservices"), timeout_s=30.0)
    assert may("adminer", "delete", "inferenceservices")
    assert may("viewer", "list", "inferencerevisions")
    assert not may("viewer", "patch", "inferenceservices")
    for user in ("viewer", "editer", "adminer"):
        for verb in ("create", "update", "patch", "delete"):
            assert not may(user, verb, "inferencerevisions"), (user, verb)


def test_K5_a_namespaced_release_serves_its_namespaces_only(release: Release) -> None:
    cluster, home = release.cluster, unique("home")
    mine, lost, other = unique("mine"), unique("lost"), unique("other")
    for namespace in (home, mine, lost, other):
        cluster.kubectl("create", "namespace", namespace)
    release.stop_operator()
    values = {
        "watchNamespaces": [mine, lost],
        "crds": {"install": False},
        "rbac": {"aggregateToUserRoles": False},
        "acceleratorCatalogue": {"install": False},
    }
    run_helm(cluster, "install", "firsttoken", CHART, "--namespace", home, values=values)
    second = Release(cluster, "firsttoken", home)
    log = second.start_operator()
    for namespace in (mine, lost, other):
        apply_service(cluster, "a", namespace)
    wait_for("a to be Ready", lambda: all(ready(cluster, "a", one) for one in (mine, lost)), timeout_s=90.0, logs=[log])
    unseen = cluster.client.get(GROUP, "InferenceService", "a", other)
    assert unseen is not None
    assert unseen["status"] == {"observedGeneration": -1}, "the default"
    text = log.read_text().lower()
    assert "forbidden" not in text, text[-4000:]
    assert "permission" not in text, text[-4000:]
    _take_away(second, lost, mine)
    second.stop_operator()
    helm("uninstall", "firsttoken", "--namespace", home, kubeconfig=cluster.kubeconfig)


def _take_away(release: Release, lost: str, kept: str) -> None:
    """One served namespace is deleted and made anew, without the Role that went with it; the other must not feel it.

    Ten tries that failed are more than kopf makes of itself (nine) before it gives up, and the process with it. A Role
    that is deleted alone shows late: bookmarks keep the open watches alive, and only a new one is asked for its rights.
    """
    cluster, log = release.cluster, release.cluster.processes.log(release.process)
    cluster.kubectl("delete", "namespace", lost, "--wait=true", "--timeout=100s")
    cluster.kubectl("create", "namespace", lost)

    def refused_often() -> bool:
        cluster.processes.check(release.process)
        lines = log.read_text().splitlines()
        return any("Request attempt #10 failed" in line and f"/namespaces/{lost}/" in line for line in lines)

    wait_for(f"ten refused tries in {lost}", refused_often, timeout_s=240.0, logs=[log])
    apply_service(cluster, "later", kept)
    wait_for("later to be Ready", lambda: ready(cluster, "later", kept), timeout_s=90.0, logs=[log])


def test_argo_cd_s_settings_get_the_health_script_and_keep_the_rest(release: Release) -> None:
    """The commands of docs/gitops.md, from the root of the repository."""
    cluster = release.cluster
    cluster.kubectl("create", "namespace", "argocd")
    cluster.kubectl("-n", "argocd", "create", "configmap", "argocd-cm", "--from-literal=url=https://argocd.example.com")
    text = (REPOSITORY / "docs" / "gitops.md").read_text()
    command = text.split("```console\n$ ")[1].split("```")[0]
    path = f"{cluster.kubectl_path.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    subprocess.run(["bash", "-ec", command], env=environment, cwd=REPOSITORY, check=True, timeout=60)
    config = cluster.client.get("v1", "ConfigMap", "argocd-cm", "argocd")
    assert config is not None
    script = (CHART / "files" / "argocd-health.lua").read_text()
    assert config["data"] == {
        "url": "https://argocd.example.com",
        "resource.customizations.health.firsttoken.dev_InferenceService": script,
    }


def test_upgrade_updates_definitions_and_keeps_objects_and_edits(release: Release) -> None:
    cluster = release.cluster
    before = cluster.client.get(GROUP, "InferenceService", "one", "default")
    assert before is not None
    cluster.kubectl("patch", "accprof", "nvidia-t4", "--type=merge", "-p", '{"spec": {"memory": "15000Mi"}}')
    run_helm(cluster, "upgrade", "firsttoken", CHART, "--namespace", NAMESPACE, "--wait", "--timeout=90s")
    assert "Bottleneck" in columns(cluster)
    after = cluster.client.get(GROUP, "InferenceService", "one", "default")
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    lines = release.apply_catalogue().splitlines()
    left = [line for line in lines if not line.endswith(": applied")]
    assert len(left) == 1
    assert left[0].startswith("nvidia-t4: left as it is: conflict with")
    assert ".spec.memory" in left[0]
    assert profile(cluster, "nvidia-t4")["spec"]["memory"] == "15000Mi"
    assert profile(cluster, "nvidia-a100-40gb")["spec"]["devicesPerNode"] == 8


def test_uninstall_keeps_definitions_and_services_and_a_new_install_takes_them_over(release: Release) -> None:
    cluster = release.cluster
    release.stop_operator()
    flags = ("--namespace", NAMESPACE, "--wait")
    done = helm("uninstall", "firsttoken", *flags, kubeconfig=cluster.kubeconfig)
    assert done.returncode == 0, done.stderr
    assert cluster.client.get("apps/v1", "Deployment", "firsttoken-operator", NAMESPACE) is None
    before = cluster.client.get(GROUP, "InferenceService", "one", "default")
    assert before is not None
    stable = before["status"]["revision"]["stable"]
    assert cluster.client.get("apps/v1", "Deployment", stable, "default") is not None
    assert profile(cluster, "nvidia-t4")["spec"]["memory"] == "15000Mi"
    run_helm(cluster, "install", "firsttoken", CHART, *flags, "--timeout=90s")
    after = cluster.client.get(GROUP, "InferenceService", "one", "default")
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
