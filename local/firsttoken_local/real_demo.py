"""``make demo REAL_NODE=1``: from ``helm install`` to streamed tokens, on a node that runs pods."""

from __future__ import annotations

import sys
import time

import yaml
from rich.console import Console

from firsttoken_local import chat
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.installation import NAMESPACE, import_images, install
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.progress import Printed
from firsttoken_local.story import Story, is_ready, until

EXAMPLE = REPOSITORY / "examples" / "cpu-tiny.yaml"
PATIENCE_S = 600.0  # two engines load on few cores
QUESTION = "Which number is a fleet like this one judged by?"


def introduce(console: Console) -> None:
    """Say what is real."""
    console.print(
        "[bold]Firsttoken demo on a real node.[/] Real: control plane, kubelet, containerd, Prometheus, the chart, the"
        " operator in its pods, Envoy, vllm-router and vLLM on the CPU. [yellow]Made up: the model, whose weights are"
        " random.[/]\n"
    )


def play(cluster: LocalCluster, console: Console) -> None:
    """Tell the whole story.

    Raises:
        LocalError: an image could not be made, or something did not become ready in time.
    """
    told = Printed(sys.stdout)
    import_images(cluster, told)
    console.rule(f"[bold]helm install firsttoken charts/firsttoken -n {NAMESPACE}", align="left")
    install(cluster, told=told)
    console.rule(f"[bold]kubectl apply -f examples/{EXAMPLE.name}", align="left")
    manifest = yaml.safe_load(EXAMPLE.read_text())
    name = manifest["metadata"]["name"]
    story = Story(cluster, console, name)
    cluster.kubectl("apply", "-f", str(EXAMPLE))
    until(story, is_ready, f"{name} to be Ready", PATIENCE_S)
    console.print(cluster.kubectl("get", "pods").rstrip(), highlight=False, markup=False)
    console.rule("[bold]POST /v1/chat/completions", align="left")
    _chat(cluster, console, name, manifest["spec"]["model"]["name"])
    _metrics(cluster, console, name)


def _chat(cluster: LocalCluster, console: Console, service: str, model: str) -> None:
    base = chat.service_url(cluster, service)
    console.print(f"[dim]{base}/v1/chat/completions, streamed; the question: {QUESTION}[/]")
    started, first = time.monotonic(), 0.0
    for text in chat.stream(base, model, QUESTION, tokens=60):
        first = first or time.monotonic() - started
        console.print(text, end="", highlight=False, markup=False, style="cyan")
    console.print(f"\nfirst token after {first * 1000:.0f} ms, all after {(time.monotonic() - started) * 1000:.0f} ms")


def _metrics(cluster: LocalCluster, console: Console, service: str) -> None:
    if cluster.prometheus is None:
        return
    wanted = f'sum by (pod) (vllm:generation_tokens_total{{firsttoken_service="{service}"}}) > 0'
    for sample in cluster.prometheus.await_sample(wanted):
        console.print(f"  prometheus {sample.labels['pod']} made {sample.value:.0f} tokens")
