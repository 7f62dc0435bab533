"""The kinds the operator reads or writes, known in advance: no discovery, no cache file, least privilege."""

from dataclasses import dataclass

from firsttoken.api.base import GROUP


@dataclass(frozen=True)
class Kind:
    """One kind and its place in the API."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


SERVICE = Kind(GROUP, "v1alpha1", "InferenceService", "inferenceservices")
REVISION = Kind(GROUP, "v1alpha1", "InferenceRevision", "inferencerevisions")
PROFILE = Kind(GROUP, "v1alpha1", "AcceleratorProfile", "acceleratorprofiles", namespaced=False)
POD = Kind("", "v1", "Pod", "pods")
EVENT = Kind("", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
LEADER_WORKER_SET = Kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")

# What a service is made of; every one is watched, so that a hand-made change or deletion is put right (S1).
CHILDREN = (
    DEPLOYMENT,
    Kind("", "v1", "Service", "services"),
    Kind("", "v1", "ConfigMap", "configmaps"),
    Kind("", "v1", "ServiceAccount", "serviceaccounts"),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    HTTP_ROUTE,
    LEADER_WORKER_SET,
)
OPTIONAL = (HTTP_ROUTE, LEADER_WORKER_SET)  # a cluster may lack them

_BY_NAME = {(k.api_version, k.kind): k for k in (SERVICE, REVISION, PROFILE, POD, EVENT, LEASE, *CHILDREN)}


def kind_of(api_version: str, kind: str) -> Kind:
    """The kind of an object. Raises KeyError for one that the operator never handles."""
    return _BY_NAME[(api_version, kind)]
