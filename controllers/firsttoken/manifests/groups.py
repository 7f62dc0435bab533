"""A replica on several nodes: one LeaderWorkerSet (LWS) a revision, each of its groups one replica.

The leader's pod answers requests; the pods on further nodes compute for it (`vllm serve --headless`). vLLM's own
processes do the moving, by `--nnodes` (vLLM docs, "Parallelism and Scaling"; vllm/v1/executor/multiproc_executor.py),
and LWS says to each pod which it is (its webhook sets LWS_LEADER_ADDRESS and LWS_WORKER_INDEX).
"""

from typing import Any

from firsttoken.manifests.errors import UnsupportedPlan

Object = dict[str, Any]

API_VERSION, KIND = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
LEADER_ADDRESS = "LWS_LEADER_ADDRESS"
_WORKER_INDEX = "LWS_WORKER_INDEX"
# LWS replaces a group when a container in it restarts. While a pod of it waits for its node or pulls its image, ranks
# that gave up on it restart in place: without this each of them would throw away what the others have. LWS 0.8 asks
# whether it is there, not for its value (pkg/controllers/pod_controller.go, handleRestartPolicy).
AFTER_START = {"leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start": "true"}

# The pods of a group's workers carry `<service>-<8 hex>-<group>-<hash>` as a label (StatefulSet: the name of its
# ControllerRevision), of 63 characters at most: up to 100 groups, and 10 characters of hash.
MAX_NAME_LENGTH = 63 - len("-00000000") - len("-99") - len("-") - 10


def check_name(service: str) -> None:
    """Raises UnsupportedPlan for a service whose name is too long for the labels of its workers."""
    if len(service) > MAX_NAME_LENGTH:
        raise UnsupportedPlan(
            f"replicas on several nodes need a service name of {MAX_NAME_LENGTH} characters at most, {service!r} has "
            f"{len(service)} (a StatefulSet's name becomes part of a label): give the service a shorter one"
        )


def leader_worker_set(metadata: Object, nodes: int, leader: Object, worker: Object) -> Object:
    """The LeaderWorkerSet without `replicas`, from the templates of both kinds of pods."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "annotations": AFTER_START},
        "spec": {
            "leaderWorkerTemplate": {
                "size": nodes,
                # A replica with a rank missing answers nobody, and vLLM can't take one back in.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": worker,
            },
            # A Service for each group, `<name>-<group>`, that also leads to a leader which isn't ready yet. The shared
            # one would be called like ours, which leads to ready leaders only.
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
            # Only for a template that somebody changes by hand: one group after the other, without further GPUs.
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            # The leader gets ready only when the workers are there.
            "startupPolicy": "LeaderCreated",
        },
    }


def member(*, worker: bool) -> tuple[dict[str, str], list[Object]]:
    """vLLM's flags that say which pod of its group this is, and the environment for them.

    The kubelet fills in what LWS sets. The leader's processes are reached at the address that vLLM finds out for its
    host, which is the pod's.
    """
    flags = {"master-addr": f"$({LEADER_ADDRESS})", "node-rank": f"$({_WORKER_INDEX})" if worker else "0"}
    if worker:
        flags["headless"] = ""
    return flags, [{"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
