"""etcd, the API server, the controllers and the scheduler: what they are started with, and when they are ready."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from pathlib import Path

import yaml

from firsttoken_local.kube import ApiError, KubeClient
from firsttoken_local.kubeconfig import write_kubeconfig
from firsttoken_local.layout import Layout
from firsttoken_local.pki import Authority, Credential
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

SERVICE_CIDR = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"  # the first address: the Service "kubernetes"
POD_CIDR = "10.244.0.0/16"  # each node gets a /24 of it
OPERATOR_USER = "firsttoken-operator"
LOCAL_BINDING = "firsttoken-local-operator"  # not the chart's name: both may be in one cluster
CONTROLLER_MANAGER, SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

# Writes with their user, without the objects: enough to tell who changed what. Reads would be most of the log.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


def create_user(layout: Layout, user: str, groups: Sequence[str] = ()) -> Path:
    """Return the kubeconfig of a user, who authenticates with a client certificate of the cluster's authority."""
    authority = Authority(layout.pki)
    credential = authority.issue(f"user-{user.replace(':', '-')}", user, groups)
    path = layout.user_kubeconfig(user)
    write_kubeconfig(path, layout.server, authority.own.certificate, user, credential)
    return path


def prepare(layout: Layout) -> None:
    """Write keys, certificates, kubeconfigs and the audit policy."""
    layout.directory.mkdir(parents=True, exist_ok=True)
    authority = Authority(layout.pki)
    authority.service_account_key()
    _serving(layout)
    admin = authority.issue("user-admin", "admin", ["system:masters"])
    write_kubeconfig(layout.kubeconfig, layout.server, authority.own.certificate, "admin", admin)
    for user in (CONTROLLER_MANAGER, SCHEDULER, OPERATOR_USER):
        create_user(layout, user)
    (layout.directory / "audit-policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY, sort_keys=False))


def _serving(layout: Layout) -> Credential:
    """Return the certificate with which all components serve."""
    network = layout.network
    addresses = [network.kubernetes_service, network.host] if network else [SERVICE_IP]
    hosts = ["127.0.0.1", *addresses, "localhost", "kubernetes", "kubernetes.default"]
    hosts += ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    return Authority(layout.pki).issue("serving-node" if network else "serving", "firsttoken-local", hosts=hosts)


def etcd_arguments(layout: Layout) -> list[str]:
    """Return etcd's arguments: one member that never waits for the disk."""
    client = f"http://127.0.0.1:{layout.ports['etcd']}"
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    return [
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_arguments(layout: Layout) -> list[str]:
    """Return the API server's arguments."""
    serving, key = _serving(layout), Authority(layout.pki).service_account_key()
    services = layout.network.services if layout.network else SERVICE_CIDR
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports['apiserver']}",
        *_advertised(layout),
        f"--service-cluster-ip-range={services}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={layout.directory / 'audit-policy.yaml'}",
        f"--audit-log-path={layout.audit_log}",
        "--profiling=false",
    ]


def _advertised(layout: Layout) -> list[str]:
    """Return where the Service "kubernetes" leads, and how a real node's kubelet is reached."""
    if layout.network is None:
        return [
            "--advertise-address=127.0.0.1",  # otherwise it looks for a default route and ends when there is none
            # No endpoints for the Service "kubernetes": a loopback address is not accepted as one.
            "--endpoint-reconciler-type=none",
        ]
    client = Authority(layout.pki).issue("kubelet-client", "kubelet-client")
    return [
        f"--advertise-address={layout.network.host}",
        f"--kubelet-client-certificate={client.certificate}",
        f"--kubelet-client-key={client.key}",
        f"--kubelet-certificate-authority={layout.pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _component_arguments(layout: Layout, user: str, port: int) -> list[str]:
    """Return what the controller manager and the scheduler have in common.

    They run without leader election: with it they exit when a loaded machine delays the renewal of a lease.
    """
    kubeconfig, serving = layout.user_kubeconfig(user), _serving(layout)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup",  # the authority is given below; a cluster without aggregation has no other
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        "--leader-elect=false",
        "--profiling=false",
    ]


def controller_manager_arguments(layout: Layout) -> list[str]:
    """Return the controller manager's arguments: all of its controllers, each with its own service account."""
    authority, network = Authority(layout.pki), layout.network
    return [
        *_component_arguments(layout, CONTROLLER_MANAGER, layout.ports["controller-manager"]),
        "--use-service-account-credentials",
        "--node-monitor-grace-period=300s",  # a loaded machine can stall for longer than the 50 s of production
        f"--service-account-private-key-file={authority.service_account_key()}",
        f"--root-ca-file={authority.own.certificate}",
        f"--cluster-signing-cert-file={authority.own.certificate}",
        f"--cluster-signing-key-file={authority.own.key}",
        "--allocate-node-cidrs",
        f"--cluster-cidr={network.pods if network else POD_CIDR}",
        f"--service-cluster-ip-range={network.services if network else SERVICE_CIDR}",
    ]


def scheduler_arguments(layout: Layout) -> list[str]:
    """Return the scheduler's arguments."""
    return _component_arguments(layout, SCHEDULER, layout.ports["scheduler"])


def start_api(layout: Layout, processes: ProcessTable, binaries: Path) -> KubeClient:
    """Start etcd and the API server, wait until they are ready, and return the administrator's client.

    Raises:
        LocalError: one of them ended or was not ready within 90 s.
    """
    fresh = processes.start("etcd", [str(binaries / "etcd"), *etcd_arguments(layout)])
    if fresh:
        await_http(processes, "etcd", layout.ports["etcd"], "/health")
    processes.start("kube-apiserver", [str(binaries / "kube-apiserver"), *apiserver_arguments(layout)])
    client = KubeClient(layout.kubeconfig)

    def ready() -> bool:
        processes.check("etcd")
        processes.check("kube-apiserver")
        try:
            return client.raw("GET", "/readyz", timeout_s=5.0) == b"ok"
        except ApiError:  # 403 before the roles exist, 500 before its own start is complete
            return False

    logs = [processes.log("kube-apiserver"), processes.log("etcd")]
    wait_for("the API server's /readyz", ready, timeout_s=90.0, logs=logs)
    return client


def start_controllers(layout: Layout, processes: ProcessTable, binaries: Path) -> None:
    """Start the controller manager and the scheduler; they become ready on their own."""
    for name, arguments in (
        ("kube-controller-manager", controller_manager_arguments(layout)),
        ("kube-scheduler", scheduler_arguments(layout)),
    ):
        processes.start(name, [str(binaries / name), *arguments])


def await_http(processes: ProcessTable, name: str, port: int, path: str, timeout_s: float = 60.0) -> None:
    """Wait until a process answers 200 at a path of its plain HTTP port.

    Raises:
        LocalError: it ended, or did not answer so in time.
    """

    def answers() -> bool:
        processes.check(name)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except http.client.HTTPException:
            return False
        finally:
            connection.close()

    wait_for(f"{name} at port {port}", answers, timeout_s=timeout_s, logs=[processes.log(name)])


def grant_operator(client: KubeClient) -> None:
    """Bind the operator's user to cluster-admin, until the chart's own roles are used instead."""
    client.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": LOCAL_BINDING},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR_USER}],
        }
    )
