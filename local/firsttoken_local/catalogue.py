"""What is built from Go modules: names, versions, packages and flags.

The versions stand in the go.mod files below ``local/go``; those here are labels, and a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GO_FOLDER = Path(__file__).parents[1] / "go"
_KUBE_VERSION = "k8s.io/component-base/version"
_KUBE_FLAGS = (
    f"-s -w -X {_KUBE_VERSION}.gitVersion=v1.36.3 -X {_KUBE_VERSION}.gitMajor=1 -X {_KUBE_VERSION}.gitMinor=36"
)


@dataclass(frozen=True)
class BuildSet:
    """One go.mod and what is taken from it.

    ``binaries`` maps the name of a binary to its Go package; ``files`` maps a name in the cache to a folder of
    ``module``; ``about`` is how many packages a build without any cache compiles (it dates from the last upgrade).
    """

    name: str
    module: str
    version: str
    binaries: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    ldflags: str = "-s -w"
    tags: str = ""
    about: int = 0

    @property
    def folder(self) -> Path:
        """The folder of the go.mod."""
        return GO_FOLDER / self.name

    def flags(self) -> list[str]:
        """Return the flags of ``go build``, the same on every machine."""
        flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", self.ldflags]
        return flags + (["-tags", self.tags] if self.tags else [])


_HELM_KUBE_VERSION = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("lint/rules", "chartutil")
    for part, number in (("Major", 1), ("Minor", 36))
)


def _openapi(version: str) -> BuildSet:
    """What that version's API server serves, as OpenAPI v3 documents: the schemas of its own kinds."""
    minor = version.removeprefix("v").rpartition(".")[0]
    folder = "api/openapi-spec/v3"
    return BuildSet(f"openapi-{minor}", "k8s.io/kubernetes", version, files={"v3": folder})


_SETS = (
    BuildSet(
        name="kubernetes",
        module="k8s.io/kubernetes",
        version="v1.36.3",
        binaries={
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        },
        ldflags=_KUBE_FLAGS,
        about=2720,
    ),
    BuildSet(
        name="kwok",
        module="sigs.k8s.io/kwok",
        version="v0.8.0",
        binaries={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        files={"stages": "kustomize/stage"},
        about=1200,
    ),
    BuildSet(
        name="prometheus",
        module="github.com/prometheus/prometheus",
        version="v0.316.0",
        binaries={
            "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
            "promtool": "github.com/prometheus/prometheus/cmd/promtool",
        },
        ldflags="-s -w -X github.com/prometheus/common/version.Version=3.16.0",
        # Without the cloud providers' discovery; Kubernetes' is compiled in anyway, promtool imports it.
        tags="remove_all_sd,enable_kubernetes_sd",
        about=1280,
    ),
    BuildSet(
        name="kubeconform",
        module="github.com/yannh/kubeconform",
        version="v0.8.0",
        binaries={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
        about=220,
    ),
    BuildSet(
        name="gateway-api",
        module="sigs.k8s.io/gateway-api",
        version="v1.6.3",
        files={"crds": "config/crd/standard"},
    ),
    # The definition alone: its controller is not built here, tests say what it would report.
    BuildSet(
        name="lws",
        module="sigs.k8s.io/lws",
        version="v0.8.0",
        files={"crds": "config/crd/bases"},
    ),
    BuildSet(
        name="helm",
        module="helm.sh/helm/v3",
        version="v3.22.0",
        binaries={"helm": "helm.sh/helm/v3/cmd/helm"},
        # Without a stamp helm takes itself for v3.22 of the development branch, and every cluster for 1.20.
        ldflags=f"-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0 {_HELM_KUBE_VERSION}",
        about=1400,
    ),
    BuildSet(
        name="helm-docs",
        module="github.com/norwoodj/helm-docs",
        version="v1.14.2",
        binaries={"helm-docs": "github.com/norwoodj/helm-docs/cmd/helm-docs"},
        ldflags="-s -w -X main.version=1.14.2",
        about=250,
    ),
    *(_openapi(version) for version in ("v1.34.4", "v1.35.4", "v1.36.3")),
    BuildSet(
        name="prometheus-operator",
        module="github.com/prometheus-operator/prometheus-operator",
        version="v0.85.0",
        files={"crds": "example/prometheus-operator-crd"},
    ),
)

# A real node beside the fake ones. The kubelet has a set of its own, so that the control plane's stays as it is.
_NODE_SETS = (
    BuildSet(
        name="kubernetes-node",
        module="k8s.io/kubernetes",
        version="v1.36.3",
        binaries={
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        },
        ldflags=_KUBE_FLAGS,
        about=1810,
    ),
    BuildSet(
        name="containerd",
        module="github.com/containerd/containerd/v2",
        version="v2.3.7",
        binaries={
            "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
            "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
        },
        ldflags="-s -w -X github.com/containerd/containerd/v2/version.Version=v2.3.7",
        about=1010,
    ),
    BuildSet(
        name="coredns",
        module="github.com/coredns/coredns",
        version="v1.15.0",
        binaries={"coredns": "firsttoken.dev/local/coredns", "pause": "firsttoken.dev/local/coredns/pause"},
        about=810,
    ),
)

SETS: Mapping[str, BuildSet] = {one.name: one for one in (*_SETS, *_NODE_SETS)}
CLUSTER_SETS = tuple(one.name for one in _SETS)
NODE_SETS = tuple(one.name for one in _NODE_SETS)
