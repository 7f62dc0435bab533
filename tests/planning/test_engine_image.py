"""The image Firsttoken ships is vLLM for CUDA: a plan for another vendor's device says what it needs."""

import pytest

from firsttoken.planning.explain import image_missing
from planning.specs import QWEN_7B, planned, reason, refused, service

SMALL = "hf://Qwen/Qwen2.5-0.5B-Instruct"


@pytest.mark.parametrize(
    ("device", "wanted"), [("amd-mi300x", "ROCm"), ("intel-gaudi3", "Gaudi"), ("cpu", "firsttoken/runtime-cpu")]
)
def test_a_device_that_the_default_image_does_not_run_on_says_which_image_to_name(device: str, wanted: str) -> None:
    plan = planned(service(SMALL, device))
    said = reason(plan, "EngineImage")
    assert "spec.engine.image" in said
    assert wanted in said
    assert image_missing(plan) == "needs spec.engine.image"


@pytest.mark.parametrize(("device", "engine"), [("amd-mi300x", {"image": "rocm/vllm:1"}), ("nvidia-h100-80gb", {})])
def test_nothing_is_said_where_an_image_is_named_or_the_default_one_runs(device: str, engine: dict[str, str]) -> None:
    plan = planned(service(QWEN_7B, device, engine=engine))
    assert "EngineImage" not in {r.code for r in plan.reasons}
    assert image_missing(plan) == ""


def test_both_roles_on_foreign_devices_are_said_once() -> None:
    split = service(QWEN_7B, "amd-mi300x", layout={"mode": "Disaggregated"})
    said = reason(planned(split), "EngineImage")
    assert "does not start on AMD MI300X;" in said


@pytest.mark.parametrize(
    ("prefill", "decode"), [("nvidia-h100-80gb", "amd-mi300x"), ("intel-gaudi3", "nvidia-h100-80gb")]
)
def test_one_image_serves_no_roles_of_two_vendors(prefill: str, decode: str) -> None:
    """Both would get the same image, which runs on one of them."""
    roles = {"prefill": {"type": prefill}, "decode": {"type": decode}}
    split = service(QWEN_7B, prefill, 16, layout={"mode": "Disaggregated"}, accelerator=roles)
    refusal = refused(split)
    assert refusal.constraint == "Accelerator"
    assert "one engine image runs both roles" in refusal.message
    assert refusal.nearest["spec.accelerator.decode.type"] == prefill
    assert refusal.nearest["spec.accelerator.prefill.type"] == decode
