"""What the planner calls feasible can be rendered: neither a plan nor an alternative it offers is refused later."""

from typing import Any

import pytest

from firsttoken.api.service import InferenceService
from firsttoken.api.service_inputs import Profile
from firsttoken.manifests.images import Images
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.nearest import with_value
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan

DEVICES = catalogue()
OWNED = {"max-model-len", "max-num-batched-tokens", "max-num-seqs", "tensor-parallel-size", "pipeline-parallel-size"}


def _rendered(service: InferenceService, plan: Plan) -> list[dict[str, Any]]:
    objects = revision_objects(service, f"{service.metadata.name}-1a2b3c4d", plan, DEVICES, Images())
    return [o["spec"]["template"]["spec"]["containers"][0] for o in objects if o["kind"] == "Deployment"]


def _service(model: str, device: str, mode: str, count: int) -> InferenceService:
    spec = {
        "model": {"uri": f"hf://{models()[model].uris[0]}"},
        "accelerator": {"type": device, "maxCount": count},
        "workload": {"profile": Profile.CHAT.value},
        "layout": {"mode": mode},
    }
    return InferenceService.model_validate({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})


@pytest.mark.parametrize("mode", ["Colocated", "Disaggregated"])
@pytest.mark.parametrize("model", ["qwen2.5-7b", "llama-3.1-70b", "mixtral-8x22b", "deepseek-v3", "falcon-7b"])
def test_s13_every_plan_and_every_alternative_is_rendered(model: str, mode: str) -> None:
    """S13: DeepSeek-V3 on 16 H100 was planned over two nodes and then refused."""
    for device in sorted(DEVICES):
        service = _service(model, device, mode, 16)
        outcome = make_plan(service.spec, DEVICES)
        if isinstance(outcome, Plan):
            _rendered(service, outcome)
            continue
        for path, value in outcome.nearest.items():
            spec = with_value(service.spec, path, value)
            other = make_plan(spec, DEVICES)
            assert not isinstance(other, Infeasible), (device, path, value)
            _rendered(service.model_copy(update={"spec": spec}), other)


def test_the_plan_names_every_size_the_engine_is_started_with() -> None:
    """Rendering adds no size of its own, so what is missing in a plan would be vLLM's default."""
    service = _service("qwen2.5-7b", "nvidia-a100-40gb", "Colocated", 8)
    plan = make_plan(service.spec, DEVICES)
    assert isinstance(plan, Plan)
    assert set(plan.roles[0].engine_args) >= OWNED
    args = [a for a in _rendered(service, plan)[0]["args"] if a.startswith("--")]
    assert len({a.partition("=")[0] for a in args}) == len(args)
    assert {f"--{name}={plan.roles[0].engine_args[name]}" for name in OWNED} <= set(args)
