"""``make demo``: from ``kubectl apply`` to Ready on a real control plane, told as it happens; then a spec edit."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from firsttoken_local import cluster as local
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.errors import LocalError
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.operator import ACCELERATORS, start_operator
from firsttoken_local.progress import Printed
from firsttoken_local.waiting import wait_for

EXAMPLE = REPOSITORY / "examples" / "kb-assistant.yaml"
GROUP = "firsttoken.dev/v1alpha1"
PATIENCE_S = 120.0
CHILD_KINDS = (
    (GROUP, "InferenceRevision"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)
# What a release of the model team might ask for: a longer context, and less time for old streams to end.
EDIT = {"spec": {"model": {"maxModelLength": 8192}, "rollout": {"drainTimeout": "3s"}}}


class Story:
    """One service, watched: each line says when, what, and in the operator's own words why."""

    def __init__(self, cluster: LocalCluster, console: Console, name: str) -> None:
        self._client, self._console, self._name = cluster.client, console, name
        self._started = time.monotonic()
        self._objects: set[tuple[str, str]] = set()
        self._said: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    def restart(self) -> None:
        """Count the seconds from now."""
        self._started = time.monotonic()

    def tell(self, what: str, text: str) -> None:
        """One line, unless the last one about ``what`` said the same."""
        if self._said.get(what) == text:
            return
        self._said[what] = text
        line = Table.grid(padding=(0, 1))
        line.add_column(width=9, style="dim")
        line.add_column(width=10, style="bold")
        line.add_column()
        line.add_row(f"+{time.monotonic() - self._started:5.1f} s", what, text)
        self._console.print(line)

    def service(self) -> dict[str, Any]:
        """The service as it is now."""
        return self._client.get(GROUP, "InferenceService", self._name) or {}

    def look(self) -> dict[str, Any]:
        """Tell what is new, and return the service."""
        service = self.service()
        status = service.get("status") or {}
        self._tell_plan(status)
        self._tell_objects()
        for role in (status.get("plan") or {}).get("roles") or []:
            self.tell(f"pods {role['role']}"[:10], f"{role.get('readyReplicas', 0)} of {role['replicas']} ready")
        for condition in status.get("conditions") or []:
            if condition["type"] in ("Ready", "RolloutProgressing"):
                shown = "rollout" if condition["type"] != "Ready" else "Ready"
                self.tell(shown, f"{condition['status']} [dim]({condition['reason']})[/] {condition['message']}")
        return service

    def _tell_plan(self, status: dict[str, Any]) -> None:
        plan = status.get("plan")
        revision = (status.get("revision") or {}).get("desired")
        if not plan or self._said.get("plan of") == str(revision):
            return
        self._said["plan of"] = str(revision)
        roles = ", ".join(
            f"{r['replicas']} × {r['role']} on {r['gpusPerReplica']} × {r['accelerator']} each" for r in plan["roles"]
        )
        self.tell("plan", f"{status['layout']}: {roles}; {plan['gpus']} GPUs; revision {revision}")
        table = Table.grid(padding=(0, 1))
        table.add_column(width=9)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        for reason in plan["reasons"]:
            if self._reasons.get(reason["code"]) != reason["message"]:
                table.add_row("", reason["code"], reason["message"])
            self._reasons[reason["code"]] = reason["message"]
        self._console.print(table)

    def _tell_objects(self) -> None:
        found = set(self._children())
        for verb, objects in (("created", found - self._objects), ("removed", self._objects - found)):
            for kind in dict.fromkeys(kind for _, kind in CHILD_KINDS):
                names = sorted(name for k, name in objects if k == kind)
                if names:
                    self.tell(verb, f"{kind} {', '.join(names)}")
        self._objects = found

    def _children(self) -> Iterator[tuple[str, str]]:
        for api_version, kind in CHILD_KINDS:
            for obj in self._client.list(api_version, kind, namespace="default"):
                if (obj["metadata"].get("labels") or {}).get("firsttoken.dev/service") == self._name:
                    yield kind, obj["metadata"]["name"]


def is_ready(service: dict[str, Any]) -> bool:
    """Ready, judged on the spec as it is now."""
    status = service.get("status") or {}
    current = status.get("observedGeneration") == service.get("metadata", {}).get("generation")
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    return current and conditions.get("Ready") == "True"


def settled(service: dict[str, Any]) -> bool:
    """Ready, and no older revision is left to drain."""
    revision = (service.get("status") or {}).get("revision") or {}
    return is_ready(service) and revision.get("desired") == revision.get("stable") and not revision.get("draining")


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
    until(story, is_ready, f"{name} to be Ready")
    _transcript(console, cluster, "get", "infsvc")

    console.rule("[bold]A spec edit: the model team wants a longer context", align="left")
    console.print(yaml.safe_dump(EDIT, sort_keys=False).rstrip(), style="dim")
    story.restart()
    cluster.client.apply(_merged(manifest, EDIT), field_manager="demo")
    until(story, settled, f"{name} to be served by the new revision alone")
    _transcript(console, cluster, "get", "infrev")
    _summary(cluster, console, story.service())


def _transcript(console: Console, cluster: LocalCluster, *arguments: str) -> None:
    console.print(f"\n[dim]$ kubectl {' '.join(arguments)}[/]")
    console.print(cluster.kubectl(*arguments), highlight=False, markup=False, soft_wrap=True)


def until(story: Story, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
    """Tell the story until ``condition`` holds."""
    wait_for(what, lambda: condition(story.look()), timeout_s=PATIENCE_S, interval_s=0.15)


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
    console.print(
        "  [yellow]The GPU nodes are fake (KWOK): their pods are Ready, but no model ran and no token was made.[/]"
    )


def _introduce(console: Console) -> None:
    console.print(
        "[bold]Firsttoken demo.[/] Real: etcd, kube-apiserver, controller-manager, scheduler, Prometheus and the"
        " operator. [yellow]Fake: four nodes with 8 A100 each (KWOK). Pods become Ready there; no model runs.[/]\n"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 when every step came out, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    parser.add_argument("--name", default="demo", help="name of the cluster (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=False)
    started = time.monotonic()
    _introduce(console)
    code = _run(options.name, console, keep=options.keep)
    console.print(f"\n[bold]{'done' if code == 0 else 'failed'}[/] after {time.monotonic() - started:.0f} s")
    return code


def _run(name: str, console: Console, *, keep: bool) -> int:
    code = 1
    try:
        local.down(name)  # a demo begins with an empty cluster
        cluster = local.up(name, progress=Printed(sys.stdout), manifests=[ACCELERATORS])
        start_operator(cluster)
        play(cluster, console)
        code = 0
        if keep:
            console.print(f"\nThe cluster stays up. [bold]export KUBECONFIG={cluster.kubeconfig}[/]", soft_wrap=True)
            console.print(f"End it with: make cluster-down NAME={name}")
    except LocalError as error:
        console.print(f"[red]error:[/] {error.message}")
        if error.details:
            console.print(error.details, markup=False)
    except KeyboardInterrupt:
        console.print("interrupted")
        code = 130
    finally:
        if not (keep and code == 0):
            with contextlib.suppress(LocalError):
                local.down(name)
    return code


if __name__ == "__main__":
    sys.exit(main())
