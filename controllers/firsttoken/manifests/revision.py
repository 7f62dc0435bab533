"""Everything that belongs to one revision, as its InferenceRevision keeps it."""

from collections.abc import Mapping
from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService
from firsttoken.manifests import names, pods
from firsttoken.manifests.engine import Engine, engine_workload
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import Images
from firsttoken.manifests.router import router_objects
from firsttoken.manifests.transfer import check_hand_over
from firsttoken.planning.types import Plan


def revision_objects(
    service: InferenceService,
    revision: str,
    plan: Plan,
    profiles: Mapping[str, AcceleratorProfileSpec],
    images: Images,
) -> tuple[dict[str, Any], ...]:
    """Deployment (or LeaderWorkerSet), Service and PDB per role, and vllm-router's objects where the plan has one.

    A snapshot: no owner references, no replicas of engines, no weights, no live settings; nothing in it changes over a
    revision's life. Raises UnsupportedPlan when the plan can't run as rendered.
    """
    if plan.layout == "Disaggregated":
        check_hand_over(plan)
    objects: list[dict[str, Any]] = []
    for role in plan.roles:
        profile = profiles.get(role.accelerator)
        if profile is None:
            raise UnsupportedPlan(f"AcceleratorProfile {role.accelerator!r} of role {role.role} is missing: create it")
        objects += _role_objects(Engine(service, revision, plan, role, profile, images.engine))
    if plan.router:
        objects += router_objects(service, revision, plan, images)
    return pods.detached(objects)


def _role_objects(engine: Engine) -> list[dict[str, Any]]:
    service, role = engine.service.metadata, engine.role.role
    labels = names.labels(service.name, "engine", revision=engine.revision, role=role)
    meta = pods.metadata(names.role_name(engine.revision, role), service.namespace, labels)
    return [
        engine_workload(engine),
        pods.headless_service(meta, engine.match, names.ENGINE_PORT),
        pods.disruption_budget(meta, engine.disrupted),
    ]
