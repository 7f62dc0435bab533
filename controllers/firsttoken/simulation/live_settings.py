"""The live settings as an engine reads and applies them (DESIGN §4 "Live tuning"): the runtime image does the same."""

import json
from dataclasses import dataclass, replace
from typing import Any

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.settings import EngineSettings

SMALLEST_CHUNK = 16  # prompt tokens of a step that decodes must always leave: one KV block


@dataclass(frozen=True)
class LiveValues:
    """What one pod is told. Tokens and requests; a `decode_cap` or `long_prefill_threshold` of 0 bounds nothing."""

    generation: int
    token_budget: int
    decode_cap: int
    long_prefill_threshold: int


def read_live(text: str, pod_uid: str) -> LiveValues:
    """What `settings.json` says to the pod: the trial's settings when it is in the trial, else the default.

    Raises SimulationInputError: not JSON, or a value is missing or no whole number of 0 or more.
    """
    try:
        content = json.loads(text)
        trial = content.get("trial") or {}
        chosen = trial["settings"] if pod_uid in trial.get("podUIDs", ()) else content["default"]
        values = LiveValues(
            _whole("generation", content["generation"]),
            _whole("tokenBudget", chosen["tokenBudget"]),
            _whole("decodeCap", chosen["decodeCap"]),
            _whole("longPrefillThreshold", chosen["longPrefillThreshold"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SimulationInputError(f"settings.json can't be used ({error!r}): what was applied before stays") from error
    if values.token_budget < 1:
        raise SimulationInputError("settings.json can't be used (tokenBudget is 0): what was applied before stays")
    return values


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is {value!r}: a whole number of 0 or more is needed")
    return value


def applied(live: LiveValues, start: EngineSettings, *, computes: bool = True) -> EngineSettings:
    """`start` with these values, clamped: the budget at most that at the start, the cap at most the running requests
    at the start, and a step that holds a token of every decode keeps room for a smallest chunk of a prompt.

    `computes`: the engine computes prompts; one that only decodes keeps the budget of its start.
    """
    ceiling, seqs = start.token_budget, start.max_num_seqs
    cap = min(live.decode_cap or seqs, seqs, max(1, ceiling - SMALLEST_CHUNK))
    budget = max(min(live.token_budget, ceiling), min(cap + SMALLEST_CHUNK, ceiling)) if computes else ceiling
    threshold = live.long_prefill_threshold if computes else 0
    return replace(start, token_budget=budget, decode_cap=cap, long_prefill_threshold=threshold)
