"""Whether pods can be played here, what the cluster is told of it, and that namespaces need no root."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from firsttoken_local import cluster, operator
from firsttoken_local.errors import LocalError
from firsttoken_local.fakenodes import ROLE_KEY, STAGES, kwok_config
from firsttoken_local.layout import PORT_NAMES, Layout, load_layout
from firsttoken_local.player import ROLES, start
from firsttoken_local.prometheus import render_config


def layout(folder: Path, **more: Any) -> Layout:
    return Layout(folder, {name: 20000 + number for number, name in enumerate(PORT_NAMES)}, **more)


def test_who_may_not_have_namespaces_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_allowed", lambda _: False)
    assert "namespaces of one's own are not allowed here" in start.obstacle()
    monkeypatch.setattr(start.shutil, "which", lambda name: None if name == "ip" else f"/bin/{name}")
    assert start.obstacle() == "the command `ip` is missing: install the package iproute2"


def test_without_the_right_of_root_a_user_namespace_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_allowed", lambda argv: "--user" in argv)
    assert start._isolated()[1:3] == ["--user", "--map-root-user"]
    monkeypatch.setattr(start, "_allowed", lambda _: True)
    assert "--user" not in start._isolated()


@pytest.mark.skipif(start.obstacle() != "", reason="namespaces are not allowed here")
def test_every_pod_address_is_local_in_a_user_namespace() -> None:
    if not start._allowed(["unshare", "--user", "--map-root-user", "--net"]):
        pytest.skip("user namespaces are not allowed here")
    script = "ip link set lo up; ip route add local 10.244.0.0/16 dev lo; ip route get 10.244.77.5"
    argv = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.startswith("local 10.244.77.5 dev lo")


def test_kwok_leaves_readiness_and_the_end_of_played_pods_to_the_player(tmp_path: Path) -> None:
    for name in STAGES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            yaml.safe_dump({"metadata": {"name": path.stem}, "spec": {"selector": {"matchExpressions": []}}})
        )
    ready = {
        "metadata": {"name": "pod-ready"},
        "spec": {
            "selector": {"matchExpressions": [{"key": ".status.phase", "operator": "In", "values": ["Pending"]}]},
            "next": {"statusTemplate": 'status: "True"\nstatus: "True"\nready: true\n'},
        },
    }
    (tmp_path / "pod/fast/pod-ready.yaml").write_text(yaml.safe_dump(ready))
    found = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(kwok_config(tmp_path, played=True))}

    def operator(name: str) -> str:
        (one,) = (e for e in found[name]["selector"]["matchExpressions"] if e["key"] == ROLE_KEY)
        assert one["values"] == list(ROLES)
        return str(one["operator"])

    assert (operator("pod-ready"), operator("pod-started"), operator("pod-delete")) == ("NotIn", "In", "NotIn")
    assert found["pod-ready"]["next"] == ready["spec"]["next"]  # type: ignore[index]
    assert found["pod-started"]["next"]["statusTemplate"] == 'status: "True"\nstatus: "False"\nready: false\n'
    assert not any(e.get("key") == ROLE_KEY for e in found["pod-complete"]["selector"]["matchExpressions"])


def test_a_cluster_remembers_that_its_pods_are_played(tmp_path: Path) -> None:
    layout(tmp_path, played=True).save()
    found = load_layout(tmp_path)
    assert found is not None
    assert found.played
    with pytest.raises(LocalError, match="run `down`, then `up` with a real node"):
        cluster.up(directory=tmp_path, real_node=True)


def test_prometheus_reaches_played_pods_by_the_player(tmp_path: Path) -> None:
    jobs = {job["job_name"]: job for job in render_config(layout(tmp_path, played=True))["scrape_configs"]}
    player = 20000 + PORT_NAMES.index("player")
    assert jobs["pods"]["proxy_url"] == f"http://127.0.0.1:{player}"
    assert not any("proxy_url" in job for name, job in jobs.items() if name != "pods")
    assert "pods" not in {job["job_name"] for job in render_config(layout(tmp_path))["scrape_configs"]}


def test_the_operator_asks_envoys_where_there_is_a_way() -> None:
    def way(node: object, *, played: bool) -> list[str]:
        given: Any = SimpleNamespace(node=node, layout=SimpleNamespace(played=played), ports={"player": 7})
        return operator._way_to_pods(given)

    assert way(None, played=False) == ["--no-ask-envoys"]
    assert way(None, played=True) == ["--pod-proxy", "http://127.0.0.1:7"]
    assert way("real", played=False) == []
