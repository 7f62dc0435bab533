"""`firsttoken plan --simulate`: the candidates of a plan in virtual time, as a table and as JSON."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import figures
from firsttoken.planning.models import model_facts
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Percentiles, Plan
from firsttoken.planning.words import milliseconds, number
from firsttoken.simulation.candidates import Comparison, Simulated, compare_candidates
from firsttoken.simulation.results import ALL
from firsttoken_operator.cli.console import columns, heading, printable
from firsttoken_operator.cli.model_config import Configs
from firsttoken_operator.cli.simulator import compiled

NOTHING = "-"


def compared(
    spec: InferenceServiceSpec, plan: Plan, profiles: Mapping[str, AcceleratorProfileSpec], configs: Configs
) -> Comparison | None:
    """The candidates of `plan` under the same requests; None where it predicts nothing to take a rate from."""
    config = configs.of(spec.model)
    facts = model_facts(spec.model, config)
    assert not isinstance(facts, Infeasible)  # noqa: S101 - it was planned
    compiled()

    def replan(asked: InferenceServiceSpec, shapes: Mapping[str, tuple[int, int]]) -> Plan | Infeasible:
        return make_plan(asked, profiles, config=config, shapes=shapes)

    return compare_candidates(spec, plan, facts, profiles, replan)


def view(found: Comparison | None) -> list[RenderableType]:
    """What to show below the plan."""
    if found is None:
        return [heading("Simulated"), Text("  nothing: no rate is named, and none is predicted to be carried")]
    rate = f"{number(found.rate)} requests/s" + (" (assumed)" if found.assumed else "")
    table = columns(
        "CANDIDATE",
        "GPUS",
        "PROMPT TOKENS",
        "REQUESTS",
        "TTFT P50",
        "P95",
        "TPOT P95",
        "SLOS",
        right=frozenset({1, 3, 4, 5, 6}),
    )
    for one in found.simulated:
        for row in _rows(one):
            table.add_row(*row)
    said = found.disagreement or "the simulator finds no reason to choose otherwise"
    title = f"Simulated at {rate}: {found.requests:,} requests, seed {found.seed}"
    return [heading(title), Padding(table, (0, 0, 0, 2)), Text(f"  {printable(said)}")]


def _rows(one: Simulated) -> list[tuple[str, ...]]:
    name, gpus = one.name, str(one.plan.gpus)
    if one.why_not:
        return [(name, gpus, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, "not simulated")]
    rows = []
    for bucket in (ALL, *(b for b in one.buckets if b != ALL)):
        found = one.buckets[bucket]
        times = (found.ttft.p50, found.ttft.p95, found.tpot.p95)
        first = (name, gpus) if bucket == ALL else ("", "")
        kept = "" if bucket != ALL else "kept" if one.keeps_slos else "missed"
        rows.append((*first, bucket, f"{found.requests:,}", *(_time(t) for t in times), kept))
    return rows


def _time(seconds: float) -> str:
    return NOTHING if math.isnan(seconds) else milliseconds(seconds)


def document(found: Comparison | None) -> dict[str, Any] | None:
    """The value of `simulated`."""
    if found is None:
        return None
    return {
        "requestsPerSecond": found.rate,
        "assumedRate": found.assumed,
        "requests": found.requests,
        "seed": found.seed,
        "candidates": [_candidate(one) for one in found.simulated],
        "disagreement": found.disagreement,
    }


def _candidate(one: Simulated) -> dict[str, Any]:
    roles = [
        {
            "role": role.role,
            "replicas": role.replicas,
            "parallelism": {"tensor": role.tensor_parallel, "pipeline": role.pipeline_parallel, "data": 1},
        }
        for role in one.plan.roles
    ]
    head = {"name": one.name, "layout": one.plan.layout, "gpus": one.plan.gpus, "roles": roles}
    if one.why_not:
        return {**head, "notSimulated": one.why_not}
    everyone = one.buckets[ALL]
    return {
        **head,
        "ttftSeconds": _percentiles(everyone.ttft),
        "tpotSeconds": _percentiles(everyone.tpot),
        "byPromptTokens": {
            name: {"requests": b.requests, "ttftSeconds": _percentiles(b.ttft), "tpotSeconds": _percentiles(b.tpot)}
            for name, b in one.buckets.items()
            if name != ALL
        },
        "keepsSLOs": one.keeps_slos,
        "missed": list(one.missed),
    }


def _percentiles(found: Percentiles) -> dict[str, float | None]:
    """NaN, where there is no request of two tokens, has no form in JSON."""
    values = {name: getattr(found, name) for name in ("p50", "p95", "p99")}
    return {name: None if math.isnan(v) else figures(v) for name, v in values.items()}
