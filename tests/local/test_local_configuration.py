"""What is written for the cluster: nodes, KWOK's stages, Prometheus' configuration, certificates, kubeconfigs."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from firsttoken_local import controlplane, fakenodes, ports
from firsttoken_local.apply import in_order, read_objects
from firsttoken_local.audit import read_writes
from firsttoken_local.errors import LocalError
from firsttoken_local.fakenodes import NodeShape, kwok_config, render_node
from firsttoken_local.kube import ApiError, Resource, unless_busy
from firsttoken_local.kubeconfig import read_kubeconfig
from firsttoken_local.layout import PORT_NAMES, Layout, cluster_folder, load_layout
from firsttoken_local.pki import Authority
from firsttoken_local.prometheus import parse_samples, render_config


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state", {name: 20000 + number for number, name in enumerate(PORT_NAMES)})


def test_layout_survives_and_a_broken_one_is_none(layout: Layout) -> None:
    assert load_layout(layout.directory) is None
    layout.save()
    assert load_layout(layout.directory) == layout
    (layout.directory / "state.json").write_text('{"ports": {"apiserver": 1}}')
    assert load_layout(layout.directory) is None


@pytest.mark.parametrize("name", ["", "..", "../x", "A", "a/b", "-a", "a" * 60])
def test_cluster_names_cannot_leave_their_folder(name: str) -> None:
    with pytest.raises(LocalError, match="no cluster name"):
        cluster_folder(name)


def test_gpu_node_carries_what_the_scheduler_and_the_planner_read() -> None:
    node = render_node("gpu-0", "zone-b", NodeShape(labels={"team": "x"}))
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    labels = node["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert labels["nvidia.com/gpu.memory"] == "40960"
    assert (labels["topology.kubernetes.io/zone"], labels["team"]) == ("zone-b", "x")
    assert all(isinstance(value, str) for value in labels.values())
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "taints" not in node.get("spec", {})


def test_node_without_gpus_has_no_gpu_label() -> None:
    node = render_node("cpu-0", "zone-a", NodeShape(gpus=0))
    assert not [label for label in node["metadata"]["labels"] if label.startswith("nvidia.com/")]
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]


def test_kwok_config_is_all_stages_as_yaml_documents(tmp_path: Path) -> None:
    for number, name in enumerate(fakenodes.STAGES):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"kind: Stage\nmetadata: {{name: s{number}}}\n")
    documents = list(yaml.safe_load_all(kwok_config(tmp_path)))
    assert [one["metadata"]["name"] for one in documents] == [f"s{n}" for n in range(len(fakenodes.STAGES))]


def test_prometheus_scrapes_every_process_and_added_targets(layout: Layout) -> None:
    jobs = {job["job_name"]: job for job in render_config(layout, 0.5)["scrape_configs"]}
    assert set(jobs) == {"apiserver", "controller-manager", "scheduler", "etcd", "kwok", "prometheus", "added"}
    for name in ("apiserver", "controller-manager", "scheduler"):
        assert jobs[name]["scheme"] == "https"
        assert jobs[name]["static_configs"] == [{"targets": [f"127.0.0.1:{layout.ports[name]}"]}]
    assert jobs["added"]["scrape_interval"] == "500ms"


def test_samples_of_vector_scalar_and_refusal() -> None:
    series = {"metric": {"job": "a"}, "value": [10.5, "+Inf"]}
    [sample] = parse_samples({"status": "success", "data": {"resultType": "vector", "result": [series]}})
    assert (sample.labels["job"], sample.value, sample.time_s) == ("a", float("inf"), 10.5)
    [sample] = parse_samples({"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}})
    assert sample.value == 2.0
    with pytest.raises(LocalError, match="matrix"):
        parse_samples({"status": "success", "data": {"resultType": "matrix", "result": []}})
    with pytest.raises(LocalError, match="parse error"):
        parse_samples({"status": "error", "error": "parse error"})


def test_everything_listens_on_loopback_only(layout: Layout) -> None:
    controlplane.prepare(layout)
    assert "--bind-address=127.0.0.1" in controlplane.apiserver_arguments(layout)
    assert "--bind-address=127.0.0.1" in controlplane.scheduler_arguments(layout)
    urls = [one for one in controlplane.etcd_arguments(layout) if "-urls=" in one]
    assert urls
    assert all("=http://127.0.0.1:" in one for one in urls)


def test_no_leader_election_and_every_controller(layout: Layout) -> None:
    controlplane.prepare(layout)
    arguments = controlplane.controller_manager_arguments(layout)
    assert "--leader-elect=false" in arguments
    assert not [one for one in arguments if one.startswith("--controllers")]


def test_audit_policy_leaves_reads_out_and_keeps_every_write() -> None:
    first, last = controlplane.AUDIT_POLICY["rules"]
    assert first == {"level": "None", "verbs": ["get", "list", "watch"]}
    assert last == {"level": "Metadata"}


def test_users_authenticate_as_themselves(layout: Layout) -> None:
    controlplane.prepare(layout)
    controlplane.create_user(layout, "tester", ["team:a", "team:b"])
    certificate = x509.load_pem_x509_certificate((layout.pki / "user-tester.crt").read_bytes())
    subject = {(one.oid._name, one.value) for one in certificate.subject}
    assert subject == {("organizationName", "team:a"), ("organizationName", "team:b"), ("commonName", "tester")}
    connection = read_kubeconfig(layout.user_kubeconfig("tester"))
    assert (connection.host, connection.port) == ("127.0.0.1", layout.ports["apiserver"])
    assert connection.context.verify_mode is ssl.CERT_REQUIRED
    operator = yaml.safe_load(layout.user_kubeconfig("firsttoken-operator").read_text())
    assert operator["users"][0]["name"] == "firsttoken-operator"


def test_keys_are_private_and_issued_once(tmp_path: Path) -> None:
    one = Authority(tmp_path).issue("serving", "x", hosts=["127.0.0.1", "localhost"])
    before = one.certificate.read_bytes()
    assert Authority(tmp_path).issue("serving", "x").certificate.read_bytes() == before
    assert stat.S_IMODE(one.key.stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate(before)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate(Authority(tmp_path).own.certificate.read_bytes())
    )


def test_foreign_kubeconfig_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters: []\n")
    with pytest.raises(LocalError, match="not a kubeconfig"):
        read_kubeconfig(path)


def test_ports_are_given_once_and_outside_the_kernel_s_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    chosen = [ports.choose_ports("abcdef") for _ in range(20)]
    every = [port for one in chosen for port in one.values()]
    assert len(set(every)) == len(every)
    assert all(ports.FIRST <= port < ports.LAST < 32768 for port in every)


@pytest.mark.parametrize(
    ("resource", "namespace", "path"),
    [
        (Resource("v1", "Pod", "pods", True), "a", "/api/v1/namespaces/a/pods/x"),
        (Resource("v1", "Node", "nodes", False), "a", "/api/v1/nodes/x"),
        (Resource("apps/v1", "Deployment", "deployments", True), None, "/apis/apps/v1/deployments/x"),
    ],
)
def test_resource_paths(resource: Resource, namespace: str | None, path: str) -> None:
    assert resource.path(namespace, "x") == path


def test_files_are_read_deep_and_ordered_by_dependency(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text(
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: d}\n---\n---\n"
        "kind: List\napiVersion: v1\nitems:\n- {kind: Namespace, apiVersion: v1, metadata: {name: n}}\n"
    )
    (tmp_path / "sub" / "z.yml").write_text(
        "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: c}\n"
    )
    (tmp_path / "notes.txt").write_text("not: read")
    kinds = [one["kind"] for one in in_order(read_objects([tmp_path]))]
    assert kinds == ["CustomResourceDefinition", "Namespace", "Deployment"]


@pytest.mark.parametrize("text", ["a: [", "just text", "kind: X", "kind: X\napiVersion: v1\nmetadata: {}"])
def test_files_with_faults_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(LocalError, match=r"bad\.yaml"):
        read_objects([path])


def test_audit_log_is_filtered_by_user_and_place_and_tolerates_a_half_line(tmp_path: Path) -> None:
    def entry(user: str, stage: str = "ResponseComplete") -> str:
        target = {"resource": "pods", "namespace": "a", "name": "p"}
        event = {"stage": stage, "verb": "patch", "user": {"username": user}, "objectRef": target}
        return json.dumps({**event, "responseStatus": {"code": 200}}) + "\n"

    log = tmp_path / "audit.log"
    log.write_text(entry("one") + entry("two") + entry("two", "ResponseStarted"))
    since = log.stat().st_size
    with log.open("a") as file:
        file.write(entry("two") + entry("two")[:20])
    assert [write.user for write in read_writes(log)] == ["one", "two", "two"]
    assert len(read_writes(log, "two")) == 2
    [write] = read_writes(log, since=since)
    assert (write.verb, write.resource, write.name, write.status) == ("patch", "pods", "p", 200)


@pytest.mark.parametrize(("status", "goes_on"), [(429, True), (500, True), (503, True), (403, False), (404, False)])
def test_a_wait_outlives_an_overloaded_api_server_but_not_a_refusal(status: int, goes_on: bool) -> None:
    def answer() -> bool:
        raise ApiError(status, "Reason", "message")

    if goes_on:
        assert unless_busy(answer)() is None
    else:
        with pytest.raises(ApiError):
            unless_busy(answer)()
