"""The real node without root: its addresses, its configuration, who may have it, what it is started with."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from firsttoken_local import controlplane
from firsttoken_local.errors import LocalError
from firsttoken_local.fakenodes import NodeShape, render_node
from firsttoken_local.layout import PORT_NAMES, Layout, load_layout
from firsttoken_local.node import config, host, init, network, registration, requirements, teardown
from firsttoken_local.node.cgroups import hierarchies
from firsttoken_local.node.network import NodeNetwork, choose_network
from firsttoken_local.node.paths import NodePaths
from firsttoken_local.progress import Silent

NETWORK = choose_network([])


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    ports = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}
    return Layout(tmp_path / "state", ports, NETWORK)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "node.json"
    monkeypatch.setattr(registration, "FILE", path)
    monkeypatch.setattr(teardown, "LOCK", tmp_path / "node.lock")
    return path


def network_of(*texts: str) -> NodeNetwork:
    return choose_network([ipaddress.IPv4Network(text) for text in texts])


def test_free_machine_gets_the_ranges_of_clusters_without_a_node() -> None:
    assert (NETWORK.services, NETWORK.pods) == (controlplane.SERVICE_CIDR, controlplane.POD_CIDR)
    assert NETWORK.kubernetes_service == controlplane.SERVICE_IP
    assert NETWORK.node_pods == "10.244.255.0/24"


@pytest.mark.parametrize("taken", ["10.96.0.0/12", "10.244.7.0/24", "10.199.0.1/32", "10.96.3.4/32"])
def test_chosen_ranges_overlap_nothing_that_is_routed(taken: str) -> None:
    chosen = network_of(taken)
    ranges = [ipaddress.IPv4Network(one) for one in (chosen.services, chosen.pods, f"{chosen.host}/32", chosen.node)]
    assert not any(one.overlaps(ipaddress.IPv4Network(taken)) for one in ranges)
    assert not any(a.overlaps(b) for number, a in enumerate(ranges) for b in ranges[:number])


def test_full_range_is_a_clear_fault() -> None:
    with pytest.raises(LocalError, match="no range of addresses is free"):
        network_of("10.128.0.0/9")


def test_name_servers_on_loopback_are_looked_for_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub, real = tmp_path / "stub", tmp_path / "real"
    stub.write_text("nameserver 127.0.0.53\nsearch x\n")
    real.write_text("nameserver fe80::1\nnameserver 192.0.2.7\nnameserver\n")
    monkeypatch.setattr(network, "RESOLVERS", (stub, real, tmp_path / "none"))
    assert list(network.name_servers(loopback=False)) == ["192.0.2.7"]
    assert list(network.name_servers(loopback=True)) == ["127.0.0.53"]


def test_layout_keeps_the_node_s_addresses(layout: Layout) -> None:
    layout.save()
    assert load_layout(layout.directory) == layout


def test_api_server_stays_on_loopback_and_is_advertised_to_the_node(layout: Layout) -> None:
    controlplane.prepare(layout)
    arguments = controlplane.apiserver_arguments(layout)
    assert "--bind-address=127.0.0.1" in arguments
    assert f"--advertise-address={NETWORK.host}" in arguments
    assert not [one for one in arguments if one.startswith("--endpoint-reconciler-type")]
    [path] = [one.partition("=")[2] for one in arguments if one.startswith("--tls-cert-file")]
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", NETWORK.kubernetes_service, NETWORK.host}
    rules = host.rules(NETWORK, layout.ports["apiserver"])
    assert f'iifname "{network.LINK}" ip daddr {NETWORK.host} tcp dport 20000 dnat to 127.0.0.1:20000' in rules


def test_fake_nodes_beside_a_real_one_are_tainted() -> None:
    assert "spec" not in render_node("gpu-0", "zone-a", NodeShape())
    [taint] = render_node("gpu-0", "zone-a", NodeShape(), tainted=True)["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("nvidia.com/gpu", "NoSchedule")


def test_configuration_stays_below_the_state_directory(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "command", lambda name: f"/bin/{name}")
    monkeypatch.setattr(config, "cni_folder", lambda: Path("/cni"))
    controlplane.prepare(layout)
    paths = NodePaths(layout.directory / "node")
    config.write_config(layout, paths)
    kubelet = yaml.safe_load((paths.config / "kubelet.yaml").read_text())
    for key in ("podLogsDir", "volumePluginDir", "resolvConf", "tlsCertFile"):
        assert Path(kubelet[key]).is_relative_to(layout.directory), key
    assert kubelet["clusterDNS"] == [NETWORK.node]
    text = (paths.config / "containerd.toml").read_text()
    for key in ("root", "state", "  address", "  path", "        Root"):
        lines = [line for line in text.splitlines() if line.startswith(f"{key} = ")]
        assert lines
        assert all(str(layout.directory) in line for line in lines), key
    [link] = json.loads((paths.config / "cni/10-pods.conflist").read_text())["plugins"]
    assert link["ipam"]["ranges"] == [[{"subnet": NETWORK.node_pods}]]
    before = (paths.config / "proxy.yaml").stat().st_mtime_ns
    config.write_config(layout, paths)
    assert (paths.config / "proxy.yaml").stat().st_mtime_ns == before  # kube-proxy ends when it is written


def test_only_containerd_starts_before_the_api_server(layout: Layout) -> None:
    paths = NodePaths(layout.directory / "node")
    binaries = {name: Path("/b") / name for name in ("kubernetes-node", "containerd", "coredns")}
    spec = config.specification(layout, paths, binaries)
    assert {one["name"]: one["after"] for one in spec["daemons"]} == {
        "containerd": None,
        "kubelet": str(paths.joined),
        "kube-proxy": str(paths.joined),
        "coredns": str(paths.joined),
    }
    assert paths.joined.is_relative_to(spec["run"])  # removed whenever the node starts


def test_too_long_paths_are_refused(tmp_path: Path) -> None:
    NodePaths(Path("/short/node")).check_length()
    with pytest.raises(LocalError, match="bytes too long"):
        NodePaths(tmp_path / ("x" * 100) / "node").check_length()


def test_snapshotter_by_the_file_system_of_the_state_directory(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "1 0 0:1 / / rw shared:1 - overlay overlay rw\n"
        "2 1 0:2 / /data rw - ext4 /dev/x rw\n3 1 0:3 / /data/deep rw - overlay o rw\n"
    )
    found = [config.snapshotter_for(Path(folder), table) for folder in ("/a", "/data/x", "/data/deep/x", "/database")]
    assert found == ["native", "overlayfs", "native", "native"]


def test_second_real_node_is_refused_with_the_remedy(file: Path, tmp_path: Path) -> None:
    first = registration.CLUSTERS / "one"
    registration.claim(first, lambda _: True, lambda _: None)
    with pytest.raises(LocalError, match="down --name one"):
        registration.claim(tmp_path / "two", lambda _: True, lambda _: None)
    assert json.loads(file.read_text())["directory"] == str(first)


def test_node_of_a_cluster_that_is_gone_is_released(file: Path, tmp_path: Path) -> None:
    registration.claim(tmp_path / "gone", lambda _: True, lambda _: None)
    released: list[Path] = []
    registration.claim(tmp_path / "two", lambda _: False, lambda one: released.append(one.directory))
    assert released == [tmp_path / "gone"]
    assert json.loads(file.read_text())["directory"] == str(tmp_path / "two")


def test_values_noted_first_are_those_put_back(file: Path, tmp_path: Path) -> None:
    mine = registration.claim(tmp_path, lambda _: True, lambda _: None)
    registration.note(mine, forwarding="0", folders=["/a", "/a/b"])
    again = registration.claim(tmp_path, lambda _: True, lambda _: None)
    noted = registration.note(again, forwarding="1", folders=["/a/b", "/c"])
    assert (noted.forwarding, noted.folders) == ("0", ["/a", "/a/b", "/c"])
    assert registration.registered() == noted
    file.write_text("{")
    assert registration.registered() is None


def test_teardown_leaves_another_cluster_s_node_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.claim(tmp_path / "one", lambda _: True, lambda _: None)
    monkeypatch.setattr(teardown, "release", lambda _: pytest.fail("released"))
    teardown.remove_traces(tmp_path / "two")
    assert file.exists()


def test_nothing_is_deleted_below_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"1 0 0:1 / / rw - ext4 d rw\n2 1 0:2 / {tmp_path}/a\\040b/c rw - tmpfs t rw\n")
    assert teardown.mounts_below(tmp_path / "a b", table) == [f"{tmp_path}/a b/c"]
    assert teardown.mounts_below(tmp_path / "a", table) == []
    monkeypatch.setattr(teardown, "mounts_below", lambda _: ["/x"])
    with pytest.raises(LocalError, match="/x is a mount"):
        teardown.refuse_mounts(tmp_path)


def test_missing_packages_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "check_rights", lambda: None)
    monkeypatch.setattr(requirements, "missing_packages", lambda: ["runc", "nftables"])
    monkeypatch.setattr(requirements.shutil, "which", lambda *_, **__: None)
    with pytest.raises(LocalError, match=r"runc nftables$") as fault:
        requirements.check_machine(Silent())
    assert "\n" not in fault.value.message


def test_what_a_real_node_may_not_do_here_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def finished(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        tried.append(argv)
        return subprocess.CompletedProcess(argv, status, "", "unshare: unshare failed: Operation not permitted\n")

    status = 0
    monkeypatch.setattr(requirements, "finished", finished)
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements.sys, "platform", "linux")
    requirements.check_rights()
    assert {"--mount", "--pid", "--net", "--fork"} < set(tried[0])
    status = 1
    with pytest.raises(LocalError, match=r"namespaces and mounts.*Operation not permitted$") as fault:
        requirements.check_machine(Silent())
    assert "\n" not in fault.value.message
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    with pytest.raises(LocalError, match="needs root"):
        requirements.check_rights()
    monkeypatch.setattr(requirements.sys, "platform", "darwin")
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 0)  # root there is told about Linux
    with pytest.raises(LocalError, match="needs Linux"):
        requirements.check_rights()


def test_both_versions_of_cgroups_are_found(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "a /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\nb /sys/fs/cgroup/unified cgroup2 rw 0 0\nc / ext4 rw 0 0\n"
    )
    assert hierarchies(table) == [
        ("cgroup", Path("/sys/fs/cgroup/cpu")),
        ("cgroup2", Path("/sys/fs/cgroup/unified")),
    ]


def test_daemon_that_keeps_ending_is_started_ever_later(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    daemon = init.Daemon("d", ["/bin/sh", "-c", "echo run; exit 3"], tmp_path / "d.log", None)
    pauses = []
    for _ in range(6):
        daemon.start()
        _, status = os.waitpid(daemon.pid, 0)
        daemon.ended(status)
        pauses.append(daemon.pause)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert daemon.due > time.monotonic() + 7
    daemon.started = time.monotonic() - init.EARLY_S
    daemon.ended(status)
    assert daemon.pause == init.FIRST_PAUSE_S
    assert "d ended with status 3" in capfd.readouterr().out
    assert (tmp_path / "d.log").read_text() == "run\n" * 6
