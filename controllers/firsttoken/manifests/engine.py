"""The pods of vLLM for one role of a plan, and the Deployment or LeaderWorkerSet that keeps them."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService
from firsttoken.manifests import drain, environment, groups, names, pods, transfer
from firsttoken.manifests.canonical import gibibytes, passthrough
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import PULL_POLICY
from firsttoken.manifests.overlay import Overlay, overlay, with_entries, with_mounts, with_resources
from firsttoken.manifests.sources import ModelSource, model_source, served_name
from firsttoken.planning.parallelism import fits_a_node
from firsttoken.planning.types import Plan, RolePlan

Object = dict[str, Any]

# A start that takes longer is broken. Base: container start, compilation, CUDA graphs, warm-up. Weights: slow links and
# disks, not typical ones, since too short a budget kills pods that would have come up (and they start over).
_START_BASE_SECONDS = 600
_DOWNLOAD_BYTES_PER_SECOND = 100e6
_READ_BYTES_PER_SECOND = 300e6
_START_PERIOD_SECONDS = 10
# Scheduling (a node may have to be bought first) and pulling an image of several GB come before the start.
_SCHEDULE_SECONDS = 1800

_GIB = 2**30


def start_seconds(weights_bytes: int, *, remote: bool) -> int:
    """Time a pod gets from container start to its first healthy answer, seconds, in steps of the probe's period."""
    speed = _DOWNLOAD_BYTES_PER_SECOND if remote else _READ_BYTES_PER_SECOND
    periods = math.ceil((_START_BASE_SECONDS + weights_bytes / speed) / _START_PERIOD_SECONDS)
    return periods * _START_PERIOD_SECONDS


@dataclass(frozen=True)
class Engine:
    """One role of a revision, with everything its Deployment depends on."""

    service: InferenceService
    revision: str
    plan: Plan
    role: RolePlan
    profile: AcceleratorProfileSpec
    image: str  # used unless the service names its own

    @cached_property
    def source(self) -> ModelSource:
        """Where the weights come from."""
        return model_source(self.service.spec.model)

    @cached_property
    def extra(self) -> Overlay:
        """The user's pod template."""
        return overlay(self.service)

    @property
    def match(self) -> dict[str, str]:
        """Labels that select this role's pods."""
        return names.selector(self.service.metadata.name, self.role.role, self.revision)

    @property
    def workers(self) -> dict[str, str]:
        """Labels that select the pods on the further nodes of its replicas."""
        return names.selector(self.service.metadata.name, names.WORKER_ROLE, self.revision)

    @property
    def disrupted(self) -> dict[str, str]:
        """Labels that select all pods whose loss takes a replica away."""
        if self.role.nodes == 1:
            return self.match
        return names.members(self.service.metadata.name, self.revision)

    @property
    def grace_seconds(self) -> int:
        """Time a terminating pod has to finish its streams (and to linger)."""
        return (self.extra.grace_seconds or drain.GRACE_SECONDS) + self.linger_seconds

    @property
    def linger_seconds(self) -> int:
        """How long a terminating prefill pod stays after its last request: decode may still fetch the KV."""
        return transfer.lease_seconds(self.role) if self.role.role == "prefill" else 0

    @property
    def start_seconds(self) -> int:
        """Time a pod has to come up. A leader's own start includes waiting for the nodes and images of its workers."""
        memory = self.role.memory or self.plan.memory
        waits = _SCHEDULE_SECONDS if self.role.nodes > 1 else 0
        return waits + start_seconds(memory.weights_bytes, remote=self.source.remote)


def engine_workload(engine: Engine) -> Object:
    """What keeps a role's pods, without `replicas` (which scale) and owner references (which are added on apply): a
    Deployment, or a LeaderWorkerSet where a replica lies on several nodes.

    A pod template never changes in place: a revision is immutable, so a new template is a new object behind a canary.
    Raises UnsupportedPlan.
    """
    _check_fits_one_pod(engine.role, engine.profile)
    meta = engine.service.metadata
    labels = names.labels(meta.name, "engine", revision=engine.revision, role=engine.role.role)
    metadata = pods.metadata(names.role_name(engine.revision, engine.role.role), meta.namespace, labels)
    if engine.role.nodes == 1:
        return _deployment(engine, metadata)
    groups.check_name(meta.name)
    templates = (_template(engine), _template(engine, worker=True))
    return groups.leader_worker_set(metadata, engine.role.nodes, *templates)


def _deployment(engine: Engine, metadata: Object) -> Object:
    """The update strategy only matters for `kubectl rollout restart`; with `maxUnavailable: 0` that needs one replica's
    GPUs beyond the plan and otherwise waits, instead of taking down what serves.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": engine.match},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "progressDeadlineSeconds": engine.start_seconds + _SCHEDULE_SECONDS,
            "revisionHistoryLimit": 1,
            "template": _template(engine),
        },
    }


def _template(engine: Engine, *, worker: bool = False) -> Object:
    """Of the pod that answers requests (alone, or as the leader of several nodes), or of one that computes for it."""
    role, extra = (names.WORKER_ROLE if worker else engine.role.role), engine.extra
    labels = names.labels(engine.service.metadata.name, "engine", revision=engine.revision, role=role)
    annotations = {} if worker else pods.scrape(names.ENGINE_PORT, "/metrics")
    metadata: Object = {"labels": extra.labels | labels}
    if extra.annotations | annotations:
        metadata["annotations"] = extra.annotations | annotations
    return {"metadata": metadata, "spec": _pod_spec(engine, worker=worker)}


def _check_fits_one_pod(role: RolePlan, profile: AcceleratorProfileSpec) -> None:
    """The planner never makes such a plan; a stored one of another version, or a profile edited since, may be."""
    if not fits_a_node(role.gpus_per_node, profile):
        raise UnsupportedPlan(
            f"one pod of {role.role} needs {role.gpus_per_node} GPUs, a {role.accelerator} node has "
            f"{profile.devices_per_node}: correct devicesPerNode of the AcceleratorProfile, or change the spec"
        )


def _pod_spec(engine: Engine, *, worker: bool) -> Object:
    hardware, extra = engine.profile.wire(), engine.extra
    tolerations = [*(passthrough(t) for t in hardware.get("tolerations", [])), *extra.tolerations]
    spec: Object = {
        **extra.pod,
        # Service variables such as VLLM_PORT=tcp://... would be read by vLLM as its own settings.
        "enableServiceLinks": False,
        # The engine runs model code and never talks to the API server.
        "automountServiceAccountToken": False,
        "securityContext": pods.pod_security(),
        "terminationGracePeriodSeconds": engine.grace_seconds,
        "topologySpreadConstraints": pods.spread(engine.workers if worker else engine.match),
        "containers": [_container(engine, worker=worker)],
        "volumes": with_entries([*engine.source.volumes, *_volumes(engine.revision, engine.role)], extra.volumes),
    }
    if hardware.get("nodeSelectorTerms"):
        terms = {"nodeSelectorTerms": passthrough(hardware["nodeSelectorTerms"])}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if extra.node_selector:
        spec["nodeSelector"] = extra.node_selector
    if tolerations:
        spec["tolerations"] = tolerations
    return spec


def _volumes(revision: str, role: RolePlan) -> list[Object]:
    shared_memory = f"{2 + 2 * role.gpus_per_node}Gi"
    return [
        # Optional: a pod that restarts must come up even if somebody deleted the ConfigMap. It then runs with the
        # settings of its start, which the plan chose, and takes up the live ones when the operator has restored them.
        {"name": "firsttoken-live", "configMap": {"name": names.live_name(revision), "optional": True}},
        # Tensor parallelism (NCCL) and vLLM's own processes share memory; the container default of 64 MiB is too small.
        {"name": "firsttoken-shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        {"name": "firsttoken-tmp", "emptyDir": {}},
    ]


def _container(engine: Engine, *, worker: bool) -> Object:
    role, profile, extra = engine.role, engine.profile, engine.extra
    owned, defaults = environment.engine_environment(engine.service, role, profile, engine.source)
    over_nodes, further = groups.member(worker=worker) if role.nodes > 1 else ({}, [])
    return {
        "name": "engine",
        "image": engine.service.spec.engine.image or engine.image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["vllm", "serve"],
        "args": [engine.source.model, *_flags(engine_args(engine) | over_nodes)],
        "env": with_entries(with_entries([*owned, *further], extra.env), defaults),
        **({} if worker else {"ports": _ports(role)}),
        "resources": with_resources(_requests(engine.plan, role, profile), _devices(role, profile), extra.resources),
        "securityContext": pods.container_security(),
        "volumeMounts": with_mounts([*engine.source.mounts, *_mounts()], extra.mounts),
        "lifecycle": {"preStop": {"exec": {"command": _hook(engine, worker=worker)}}},
        # Workers have no HTTP server, and one that fails ends: the group is then started anew.
        **({} if worker else _probes(engine.start_seconds)),
    }


def _ports(role: RolePlan) -> list[Object]:
    ports = [{"name": "http", "containerPort": names.ENGINE_PORT, "protocol": "TCP"}]
    if role.role != "serve":
        ports.append({"name": "nixl", "containerPort": names.NIXL_PORT, "protocol": "TCP"})
    return ports


def _hook(engine: Engine, *, worker: bool) -> list[str]:
    if worker:
        return drain.worker_hook(f"http://${groups.LEADER_ADDRESS}:{names.ENGINE_PORT}/metrics", engine.grace_seconds)
    return drain.engine_hook(
        f"http://127.0.0.1:{names.ENGINE_PORT}/metrics", engine.grace_seconds, engine.linger_seconds
    )


def _mounts() -> list[Object]:
    return [
        # A directory, not a subPath: only directories follow a changed ConfigMap.
        {"name": "firsttoken-live", "mountPath": environment.SETTINGS_DIRECTORY, "readOnly": True},
        {"name": "firsttoken-shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount of its own
        {"name": "firsttoken-tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount of its own
    ]


def engine_args(engine: Engine) -> dict[str, str]:
    """vLLM's flags without dashes: the operator's own over the plan's over `spec.engine.extraArgs`."""
    model, role = engine.service.spec.model, engine.role
    own = {"served-model-name": served_name(model), "host": "0.0.0.0", "port": str(names.ENGINE_PORT)}  # noqa: S104
    if model.trust_remote_code:
        own["trust-remote-code"] = ""
    return {**engine.service.spec.engine.extra_args, **role.engine_args, **own, **engine.source.args}


def _flags(args: dict[str, str]) -> list[str]:
    """`--flag=value` in alphabetical order; the `=` keeps values that begin with a dash apart from flags."""
    return [f"--{flag}={value}" if value else f"--{flag}" for flag, value in sorted(args.items())]


def _requests(plan: Plan, role: RolePlan, profile: AcceleratorProfileSpec) -> dict[str, str]:
    """Default CPU and memory requests; no limits, since a throttled engine is slow and a killed one starts over.

    GPU: two cores a GPU (worker and engine loop) and one for the API server; host memory for process, pinned buffers
    and shared memory. CPU: the model and its KV live in host memory.
    """
    if profile.resource_name is None:
        memory = role.memory or plan.memory
        budget = memory.weights_bytes + memory.kv_cache_tokens * memory.kv_bytes_per_token
        return {"cpu": "1", "memory": gibibytes(budget + 3 * _GIB)}
    gpus = role.gpus_per_node
    return {"cpu": str(1 + 2 * gpus), "memory": gibibytes((8 + 8 * gpus) * _GIB)}


def _devices(role: RolePlan, profile: AcceleratorProfileSpec) -> dict[str, str]:
    return {profile.resource_name: str(role.gpus_per_node)} if profile.resource_name else {}


def _probes(start: int) -> Object:
    """Loading is not broken: until the startup probe passes, neither liveness nor readiness is asked.

    An engine that fails while loading exits by itself and is seen crashing. Later, `/health` answers 503 once the
    engine core is dead; liveness gives a busy event loop two minutes before it acts.
    """
    health = {"path": "/health", "port": "http"}
    return {
        "startupProbe": pods.http_probe(
            **health, period=_START_PERIOD_SECONDS, timeout=5, failures=start // _START_PERIOD_SECONDS
        ),
        "readinessProbe": pods.http_probe(**health, period=5, timeout=5, failures=3),
        "livenessProbe": pods.http_probe(**health, period=15, timeout=10, failures=8),
    }
