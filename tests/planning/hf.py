"""Published config.json files, and what is made of them."""

import json
from pathlib import Path
from typing import Any

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import Infeasible, ModelFacts

CONFIGS = Path(__file__).parent / "configs"
PUBLISHED = sorted(path.stem for path in CONFIGS.glob("*.json"))
SOMEBODY = "hf://somebody/model"


def config(name: str, **changes: Any) -> dict[str, Any]:
    """A published config.json, with `changes`; None takes a key out."""
    value = {**json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8")), **changes}
    return {k: v for k, v in value.items() if changes.get(k, v) is not None or k not in changes}


def facts(value: dict[str, Any], **model: Any) -> ModelFacts:
    """Of a model that only `value` describes."""
    found = model_facts(ModelSpec.model_validate({"uri": SOMEBODY, **model}), value)
    assert isinstance(found, ModelFacts), found
    return found


def refused(value: dict[str, Any], **model: Any) -> Infeasible:
    """Why `value` gives no facts."""
    found = model_facts(ModelSpec.model_validate({"uri": SOMEBODY, **model}), value)
    assert isinstance(found, Infeasible), found
    return found
