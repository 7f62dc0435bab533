"""What is written for the node: its daemons' configuration, credentials, and the specification of its first process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from firsttoken_local.errors import LocalError
from firsttoken_local.kubeconfig import write_kubeconfig
from firsttoken_local.layout import Layout
from firsttoken_local.node import NAME, cgroups
from firsttoken_local.node.network import NodeNetwork, name_servers
from firsttoken_local.node.paths import NodePaths
from firsttoken_local.node.requirements import cni_folder, command
from firsttoken_local.pki import Authority, Credential

PAUSE = "localhost/pause:1"
DNS_READY_PORT, PROXY_HEALTH_PORT = 8181, 10256
CRI = "io.containerd.cri.v1"
# What the kubelet would set for the whole machine; see `init.mounts`.
SHOWN = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
# Paths that the daemons have built in, and what lies there in the node's namespace.
BUILT_IN = {
    "/var/lib/kubelet": "var/kubelet",  # the sockets of device plugins
    "/var/log/containers": "var/containers",  # links to the containers' logs
    "/var/lib/cni": "var/cni",  # the network plugins' cache
    "/run/containerd": "var/containerd",  # the sockets of the shims
    "/tmp/kwok-local-path-provisioner": "var/volumes",  # noqa: S108 - where KWOK's volumes lie, for pods that run
}


def containerd_toml(paths: NodePaths, snapshotter: str = "overlayfs") -> str:
    """Return containerd's configuration: everything below the state directory, no registry, no hooks."""
    runtime = f"plugins.'{CRI}.runtime'"
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not set a sandbox's -998.
    return f"""\
version = 3
root = "{paths.containerd}"
state = "{paths.run}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.blockfile"]
[grpc]
  address = "{paths.socket}"
[ttrpc]
  address = "{paths.socket}.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "{paths.root}/var/opt"
[plugins.'{CRI}.images']
  snapshotter = "{snapshotter}"
  [plugins.'{CRI}.images'.pinned_images]
    sandbox = "{PAUSE}"
[{runtime}]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [{runtime}.containerd]
    default_runtime_name = "runc"
    [{runtime}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{runtime}.containerd.runtimes.runc.options]
        BinaryName = "{command("runc")}"
        Root = "{paths.run}/runc"
        SystemdCgroup = false
  [{runtime}.cni]
    bin_dirs = ["{cni_folder()}"]
    conf_dir = "{paths.config}/cni"
"""


def cni_config(network: NodeNetwork, paths: NodePaths) -> dict[str, Any]:
    """Return the pods' network: each has a link of its own to the node, which routes between them.

    A bridge would need the kernel's br_netfilter for Services: answers between pods would not pass the translation.
    """
    ipam = {
        "type": "host-local",
        "dataDir": str(paths.run / "addresses"),
        "ranges": [[{"subnet": network.node_pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    link = {"type": "ptp", "mtu": 1400, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": cgroups.NAME, "plugins": [link]}


def kubelet_config(layout: Layout, network: NodeNetwork, paths: NodePaths, serving: Credential) -> dict[str, Any]:
    """Return the kubelet's configuration, with thresholds that a full disk of a developer does not reach."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.NAME}",
        "containerRuntimeEndpoint": f"unix://{paths.socket}",
        "address": network.node,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "clusterDomain": "cluster.local",
        "clusterDNS": [network.node],
        "resolvConf": str(paths.config / "resolv.conf"),
        "podLogsDir": str(paths.root / "logs"),
        "volumePluginDir": str(paths.root / "var" / "plugins"),
        "makeIPTablesUtilChains": False,
        "failSwapOn": False,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def proxy_config(network: NodeNetwork, kubeconfig: Path) -> dict[str, Any]:
    """Return kube-proxy's configuration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": network.pods,
        "hostnameOverride": NAME,
        "healthzBindAddress": f"{network.node}:{PROXY_HEALTH_PORT}",
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def corefile(network: NodeNetwork, paths: NodePaths, kubeconfig: Path, *, forward: bool) -> str:
    """Return CoreDNS's configuration: the cluster's names, and the machine's name servers for the rest."""
    upstream = f"  forward . {paths.config}/resolv.conf\n" if forward else ""
    return f"""\
.:53 {{
  bind {network.node}
  errors
  ready {network.node}:{DNS_READY_PORT}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
  }}
{upstream}  cache 5
}}
"""


def write_config(layout: Layout, paths: NodePaths) -> None:
    """Write all of it; files whose content stays are not touched (kube-proxy ends when its file is written)."""
    network, folder = _network(layout), paths.config
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    authority = Authority(layout.pki)
    serving = authority.issue("node-serving", "kubelet", hosts=[network.node, NAME])
    users = {
        "kubelet": (f"system:node:{NAME}", ["system:nodes"]),
        "proxy": ("system:kube-proxy", []),
        "dns": ("coredns", []),
    }
    for name, (user, groups) in users.items():
        credential = authority.issue(f"node-{name}", user, groups)
        server = f"https://{network.host}:{layout.ports['apiserver']}"
        write_kubeconfig(folder / f"{name}.kubeconfig", server, authority.own.certificate, user, credential)
    servers = list(name_servers(loopback=False))
    texts = {
        "containerd.toml": containerd_toml(paths, snapshotter_for(paths.root)),
        "cni/10-pods.conflist": json.dumps(cni_config(network, paths), indent=1),
        "kubelet.yaml": yaml.safe_dump(kubelet_config(layout, network, paths, serving)),
        "proxy.yaml": yaml.safe_dump(proxy_config(network, folder / "proxy.kubeconfig")),
        "Corefile": corefile(network, paths, folder / "dns.kubeconfig", forward=bool(servers)),
        "resolv.conf": "".join(f"nameserver {one}\n" for one in servers),
    }
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def specification(layout: Layout, paths: NodePaths, binaries: dict[str, Path]) -> dict[str, Any]:
    """Return what :mod:`firsttoken_local.node.init` is told: mounts, addresses, daemons and what they wait for."""
    network, kubernetes = _network(layout), binaries["kubernetes-node"]
    config, joined = paths.config, str(paths.joined)
    kubelet = [
        str(kubernetes / "kubelet"),
        f"--config={config}/kubelet.yaml",
        f"--kubeconfig={config}/kubelet.kubeconfig",
        f"--hostname-override={NAME}",
        f"--node-ip={network.node}",
        f"--root-dir={paths.kubelet}",
    ]
    daemons = {
        "containerd": ([str(binaries["containerd"] / "containerd"), f"--config={config}/containerd.toml"], None),
        "kubelet": (kubelet, joined),
        "kube-proxy": ([str(kubernetes / "kube-proxy"), f"--config={config}/proxy.yaml"], joined),
        "coredns": ([str(binaries["coredns"] / "coredns"), f"-conf={config}/Corefile"], joined),
    }
    return {
        "run": str(paths.run),
        "logs": str(layout.directory / "logs"),
        "host": network.host,
        "node": network.node,
        "binds": [[str(paths.root / inner), outer] for outer, inner in BUILT_IN.items()],
        "shown": SHOWN,
        "daemons": [{"name": name, "argv": argv, "after": after} for name, (argv, after) in daemons.items()],
    }


def snapshotter_for(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return containerd's snapshotter for a folder: overlayfs, which cannot lie on another overlayfs."""
    best, kind = -1, ""
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4])
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split()[0]
    return "native" if kind == "overlay" else "overlayfs"


def _network(layout: Layout) -> NodeNetwork:
    if layout.network is None:
        raise LocalError("this cluster was started without a real node")
    return layout.network
