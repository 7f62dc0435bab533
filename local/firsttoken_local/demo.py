"""``make demo``: from ``kubectl apply`` to Ready on a real control plane, told as it happens; then a spec edit."""

from __future__ import annotations

import argparse
import contextlib
import re
import secrets
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.manifests.sources import served_name
from firsttoken_local import cluster as local
from firsttoken_local import played_demo, real_demo
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.ending import down
from firsttoken_local.errors import LocalError
from firsttoken_local.guard import release, start_guard
from firsttoken_local.layout import REPOSITORY, cluster_folder
from firsttoken_local.operator import ACCELERATORS, start_operator
from firsttoken_local.player.start import obstacle
from firsttoken_local.progress import Printed
from firsttoken_local.signals import ending_signals_raise
from firsttoken_local.story import Story, is_ready, settled, until

EXAMPLE = REPOSITORY / "examples" / "kb-assistant.yaml"
PATIENCE_S = 120.0
# What a release of the model team might ask for: a longer context, and less time for old streams to end.
EDIT = {"spec": {"model": {"maxModelLength": 8192}, "rollout": {"drainTimeout": "3s"}}}


def alone(service: dict[str, Any], story: Story) -> bool:
    """Settled, and everything of the older revision is removed, except its record."""
    return settled(service) and not story.left_of_others(service["status"]["revision"]["stable"])


def play(cluster: LocalCluster, console: Console) -> None:
    """Tell the whole story.

    Raises:
        LocalError: the service did not become Ready in time, or an example is missing.
    """
    manifest = yaml.safe_load(EXAMPLE.read_text())
    name = manifest["metadata"]["name"]
    story = Story(cluster, console, name)

    console.rule(f"[bold]kubectl apply -f examples/{EXAMPLE.name}", align="left")
    _show_spec(console, manifest["spec"])
    story.restart()
    cluster.client.apply(manifest, field_manager="demo")
    until(story, is_ready, f"{name} to be Ready", PATIENCE_S)
    _transcript(console, cluster, "get", "infsvc")
    played = cluster.layout.played
    model = served_name(ModelSpec.model_validate(manifest["spec"]["model"]))
    if played:
        console.rule("[bold]Requests of several lengths, through Envoy and vllm-router", align="left")
        played_demo.show_requests(cluster, console, story.service(), model)

    console.rule("[bold]A spec edit: the model team wants a longer context", align="left")
    console.print(yaml.safe_dump(EDIT, sort_keys=False).rstrip(), style="dim")
    story.restart()
    readers = played_demo.readers(cluster, name, model) if played else None
    with readers or contextlib.nullcontext():
        cluster.client.apply(_merged(manifest, EDIT), field_manager="demo")
        served = f"{name} to be served by the new revision alone"
        until(story, lambda service: alone(service, story), served, PATIENCE_S)
    _transcript(console, cluster, "get", "infrev")
    _summary(cluster, console, story.service())
    if readers is not None:
        played_demo.tell_streams(console, readers)


def _transcript(console: Console, cluster: LocalCluster, *arguments: str) -> None:
    table = cluster.kubectl(*arguments)
    width = fitting(table, console.width) if console.is_terminal else None
    cut = f" | cut -c-{width}" if width is not None else ""
    console.print(f"\n[dim]$ kubectl {' '.join(arguments)}{cut}[/]")
    for line in table.splitlines():
        console.print(line[:width].rstrip(), highlight=False, markup=False, soft_wrap=True)


def fitting(table: str, width: int) -> int | None:
    """How many columns of text to show, so that the last one shown is whole; None when all fit."""
    lines = [line.rstrip() for line in table.splitlines()]
    if max(map(len, lines)) <= width:
        return None
    ends = [head.start() - 3 for head in re.finditer(r"\S+", lines[0])]  # kubectl puts three blanks between columns
    return max((end for end in ends if 0 < end <= width), default=width)


def _merged(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in patch.items():
        merged[key] = _merged(base.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


def _show_spec(console: Console, spec: dict[str, Any]) -> None:
    shown = {key: spec[key] for key in ("model", "accelerator", "workload", "slos") if key in spec}
    console.print(yaml.safe_dump(shown, sort_keys=False, default_flow_style=None).rstrip(), style="dim")


def _summary(cluster: LocalCluster, console: Console, service: dict[str, Any]) -> None:
    status = service["status"]
    console.rule("[bold]Summary", align="left")
    console.print(f"  endpoint   {status['endpoint']} (inside the cluster)")
    console.print(f"  serving    {status['revision']['stable']} with {status['plan']['gpus']} GPUs")
    writes = cluster.writes(user="firsttoken-operator")
    console.print(f"  operator   {len(writes)} writes in all, by the API server's audit log")
    if cluster.prometheus is not None:
        up = cluster.prometheus.query("sum(up)")
        seen = cluster.prometheus.await_sample("sum(firsttoken_operator_reconciles_total)")
        console.print(f"  prometheus {up[0].value:.0f} targets up; {seen[0].value:.0f} reconciles counted")
    told = (
        "The engines are simulated on simulated A100s: no model ran, and when tokens came is a prediction."
        if cluster.layout.played
        else "The GPU nodes are fake (KWOK): their pods are Ready, but no model ran and no token was made."
    )
    console.print(f"  [yellow]{told}[/]")


def _introduce(console: Console, *, real: bool, why: str) -> None:
    if real:
        real_demo.introduce(console)
        return
    if not why:
        played_demo.introduce(console)
        return
    console.print(
        "[bold]Firsttoken demo.[/] Real: etcd, kube-apiserver, controller-manager, scheduler, Prometheus and the"
        " operator. [yellow]Fake: four nodes with 8 A100 each (KWOK). Pods become Ready there; no model runs.[/]\n"
        f"[yellow]No requests are shown: their pods can't be played here, {escape(why)}.[/]\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 when every step came out, 130 when it was interrupted, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument(
        "--real-node", action="store_true", help="install the chart and serve real tokens (Linux, root)"
    )
    parser.add_argument("--name", help="name of the cluster (default: a new one, demo-XXXXXX)")
    options = parser.parse_args(arguments)
    name = f"demo-{secrets.token_hex(3)}" if options.name is None else options.name
    console = Console(soft_wrap=False)
    started = time.monotonic()
    why = "" if options.real_node else obstacle()
    _introduce(console, real=options.real_node, why=why)
    try:
        with ending_signals_raise(once=True):
            code = _run(name, console, keep=options.keep, real=options.real_node, played=not why)
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"[bold]{'done' if code == 0 else 'failed'}[/] after {time.monotonic() - started:.0f} s")
    return code


def _run(name: str, console: Console, *, keep: bool, real: bool, played: bool) -> int:
    """The demo in a cluster of its own, which is gone afterwards however this process ends, unless it is to be kept."""
    code = 1
    try:
        with _cluster(name, keep=keep, real=real, played=played) as cluster:
            if real:
                real_demo.play(cluster, console)
            else:
                start_operator(cluster, offline=False)
                play(cluster, console)
            code = 0
            if keep:
                shown = shlex.quote(str(cluster.kubeconfig))
                console.print(f"\nThe cluster stays up. [bold]export KUBECONFIG={shown}[/]", soft_wrap=True)
                console.print(f"End it with: make cluster-down NAME={name}")
    except LocalError as error:
        console.print(f"[red]error:[/] {escape(error.message)}")
        if error.details:
            console.print(error.details, markup=False)
        code = 1
    return code


@contextlib.contextmanager
def _cluster(name: str, *, keep: bool, real: bool, played: bool) -> Iterator[LocalCluster]:
    folder = cluster_folder(name)
    if folder.exists():
        raise LocalError(
            f"there is a cluster {name} already: choose another --name, or end it: make cluster-down NAME={name}"
        )
    told, done = Printed(sys.stdout), False
    guard = start_guard(folder, folder)
    try:
        if real:  # definitions and accelerators come with the chart
            yield local.up(name, progress=told, nodes=0, real_node=True, definitions=False)
        else:
            yield local.up(name, progress=told, manifests=[ACCELERATORS], play=played)
        done = True
    finally:
        kept = keep and done
        try:
            if not kept:
                with contextlib.suppress(OSError):  # the terminal may be gone
                    told.line("\ncleaning up …")
                down(name, progress=told)
        finally:
            release(guard, keep=kept)


if __name__ == "__main__":
    sys.exit(main())
