"""The live settings as an engine reads and applies them (DESIGN §4 "Live tuning"): the runtime image does the same."""

import json
from dataclasses import dataclass, replace
from typing import Any

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.settings import EngineSettings

MOST_LIVE = 2**31 - 1  # of any value: more is no number of tokens or requests, nor one that Prometheus keeps whole
MOST_BYTES = 2**20  # of the file: a ConfigMap has no more
_STAYS = "what was applied before stays"
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

    Raises SimulationInputError, one line: not JSON or too long, a value is missing, or is no whole number from 0 to
    MOST_LIVE.
    """
    if len(text) > MOST_BYTES:
        raise SimulationInputError(f"settings.json can't be used (more than {MOST_BYTES} bytes): {_STAYS}")
    try:
        content = json.loads(text)
        trial = content.get("trial") or {}
        pods = trial.get("podUIDs", [])
        if not isinstance(pods, list):
            raise ValueError("trial.podUIDs is no list")
        chosen = trial["settings"] if pod_uid in pods else content["default"]
        values = LiveValues(
            _whole("generation", content["generation"]),
            _whole("tokenBudget", chosen["tokenBudget"]),
            _whole("decodeCap", chosen["decodeCap"]),
            _whole("longPrefillThreshold", chosen["longPrefillThreshold"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SimulationInputError(f"settings.json can't be used ({_short(repr(error))}): {_STAYS}") from error
    except RecursionError as error:
        raise SimulationInputError(f"settings.json can't be used (nested too deep): {_STAYS}") from error
    if values.token_budget < 1:
        raise SimulationInputError(f"settings.json can't be used (tokenBudget is 0): {_STAYS}")
    return values


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_LIVE:
        raise ValueError(f"{name} is {_short(repr(value))}: a whole number from 0 to {MOST_LIVE} is needed")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"


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
