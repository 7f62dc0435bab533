"""What the condition Planned says of a plan."""

from firsttoken.manifests.images import Images
from firsttoken.planning.explain import image_missing
from firsttoken.planning.types import Plan


def replicas(plan: Plan) -> str:
    """Replicas of each role, with the devices of one, and its nodes where it lies on several."""
    where = {r.role: f" on {r.nodes} nodes" if r.nodes > 1 else "" for r in plan.roles}
    return " + ".join(
        f"{r.replicas} × {r.role} ({r.gpus_per_replica} × {r.accelerator}{where[r.role]})" for r in plan.roles
    )


def unbuilt(plan: Plan, images: Images) -> str:
    """Said where the pods would only crash; who gave the operator another engine image knows what it does."""
    missing = image_missing(plan) if _repository(images) == _repository(Images()) else ""
    return f"; but {missing}: the default image is built for NVIDIA GPUs" if missing else ""


def _repository(images: Images) -> str:
    return images.engine.partition("@")[0].rsplit("/", 1)[-1].partition(":")[0]
