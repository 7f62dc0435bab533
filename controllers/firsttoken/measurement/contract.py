"""The telemetry contract (DESIGN §4): what an engine pod tells Prometheus. The only place with these names and bounds.

The runtime image keeps its own copy and shares no code with the operator; a contract test holds both sides equal.
Whoever plays an engine (simulation/telemetry.py) uses this one.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firsttoken.planning.workload import bucket_names

VERSION = "1"

BUCKET = "prompt_tokens"  # label: the prompt-length bucket of a request, cached tokens included
RATIO = 1.10  # of neighbouring bounds of TTFT and TPOT: a quantile is known within 10 %

OUTCOMES = ("ok", "client_gone", "error", "timeout")
# Of TTFT, in the order in which a request passes them. `transfer` only where KV comes from another engine.
STAGES = ("gateway", "input", "queue", "transfer", "prefill", "delivery")
PHASES = ("prefill", "decode")

Kind = Literal["histogram", "counter", "gauge", "info"]


def geometric(low: float, high: float, ratio: float = RATIO) -> tuple[float, ...]:
    """Rising bounds from `low` to `high` inclusive, each at most `ratio` times the one before, four digits each."""
    found, k = [low], 1
    while low * ratio**k < high * (1 - 1e-9):
        found.append(float(f"{low * ratio**k:.4g}"))
        k += 1
    return (*found, high)


TTFT_BOUNDS = geometric(0.010, 60.0)  # seconds
TPOT_BOUNDS = geometric(0.001, 1.0)  # seconds
STAGE_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)  # seconds
TOKEN_BOUNDS = tuple(float(16 << k) for k in range(14))  # tokens of a request: 16 … 131072
STEP_BOUNDS = tuple(float(1 << k) for k in range(15))  # tokens of a step: 1 … 16384


@dataclass(frozen=True)
class Series:
    """One metric as Prometheus shows it: a counter's name ends in `_total`, a histogram's has no suffix.

    `labels` without the scrape's own (namespace, pod, firsttoken_service, firsttoken_revision, role). `bounds` are a
    histogram's, in the unit of its name.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()


_TOLD = (
    Series(
        "firsttoken_ttft_seconds", "histogram", (BUCKET, "stream"),
        "From the gateway's arrival stamp to the first body chunk after the engine's first token.", TTFT_BOUNDS,
    ),
    Series(
        "firsttoken_ttft_stage_seconds", "histogram", (BUCKET, "stage"),
        "Where the time to the first token went, by stage. The queue ends when the engine decides to run the request.",
        STAGE_BOUNDS,
    ),
    Series(
        "firsttoken_tpot_seconds", "histogram", (BUCKET,),
        "A request's mean time of a token after its first.", TPOT_BOUNDS,
    ),
    Series("firsttoken_requests_total", "counter", (BUCKET, "outcome"), "Requests that ended, by outcome."),
    Series(
        "firsttoken_prompt_tokens", "histogram", (BUCKET,),
        "Prompt tokens after the chat template, cached or not.", TOKEN_BOUNDS,
    ),
    Series(
        "firsttoken_cached_prompt_tokens_total", "counter", (BUCKET,), "Prompt tokens that the prefix cache had."
    ),
    Series(
        "firsttoken_request_kv_tokens", "histogram", (BUCKET,),
        "Tokens of KV that a request held when it ended.", TOKEN_BOUNDS,
    ),
    Series(
        "firsttoken_kv_allocation_failures_total", "counter", (),
        "Times that a running request found no KV block and one was preempted.",
    ),
    Series(
        "firsttoken_step_tokens", "histogram", ("phase",), "Tokens of a step, of steps that had any of that phase.",
        STEP_BOUNDS,
    ),
    Series("firsttoken_token_budget", "gauge", (), "Most tokens of a step, as set now."),
    Series("firsttoken_running_requests", "gauge", ("phase",), "Requests that are running, by what they do."),
    Series("firsttoken_oldest_waiting_seconds", "gauge", (), "How long the oldest waiting request has waited."),
    Series(
        "firsttoken_prefix_instability_total", "counter", ("position",),
        "Prompts that began like an earlier one and left it inside its shared part, by where (percent of the prompt).",
    ),
    Series("firsttoken_attention_backend_info", "info", ("backend",), "Attention kernel in use."),
    Series("firsttoken_settings_generation", "gauge", (), "Generation of the live settings that are applied."),
    Series("firsttoken_contract_info", "info", ("version",), "Version of this contract."),
)  # fmt: skip

SERIES = {one.name: one for one in _TOLD}


def bucket_of(prompt_tokens: int, bounds: Sequence[int]) -> str:
    """Name of the bucket of a prompt, for rising upper bounds in tokens; a bound belongs to the bucket below it."""
    return bucket_names(bounds)[bisect_left(bounds, prompt_tokens)]


def series_count(buckets: int, *, stages: int = len(STAGES), streams: int = 1) -> int:
    """How many series one pod exports when `buckets` prompt-length buckets saw traffic (the most that can be)."""
    per_label = {BUCKET: buckets, "stream": streams, "stage": stages, "phase": len(PHASES), "outcome": len(OUTCOMES)}
    total = 0
    for one in _TOLD:
        labels = 1
        for label in one.labels:
            labels *= per_label.get(label, 1)
        total += labels * (len(one.bounds) + 3 if one.kind == "histogram" else 1)
    return total
