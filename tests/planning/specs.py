"""Specs for the planner's tests, written as a user writes them."""

from typing import Any

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan

QWEN_7B = "hf://Qwen/Qwen2.5-7B-Instruct"
LLAMA_70B = "hf://meta-llama/Llama-3.1-70B-Instruct"
DEEPSEEK = "hf://deepseek-ai/DeepSeek-V3"
FALCON_7B = "hf://tiiuae/falcon-7b"
MPT_7B = "hf://mosaicml/mpt-7b"
PHI_4 = "hf://microsoft/phi-4"
TINY = {
    "hiddenSize": 256, "numHiddenLayers": 4, "numAttentionHeads": 4, "numKeyValueHeads": 2, "intermediateSize": 512,
    "vocabSize": 2048, "maxPositionEmbeddings": 2048,
}  # fmt: skip


def service(uri: str, device: str, max_count: int | None = None, **rest: Any) -> InferenceServiceSpec:
    """A spec of `uri` on `device`; `rest` holds more top-level fields (`model` and `accelerator` are merged)."""
    model = {"uri": uri, **rest.pop("model", {})}
    budget = {} if max_count is None else {"maxCount": max_count}
    return InferenceServiceSpec.model_validate(
        {"model": model, "accelerator": {"type": device, **budget, **rest.pop("accelerator", {})}, **rest}
    )


def planned(spec: InferenceServiceSpec) -> Plan:
    """The plan, which must be feasible."""
    outcome = make_plan(spec, catalogue())
    assert isinstance(outcome, Plan), outcome
    return outcome


def refused(spec: InferenceServiceSpec) -> Infeasible:
    """The refusal, which must be one."""
    outcome = make_plan(spec, catalogue())
    assert isinstance(outcome, Infeasible), outcome
    return outcome


def reason(plan: Plan, code: str) -> str:
    """The sentences of `code`, which must be there."""
    found = [r.message for r in plan.reasons if r.code == code]
    assert found, [r.code for r in plan.reasons]
    return " | ".join(found)
