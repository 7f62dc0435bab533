"""The chart without a cluster: lint, schemas of three Kubernetes versions, values, and what each of them does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from e2e.chart.rendering import (
    CHART,
    REPOSITORY,
    VERSIONS,
    Object,
    binary,
    example,
    fault,
    helm,
    objects,
    one,
    render,
    template,
)
from e2e.chart.rendering import write_schemas as write

from firsttoken.api.records import AcceleratorProfile
from firsttoken_local.schemas import kubeconform
from firsttoken_operator.__main__ import _parser

EVERYTHING: Object = {
    "acceleratorCatalogue": {"exclude": ["cpu"], "overrides": {"nvidia-l4": {"devicesPerNode": 4}}},
    "image": {"digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "pull"}],
    "logLevel": "debug",
    "extraArgs": ["--no-ask-envoys"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    "podLabels": {"team": "ml"},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "system-cluster-critical",
    "serviceAccount": {"name": "ft", "annotations": {"a": "b"}},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    },
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {}}],
        "extraEgress": [{"ports": [{"port": 9090, "protocol": "TCP"}]}],
    },
}
NAMESPACED: Object = {"watchNamespaces": ["team-a", "team-b"], "metrics": {"podMonitor": {"enabled": True}}}
BARE: Object = {
    "replicas": 1,
    "leaderElection": {"enabled": False},
    "crds": {"install": False},
    "acceleratorCatalogue": {"install": False},
    "rbac": {"create": False, "aggregateToUserRoles": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "metrics": {"service": {"enabled": False}, "scrapeAnnotations": False},
}
SETS = {"defaults": {}, "everything": EVERYTHING, "namespaced": NAMESPACED, "bare": BARE}


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_lint(values: Object, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = helm("lint", "--strict", CHART, "--values", file, "--namespace", "firsttoken-system")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_rendered_objects_conform_to_kubernetes(version: str, tmp_path: Path) -> None:
    schemas = write(version, tmp_path)
    for name, values in SETS.items():
        conformance = kubeconform(binary("kubeconform"), schemas, template(values, f"{version}.0"))
        assert conformance.problems == (), name
        assert conformance.valid == len(render(values)), name


def test_an_older_kubernetes_is_refused_in_one_line() -> None:
    said = fault("--kube-version", "1.33.5")
    assert "requires kubeVersion: >=1.34.0-0 which is incompatible with Kubernetes v1.33.5" in said


def test_definitions_are_the_generated_ones_and_stay() -> None:
    rendered = {o["metadata"]["name"]: o for o in render() if o["kind"] == "CustomResourceDefinition"}
    sources = [yaml.safe_load(path.read_text()) for path in (REPOSITORY / "crds").glob("*.yaml")]
    assert len(rendered) == len(sources) == 4
    for source in sources:
        copy = rendered[source["metadata"]["name"]]
        assert copy["spec"] == source["spec"]
        assert copy["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def profiles(values: Object) -> dict[str, Object]:
    config = one(render(values), "ConfigMap", "firsttoken-accelerators")
    documents = [d for d in yaml.safe_load_all(config["data"]["accelerators.yaml"]) if d]
    return {d["metadata"]["name"]: d for d in documents}


def test_catalogue_with_overrides_and_exclusions() -> None:
    shipped = {
        d["metadata"]["name"]: d for d in yaml.safe_load_all((CHART / "files/accelerators.yaml").read_text()) if d
    }
    assert profiles({}) == shipped
    changed = profiles(EVERYTHING)
    assert changed.keys() == shipped.keys() - {"cpu"}
    assert {n for n, d in changed.items() if d != shipped[n]} == {"nvidia-l4"}
    assert AcceleratorProfile.model_validate(changed["nvidia-l4"]).spec.devices_per_node == 4


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"replicas": "2"}, "at '/replicas': got string, want integer"),
        ({"replicas": 9}, "at '/replicas': maximum: got 9, want 5"),
        ({"image": {"tags": "x"}}, "at '/image': additional properties 'tags' not allowed"),
        (
            {"image": {"pullPolicy": "Sometimes"}},
            "at '/image/pullPolicy': value must be one of 'Always'",
        ),
        ({"image": {"digest": "sha256:1"}}, "at '/image/digest': 'sha256:1' does not match pattern"),
        ({"watchNamespaces": "team-a"}, "at '/watchNamespaces': got string, want array"),
        ({"watchNamespaces": ["Team A"]}, "at '/watchNamespaces/0': 'Team A' does not match pattern"),
        (
            {"metrics": {"podMonitor": {"interval": "often"}}},
            "at '/metrics/podMonitor/interval': 'often'",
        ),
        ({"extraArgs": ["workers=2"]}, "at '/extraArgs/0': 'workers=2' does not match pattern '^--[a-z]'"),
        ({"leaderElection": {"enabled": False}}, "replicas: more than one operator needs leaderElection.enabled: true"),
        ({"acceleratorCatalogue": {"exclude": ["gpu"]}}, 'acceleratorCatalogue: there is no shipped profile "gpu"'),
        ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the ServiceAccount to use, or set"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled: it selects the metrics Service",
        ),
    ],
)
def test_wrong_values_are_refused_in_one_clear_line(values: Object, line: str) -> None:
    said = fault(values=values)
    lines = [one for one in said.splitlines() if line in one]
    assert len(lines) == 1, said
    assert len(said.splitlines()) <= 4, said


@pytest.mark.parametrize("values", [{}, NAMESPACED, BARE], ids=["defaults", "namespaced", "bare"])
def test_the_operator_understands_its_arguments(values: Object) -> None:
    (container,) = one(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "firsttoken_operator"]
    arguments = _parser().parse_args(container["args"])
    assert arguments.namespace == values.get("watchNamespaces", [])
    assert arguments.leader_elect is (values is not BARE)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": arguments.metrics_port, "health": arguments.liveness_port}


def pod(values: Object | None = None) -> Object:
    found: Object = one(render(values), "Deployment")["spec"]["template"]
    return found


def test_pods_are_restricted_and_wait_for_no_writable_root() -> None:
    spec = pod()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - an emptyDir
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_a_changed_catalogue_rolls_the_pods_and_nothing_else_does() -> None:
    mark = "firsttoken.dev/catalogue"
    before = pod()["metadata"]["annotations"][mark]
    assert pod({"workers": 4})["metadata"]["annotations"][mark] == before
    changed = pod({"acceleratorCatalogue": {"exclude": ["cpu"]}})["metadata"]["annotations"][mark]
    assert changed != before


def test_S24_without_a_lease_two_operators_never_overlap() -> None:
    strategy = one(render(BARE), "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


def test_metrics_are_scraped_one_way() -> None:
    annotations = pod()["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9090"
    assert not any(a.startswith("prometheus.io/") for a in pod(EVERYTHING)["metadata"]["annotations"])


def test_pod_monitors_find_rendered_pods_and_label_them() -> None:
    """Ports, paths and labels fit what `firsttoken render` gives."""
    monitors = [o for o in render(EVERYTHING) if o["kind"] == "PodMonitor"]
    assert len(monitors) == 3
    deployments = [d for d in objects(example()) if d["kind"] == "Deployment"]
    assert {d["metadata"]["labels"]["app.kubernetes.io/component"] for d in deployments} == {
        "engine",
        "router",
        "gateway",
    }
    for deployment in deployments:
        template = deployment["spec"]["template"]
        labels, annotations = template["metadata"]["labels"], template["metadata"]["annotations"]
        (monitor,) = (m for m in monitors if m["spec"]["selector"]["matchLabels"].items() <= labels.items())
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        ports = {p["name"]: p["containerPort"] for c in template["spec"]["containers"] for p in c["ports"]}
        assert str(ports[endpoint["port"]]) == annotations["prometheus.io/port"]
        assert endpoint["path"] == annotations["prometheus.io/path"]
        targets = {r["targetLabel"]: r["sourceLabels"] for r in endpoint["relabelings"]}
        assert targets.keys() == {"firsttoken_service", "firsttoken_revision", "role"}


def test_values_in_the_documents_are_accepted() -> None:
    text = (REPOSITORY / "docs" / "install.md").read_text()
    blocks = [yaml.safe_load(block.split("```")[0]) for block in text.split("```yaml\n")[1:]]
    values = [block for block in blocks if not block.keys() & {"relabel_configs", "kind"}]
    assert len(values) == 3
    for block in values:
        assert render(block)


def test_readme_is_helm_docs_output(tmp_path: Path) -> None:
    """`make chart` writes it."""
    copy = tmp_path / "firsttoken"
    shutil.copytree(CHART, copy)
    (copy / "README.md").unlink()
    subprocess.run([binary("helm-docs"), "--chart-search-root", tmp_path, "-l", "error"], check=True, timeout=60)
    assert (copy / "README.md").read_text() == (CHART / "README.md").read_text()
