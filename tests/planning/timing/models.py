"""Models, devices and prepared step models for the tests of the time model."""

from dataclasses import replace
from functools import cache

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts

LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_70B = "meta-llama/Llama-3.1-70B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
DEEPSEEK_LITE = "deepseek-ai/DeepSeek-V2-Lite"


@cache
def facts(uri: str, **changes: object) -> ModelFacts:
    """Of a catalogue model, with some fields changed."""
    found = model_facts(ModelSpec.model_validate({"uri": f"hf://{uri}"}))
    assert isinstance(found, ModelFacts), found
    return replace(found, **changes)


@cache
def device(name: str) -> Device:
    """Of a catalogue profile."""
    return device_from_profile(catalogue()[name])


@cache
def step_model(uri: str = LLAMA_8B, gpu: str = "nvidia-h100-80gb", **options: object) -> StepModel:
    """One model on one GPU type; its memory of token counts is shared between tests, as in a simulator."""
    return StepModel(facts(uri), device(gpu), **options)
