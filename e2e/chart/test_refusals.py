"""What the chart refuses, without a cluster: values left empty, flags of its own, a second operator for everything."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from e2e.chart.empty_values import MAY_BE_EMPTY, emptied, paths
from e2e.chart.rendering import CHART, Object, fault, helm, one, render, template

RBAC = "rbac.authorization.k8s.io"


def missing(said: str) -> set[str]:
    """The dotted keys that helm's lines on the schema name as missing."""
    found = set()
    for place, names in re.findall(r"at '([^']*)': missing propert(?:y|ies) (.*)", said):
        section = place.strip("/").split("/") if place else []
        found |= {".".join((*section, name)) for name in re.findall(r"'([^']+)'", names)}
    return found


def test_every_field_left_empty_is_named() -> None:
    """An empty `leaderElection.id` once gave the operator every Lease of its namespace."""
    wanted = {path for path, section in paths() if not section} - MAY_BE_EMPTY
    assert missing(fault(values=emptied(wanted))) == wanted


@pytest.mark.parametrize("nested", [False, True], ids=["outer", "inner"])
def test_every_section_left_empty_is_named(nested: bool) -> None:
    wanted = {path for path, section in paths() if section and nested is ("." in path)}
    assert len(wanted) == (3 if nested else 11)
    assert missing(fault(values=emptied(wanted))) == wanted


def test_what_may_be_left_empty_renders_the_default() -> None:
    assert template(emptied(MAY_BE_EMPTY)) == template()


def test_parts_of_what_is_handed_on_are_left_out_by_null() -> None:
    values = {"podSecurityContext": {"runAsUser": None}, "resources": {"limits": None}}
    pod = one(render(values), "Deployment")["spec"]["template"]["spec"]
    assert "runAsUser" not in pod["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["resources"].keys() == {"requests"}


@pytest.mark.parametrize(
    ("argument", "flag", "remedy"),
    [
        ("--no-leader-elect", "--no-leader-elect", "set leaderElection.enabled instead"),
        ("--no-lead", "--no-leader-elect", "set leaderElection.enabled instead"),  # argparse takes it as the former
        ("--leader-elect", "--leader-elect", "set leaderElection.enabled instead"),
        ("--leader-election-id=mine", "--leader-election-id", "set leaderElection.id instead"),
        ("--workers=2", "--workers", "set workers instead"),
        ("--namespace=team-a", "--namespace", "set watchNamespaces instead"),
        ("--metrics-port=1", "--metrics-port", "leave it out, the Service and the monitors ask port 9090"),
    ],
)
def test_flags_that_the_chart_renders_are_refused_with_the_value_to_set(argument: str, flag: str, remedy: str) -> None:
    said = fault(values={"extraArgs": ["--no-ask-envoys", argument]})
    assert f"extraArgs: the chart itself renders {flag}, so {argument} can't be given here: {remedy}\n" in said
    assert len(said.splitlines()) <= 4, said


def test_other_flags_come_last() -> None:
    values: Object = {"extraArgs": ["--no-ask-envoys", "--bind=::"]}
    (container,) = one(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--no-ask-envoys", "--bind=::"]


class Answers(BaseHTTPRequestHandler):
    """The API server's answers to helm's `lookup` of ClusterRoleBindings, and to nothing else."""

    server: Cluster

    def do_GET(self) -> None:
        resource = {"name": "clusterrolebindings", "namespaced": False, "kind": "ClusterRoleBinding", "verbs": ["list"]}
        answers: dict[str, Any] = {
            f"/apis/{RBAC}/v1": {"kind": "APIResourceList", "groupVersion": f"{RBAC}/v1", "resources": [resource]},
            f"/apis/{RBAC}/v1/clusterrolebindings": {
                "kind": "ClusterRoleBindingList",
                "apiVersion": f"{RBAC}/v1",
                "items": self.server.bindings,
            },
        }
        answer = answers.get(self.path.partition("?")[0])
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer or {}).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Cluster(ThreadingHTTPServer):
    """A cluster that has ClusterRoleBindings only."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        other = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "other"}}
        self.bindings: list[Object] = [other]

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here."""
        entries = {
            "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}],
            "users": [{"name": "stub", "user": {}}],
        }
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "stub", **entries}))
        return path


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_second_operator_for_all_namespaces_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")

    def said(release: str, namespace: str, values: Object) -> str:
        flags = ("--dry-run=server", "--kube-version", "1.36.3", "--values", "-", "--namespace", namespace)
        done = helm("template", release, CHART, *flags, kubeconfig=kubeconfig, stdin=json.dumps(values))
        assert (done.returncode == 0) is (done.stderr == ""), done.stderr
        return done.stderr

    some: Object = {"watchNamespaces": ["team-a"]}
    assert said("firsttoken", "firsttoken-system", {}) == ""
    cluster.bindings.append(one(render(some), "ClusterRoleBinding", cluster_name(some)))
    assert said("second", "elsewhere", {}) == ""
    cluster.bindings.append(one(render(), "ClusterRoleBinding"))
    line = (
        "watchNamespaces: release firsttoken in namespace firsttoken-system serves all namespaces already; name those"
    )
    for release, namespace in (("second", "firsttoken-system"), ("firsttoken", "elsewhere")):
        assert line in said(release, namespace, {})
        assert len(said(release, namespace, {}).splitlines()) <= 4
    assert said("firsttoken", "firsttoken-system", {}) == ""  # its own upgrade
    assert said("second", "elsewhere", some) == ""


def cluster_name(values: Object, release: str = "firsttoken", namespace: str = "firsttoken-system") -> str:
    """The name of a release's only ClusterRoleBinding."""
    done = helm("template", release, CHART, "--namespace", namespace, "--values", "-", stdin=json.dumps(values))
    assert done.returncode == 0, done.stderr
    names = re.findall(r"kind: ClusterRoleBinding\nmetadata:\n  name: (\S+)", done.stdout)
    assert len(names) == 1
    return str(names[0])


def test_cluster_scoped_names_of_two_releases_differ() -> None:
    some: Object = {"watchNamespaces": ["models"], "crds": {"install": False}}
    pairs = [("a", "team"), ("firsttoken", "team-a"), ("a" * 50, "n" * 63), ("b" * 50, "n" * 63)]
    names = [cluster_name(some, release, namespace) for release, namespace in pairs]
    assert len(set(names)) == len(names), names
    assert all(re.fullmatch(r"[a-z0-9][-a-z0-9]{0,53}-[0-9a-f]{8}", name) for name in names), names
    assert cluster_name({}) == "firsttoken-operator"
