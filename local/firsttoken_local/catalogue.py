"""What is built from Go modules: names, versions, packages and flags.

The versions stand in the go.mod files below ``local/go``; those here are labels, and a test holds them equal. A later
set for a real node (kubelet, containerd, DNS) goes beside these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GO_FOLDER = Path(__file__).parents[1] / "go"
_KUBE_VERSION = "k8s.io/component-base/version"


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
        ldflags=f"-s -w -X {_KUBE_VERSION}.gitVersion=v1.36.3 -X {_KUBE_VERSION}.gitMajor=1"
        f" -X {_KUBE_VERSION}.gitMinor=36",
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
)

SETS: Mapping[str, BuildSet] = {one.name: one for one in _SETS}
