"""Pods on the real node: they run, are reached, are watched and are killed as on any Kubernetes node."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest
from e2e.node.support import Namespace, Object, container_status, host_pod, pod, ready

from firsttoken_local.cluster import LocalCluster, up
from firsttoken_local.errors import LocalError
from firsttoken_local.node.helpers import BUSYBOX
from firsttoken_local.node.images import Directory, File, Tree, build_image
from firsttoken_local.node.realnode import DAEMONS, RealNode
from firsttoken_local.waiting import wait_for

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


def web_server(text: str = "one") -> tuple[Object, Object, Object]:
    """A web server that serves a ConfigMap, with a probe, and its Service."""
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"index.html": text}}
    server = pod(
        "web",
        *("httpd", "-f", "-p", "8080", "-h", "/web"),
        container={
            "readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1},
            "volumeMounts": [{"name": "web", "mountPath": "/web"}],
        },
        volumes=[{"name": "web", "configMap": {"name": "web"}}],
    )
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    return content, server, {**service, "spec": {"selector": {"app": "web"}, "ports": ports}}


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/index.html", timeout=5.0) as answer:
        return str(answer.read().decode())


def test_only_gpu_pods_go_to_fake_nodes(namespace: Namespace) -> None:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    namespace.apply(pod("gpu", "serve", image="not-there", container=gpus, tolerations=[TOLERATION]))
    namespace.apply(pod("plain", "sleep", "infinity"))
    assert namespace.wait_pod("gpu", ready)["spec"]["nodeName"].startswith("gpu-")
    assert namespace.wait_pod("plain", ready)["spec"]["nodeName"] == "real"
    assert namespace.shell("plain", "hostname").strip() == "plain"


def test_service_is_reached_by_name_and_from_the_machine(namespace: Namespace, cluster: LocalCluster) -> None:
    for obj in web_server():
        namespace.apply(obj)
    namespace.wait_pod("web", ready)
    client = namespace.client_pod()
    address = cluster.client.get("v1", "Service", "web", namespace.name)
    assert address is not None
    cluster_ip = address["spec"]["clusterIP"]
    wait_for("the Service from the machine", lambda: fetch(cluster_ip) == "one", timeout_s=20.0)
    for name in ("web", f"web.{namespace.name}.svc.cluster.local"):
        assert namespace.shell(client, f"getent hosts {name}", bash=True).split()[0] == cluster_ip
    request = "exec 3<>/dev/tcp/web/80; printf 'GET /index.html HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    assert namespace.shell(client, request, bash=True).endswith("one")
    assert cluster_ip in namespace.shell("web", f"nslookup web.{namespace.name}.svc.cluster.local")
    # The Service "kubernetes" leads to the API server, which listens on the machine's loopback address only.
    namespace.shell(client, "exec 3<>/dev/tcp/kubernetes.default/443", bash=True)


def test_pod_reaches_itself_through_its_service(namespace: Namespace) -> None:
    namespace.apply(host_pod("self", "busybox", "httpd", "-f", "-p", "8080", "-h", "/etc"))
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "self"}, "ports": ports}
    namespace.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mirror"}, "spec": spec})
    namespace.wait_pod("self", ready)
    request = "exec 3<>/dev/tcp/mirror/80; printf 'GET /passwd HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    wait_for("the answer", lambda: "nobody:x:65534" in namespace.tried("self", request, bash=True), timeout_s=20.0)


def test_logs_exit_status_and_restart_by_probe(namespace: Namespace) -> None:
    namespace.apply(pod("brief", "sh", "-c", "echo said; exit 3", restartPolicy="Never"))
    probe = {"livenessProbe": {"exec": {"command": ["test", "-e", "/run/alive"]}, "periodSeconds": 1}}
    probe["livenessProbe"]["failureThreshold"] = 1
    namespace.apply(pod("lazy", "sleep", "infinity", container=probe))
    ended = namespace.wait_pod("brief", lambda found: found["status"]["phase"] == "Failed")
    assert container_status(ended)["state"]["terminated"]["exitCode"] == 3
    assert namespace.kubectl("logs", "brief") == "said\n"
    namespace.wait_pod("lazy", lambda found: container_status(found).get("restartCount", 0) >= 1)


def test_memory_limit_kills(namespace: Namespace) -> None:
    limit = {"resources": {"limits": {"memory": "24Mi"}}}
    hungry = ("dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1")
    namespace.apply(pod("hungry", *hungry, container=limit, restartPolicy="Never"))
    ended = namespace.wait_pod("hungry", lambda found: found["status"]["phase"] == "Failed")
    assert container_status(ended)["state"]["terminated"]["reason"] == "OOMKilled"


def test_changed_configmap_arrives(namespace: Namespace) -> None:
    content, server, _ = web_server()
    namespace.apply(content)
    namespace.apply(server)
    address = namespace.wait_pod("web", ready)["status"]["podIP"]
    assert fetch(f"{address}:8080") == "one"
    namespace.apply({**content, "data": {"index.html": "two"}})
    namespace.kubectl("annotate", "pod", "web", "changed=1")  # otherwise the kubelet looks once a minute
    wait_for("the new content", lambda: fetch(f"{address}:8080") == "two", timeout_s=90.0)


def test_volume_of_the_default_class_is_written(namespace: Namespace) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v"}, "spec": claim})
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]
    script = "echo kept >> /v/file; cat /v/file"
    for name, expected in (("first", "kept\n"), ("second", "kept\nkept\n")):
        obj = pod(name, "sh", "-c", script, container=mounts, volumes=volumes, restartPolicy="Never")
        namespace.apply(obj)
        namespace.wait_pod(name, lambda found: found["status"]["phase"] == "Succeeded")
        assert namespace.kubectl("logs", name) == expected


def test_image_of_a_directory_runs(namespace: Namespace, node: RealNode, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("content\n")
    (source / "link").symlink_to("deep/file")
    busybox = [Directory("bin"), File("bin/busybox", Path("/bin/busybox"), 0o755)]
    settings = {"Entrypoint": ["/bin/busybox", "cat"], "Cmd": ["/data/link"], "User": "65534:65534"}
    archive = build_image("localhost/tree:1", [busybox, [Tree(source, "data")]], settings, target=tmp_path / "i.tar")
    assert node.import_image(archive) == "localhost/tree:1"
    assert {"localhost/tree:1", BUSYBOX} <= set(node.images())
    obj = pod("tree", image="localhost/tree:1", restartPolicy="Never")
    del obj["spec"]["containers"][0]["command"]
    namespace.apply(obj)
    namespace.wait_pod("tree", lambda found: found["status"]["phase"] == "Succeeded")
    assert namespace.kubectl("logs", "tree") == "content\n"


def test_second_real_node_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="only real node") as fault:
        up(directory=tmp_path / "second", real_node=True)
    assert str(cluster.directory) in fault.value.message
    assert not (tmp_path / "second").exists()


def test_killed_daemons_come_back_and_pods_stay(namespace: Namespace, node: RealNode) -> None:
    namespace.apply(pod("steady", "sleep", "infinity"))
    namespace.wait_pod("steady", ready)
    old = {name: node.pid(name) for name in DAEMONS}
    for pid in old.values():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    wait_for("new daemons", lambda: all((node.pid(x) or old[x]) != old[x] for x in DAEMONS), timeout_s=30.0)
    node.await_ready(namespace.cluster.client)
    wait_for("exec", lambda: namespace.tried("steady", "echo hello") == "hello\n", timeout_s=60.0)
    assert container_status(namespace.wait_pod("steady", ready))["restartCount"] == 0


def test_killed_node_starts_again_like_after_a_reboot(namespace: Namespace, cluster: LocalCluster) -> None:
    namespace.apply(pod("steady", "sleep", "infinity"))
    namespace.wait_pod("steady", ready)
    record = cluster.processes.record("node")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    wait_for("the node's end", lambda: not cluster.processes.alive("node"), timeout_s=10.0)
    up(directory=cluster.directory, nodes=2, prometheus=False)
    restarted = namespace.wait_pod("steady", lambda found: container_status(found).get("restartCount") and ready(found))
    assert restarted["spec"]["nodeName"] == "real"
    assert namespace.shell("steady", "echo hello") == "hello\n"
