"""A refusal names what would do instead, and nothing that would not."""

import re
from typing import Any

import pytest

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import capability, catalogue
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan
from planning.specs import FALCON_7B, LLAMA_70B, PHI_4, QWEN_7B, refused, service


def test_a_cpu_that_is_too_small_is_a_matter_of_memory_and_says_how_much_would_do() -> None:
    refusal = refused(service(LLAMA_70B, "cpu"))
    assert refusal.constraint == "Memory"
    needed = re.search(r"takes some (\d+) GiB: if your nodes have that, name a profile", refusal.message)
    assert needed is not None
    large, small = (  # larger nodes begin with larger steps
        {"mine": catalogue()["cpu"].model_copy(update={"memory": f"{int(int(needed[1]) * part)}Gi"})}
        for part in (1.05, 0.95)
    )
    assert isinstance(make_plan(service(LLAMA_70B, "mine"), large), Plan)
    assert isinstance(make_plan(service(LLAMA_70B, "mine"), small), Infeasible)


@pytest.mark.parametrize(
    ("spec", "offers"),
    [
        (
            service(QWEN_7B, "nvidia-v100-32gb", 2, model={"quantization": "fp8"}),
            {"spec.model.quantization": None, "spec.accelerator.type": "nvidia-a100-40gb"},
        ),
        (
            service("hf://google/gemma-2-9b", "nvidia-v100-32gb", 4),
            {"spec.accelerator.type": "nvidia-a100-40gb"},
        ),
        (
            service("hf://google/gemma-2-9b", "nvidia-l4", 4, layout={"mode": "Disaggregated"},
                    accelerator={"decode": {"type": "nvidia-t4"}}),
            {"spec.accelerator.decode.type": "nvidia-a10"},
        ),
        (
            service(QWEN_7B, "nvidia-a100-80gb", 6, engine={"pins": {"tensorParallel": 4}}, scaling={"replicas": 3}),
            {"spec.engine.pins.tensorParallel": 1, "spec.scaling.replicas": 1, "spec.accelerator.maxCount": 12},
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_a_way_out(spec: InferenceServiceSpec, offers: dict[str, Any]) -> None:
    refusal = refused(spec)
    assert refusal.nearest == offers
    assert "None" not in refusal.message


@pytest.mark.parametrize(
    ("model", "device"), [(LLAMA_70B, "nvidia-l4"), (FALCON_7B, "nvidia-l4"), (PHI_4, "nvidia-l40s")]
)
@pytest.mark.parametrize("layout", ["Colocated", "Disaggregated"])
def test_no_older_gpu_is_offered(model: str, device: str, layout: str) -> None:
    """V100s have more memory and links than L4s, and neither BF16 nor FP8."""
    slos = [{"metric": "TPOT", "target": "1ms"}]
    for spec in (service(model, device, 2, layout={"mode": layout}, **rest) for rest in ({}, {"slos": slos})):
        outcome = make_plan(spec, catalogue())
        offered = outcome.nearest.get("spec.accelerator.type") if isinstance(outcome, Infeasible) else None
        assert offered is None or (capability(catalogue()[offered]) or ()) >= (capability(catalogue()[device]) or ())
