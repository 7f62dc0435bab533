"""From an InferenceRevision to its engine."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from firsttoken.api.service import InferenceService
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.output import plan_to_json
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Plan
from firsttoken_local.engine_server.from_revision import recipe
from firsttoken_local.errors import LocalError

EXAMPLE = Path(__file__).parents[2] / "examples" / "kb-assistant.yaml"
MANIFEST: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
PLAN = make_plan(InferenceService.model_validate(MANIFEST).spec, catalogue())


def record() -> dict[str, Any]:
    inputs = {"model": MANIFEST["spec"]["model"]}
    return {"metadata": {"name": "kb-12345678"}, "spec": {"plan": plan_to_json(PLAN), "inputs": inputs}}


def test_an_engine_starts_as_its_plan_says() -> None:
    assert isinstance(PLAN, Plan)
    (role,) = PLAN.roles
    found = recipe(record(), "serve", catalogue())
    assert found.settings.token_budget == int(role.engine_args["max-num-batched-tokens"])  # the most, not the live one
    assert found.settings.max_num_seqs == int(role.engine_args["max-num-seqs"])
    assert found.settings.kv_blocks * found.settings.block_tokens <= PLAN.memory.kv_cache_tokens
    assert found.settings.stages.input_seconds > 0
    assert (found.limits.model, found.limits.max_model_length) == ("Qwen2.5-7B-Instruct", 4096)
    # Long enough a table for a whole step of everything.
    assert len(found.clock.by_tokens) - 1 >= found.settings.token_budget
    assert len(found.clock.by_rows) - 1 >= found.settings.max_num_seqs


def test_what_cannot_be_played_is_said_with_its_revision() -> None:
    with pytest.raises(LocalError, match="revision kb-12345678 has no role decode"):
        recipe(record(), "decode", catalogue())
    with pytest.raises(LocalError, match="kb-12345678 can't be played: 'nvidia-a100-40gb' is missing"):
        recipe(record(), "serve", {})
    staged = record()
    staged["spec"]["plan"]["roles"][0]["parallelism"]["pipeline"] = 2
    with pytest.raises(LocalError, match="pipeline stages"):
        recipe(staged, "serve", catalogue())
    broken = record()
    broken["spec"]["plan"] = {"feasible": True}
    with pytest.raises(LocalError, match="kb-12345678 can't be played: not a plan"):
        recipe(broken, "serve", catalogue())
