"""What the demo adds where fake nodes' pods are played: requests with a clock in hand, and streams during a change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from firsttoken.measurement.contract import bucket_of
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.types import Percentiles
from firsttoken.planning.workload import bucket_names
from firsttoken_local.client import Timed, Watchers, at_a_rate, question
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.errors import LocalError
from firsttoken_local.player.start import service_url
from firsttoken_local.prometheus import PrometheusServer
from firsttoken_local.story import GROUP
from firsttoken_local.waiting import wait_for

LENGTHS = (200, 400, 900, 1400)  # prompt tokens, one for each bucket that gets requests
ROUNDS, TOKENS = 8, 16  # of each length; tokens of an answer
READERS, LONG = 3, 200  # clients during the change, and tokens of their answers
EXPORTED_S = 20.0


def introduce(console: Console) -> None:
    """Say what is real and what is simulated."""
    console.print(
        "[bold]Firsttoken demo.[/] Real: etcd, kube-apiserver, controller-manager, scheduler, the operator, Prometheus,"
        " and in the pods Envoy and vllm-router. [yellow]Simulated: four nodes with 8 A100 each (KWOK), and the"
        " engines, which answer when the time model says that vLLM would; no model runs.[/]\n"
    )


def base_url(cluster: LocalCluster, service: str) -> str:
    """Where the demo's clients ask."""
    return service_url(cluster.layout, service)


def readers(cluster: LocalCluster, service: str, model: str) -> Watchers:
    """Clients that read long answers while something changes."""
    return Watchers(base_url(cluster, service), model, READERS, LONG)


def show_requests(cluster: LocalCluster, console: Console, service: dict[str, Any], model: str) -> None:
    """Ask prompts of several lengths through Envoy, and show TTFT as seen, as exported, and as planned.

    Raises:
        LocalError: an answer was cut, or Prometheus never got to know of all of them.
    """
    name, spec = service["metadata"]["name"], service["spec"]
    rate, shared = float(spec["workload"]["requestsPerSecond"]), int(spec["workload"]["sharedPrefixTokens"])
    sizes = [length for _ in range(ROUNDS) for length in LENGTHS]
    prompts = [question(n, shared=min(shared, n // 2), seed=k) for k, n in enumerate(sizes)]
    base = base_url(cluster, name)
    said = f"{len(prompts)} requests at {rate:g} a second, answers of {TOKENS} tokens, streamed"
    console.print(f"[dim]POST {base}/v1/chat/completions: {said}[/]")
    seen = at_a_rate(base, model, prompts, TOKENS, rate)
    bounds = spec["measurement"]["promptTokenBuckets"]
    by_bucket = {
        bucket: [one for one in seen if bucket_of(one.prompt, bounds) == bucket] for bucket in bucket_names(bounds)
    }
    counts = {bucket: len(found) for bucket, found in by_bucket.items() if found}
    exported = await_exported(cluster.prometheus, name, counts) if cluster.prometheus else {}
    revision = cluster.client.get(GROUP, "InferenceRevision", service["status"]["revision"]["stable"]) or {}
    prediction = plan_from_json(revision["spec"]["plan"]).prediction
    planned = prediction.by_prompt_tokens if prediction else {}
    console.print(_table(by_bucket, exported, planned))
    console.print(
        "  [dim]client and exported: mean; planned: P50 at the spec's rate, where answers are long and decode beside"
        " every prompt.[/]"
    )


def await_exported(prometheus: PrometheusServer, service: str, counts: Mapping[str, int]) -> dict[str, float]:
    """Wait until Prometheus counts as many first tokens as there were, by bucket; returns their mean TTFT in seconds.

    Raises:
        LocalError: it did not.
    """

    def asked(part: str) -> dict[str, float]:
        series = f'firsttoken_ttft_seconds_{part}{{firsttoken_service="{service}",stream="true"}}'
        found = prometheus.query(f"sum by (prompt_tokens) ({series})")
        return {one.labels["prompt_tokens"]: one.value for one in found}

    def same() -> bool:
        return asked("count") == counts

    wait_for("Prometheus to count every first token", same, timeout_s=EXPORTED_S, interval_s=0.3)
    return {bucket: total / counts[bucket] for bucket, total in asked("sum").items()}


def _table(seen: Mapping[str, list[Timed]], exported: Mapping[str, float], planned: Mapping[str, Percentiles]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2))
    for title in ("PROMPT TOKENS", "REQUESTS", "CACHED", "TTFT CLIENT", "EXPORTED", "PLANNED"):
        table.add_column(title, justify="left" if title == "PROMPT TOKENS" else "right")
    for bucket, found in seen.items():
        if not found:
            continue
        mean = sum(one.ttft for one in found) / len(found)
        cached = median(one.cached / one.prompt for one in found)
        row = mean, exported.get(bucket, math.nan), planned[bucket].p50 if bucket in planned else math.nan
        table.add_row(bucket, str(len(found)), f"{cached:.0%}", *(_ms(one) for one in row))
    return table


def _ms(seconds: float) -> str:
    return "–" if math.isnan(seconds) else f"{seconds * 1000:.0f} ms"


def tell_streams(console: Console, watched: Watchers) -> None:
    """How many streams there were during the change.

    Raises:
        LocalError: one was cut.
    """
    console.print(f"  streams    {watched.whole} read to the end during the change, {len(watched.faults)} cut")
    if watched.faults:
        raise LocalError(f"{len(watched.faults)} streams were cut", "\n".join(_first(watched.faults)))


def _first(faults: Iterable[str]) -> list[str]:
    return list(faults)[:3]
