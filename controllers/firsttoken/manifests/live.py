"""The live settings of a revision, as the runtime in its pods reads them."""

import json
from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests import names, pods
from firsttoken.manifests.environment import SETTINGS_KEY
from firsttoken.planning.types import LiveSettings


def live_config_map(
    service: InferenceService, revision: str, settings: LiveSettings, generation: int
) -> dict[str, Any]:
    """ConfigMap `<revision>-live`; pods acknowledge `generation` in firsttoken_settings_generation (DESIGN §4)."""
    content = {
        "generation": generation,
        "default": {
            "tokenBudget": settings.token_budget,
            "decodeCap": settings.decode_cap,
            "longPrefillThreshold": settings.long_prefill_threshold,
        },
        "trial": None,
    }
    labels = names.labels(service.metadata.name, "settings", revision=revision)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(names.live_name(revision), service.metadata.namespace, labels),
        "data": {SETTINGS_KEY: json.dumps(content, indent=2) + "\n"},
    }
