"""What an InferenceRevision says of the engines of one role: how they are started, and what they answer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.manifests.sources import served_name
from firsttoken.planning.models import model_facts
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.types import Infeasible, RolePlan
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.from_plan import engine_at_start
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable
from firsttoken_local.engine_server.questions import Limits
from firsttoken_local.errors import LocalError

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """One engine as its revision starts it."""

    settings: EngineSettings
    clock: StepTable
    limits: Limits
    backend: str


def recipe(record: Object, role: str, profiles: Mapping[str, AcceleratorProfileSpec]) -> Recipe:
    """Read an InferenceRevision, as the API server holds it.

    Raises:
        LocalError: this version can't play it, and why.
    """
    name, spec = record["metadata"]["name"], record["spec"]
    try:
        plan = plan_from_json(spec["plan"])
        model = ModelSpec.model_validate(spec["inputs"]["model"])
        facts = model_facts(model, spec["plan"].get("modelConfig"))
        if isinstance(facts, Infeasible):
            raise ValueError(facts.message)
        found = next(one for one in plan.roles if one.role == role)
        engine = engine_at_start(plan, found, facts, profiles[found.accelerator])
    except StopIteration:
        raise LocalError(f"revision {name} has no role {role}") from None
    except KeyError as error:
        raise LocalError(f"revision {name} can't be played: {error} is missing") from error
    except (ValueError, SimulationInputError) as error:
        raise LocalError(f"revision {name} can't be played: {error}") from error
    settings, clock = engine.replica.settings, engine.replica.table
    limits = Limits(served_name(model), plan.max_model_length, settings.priorities)
    return Recipe(settings, clock, limits, _backend(found))


def _backend(role: RolePlan) -> str:
    """The attention backend that the plan names to vLLM; without one it is vLLM's choice, which nothing here makes."""
    return role.engine_args.get("attention-backend", "vllm-default")
