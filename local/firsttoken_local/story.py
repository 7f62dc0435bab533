"""What the demo tells about one service while it watches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.waiting import wait_for

GROUP = "firsttoken.dev/v1alpha1"
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


class Story:
    """One service, watched: each line says when, what, and in the operator's own words why."""

    def __init__(self, cluster: LocalCluster, console: Console, name: str) -> None:
        self._client, self._console, self._name = cluster.client, console, name
        self._started = time.monotonic()
        self._objects: dict[tuple[str, str], str | None] = {}  # kind and name -> revision
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
        found = dict(self._children())
        before, now = self._objects.keys(), found.keys()
        for verb, objects in (("created", now - before), ("removed", before - now)):
            for kind in dict.fromkeys(kind for _, kind in CHILD_KINDS):
                names = sorted(name for k, name in objects if k == kind)
                if names:
                    self.tell(verb, f"{kind} {', '.join(names)}")
        self._objects = found

    def left_of_others(self, revision: str) -> bool:
        """Whether something of another revision was there at the last look; records are history and stay."""
        others = (None, revision)
        return any(of not in others and kind != "InferenceRevision" for (kind, _), of in self._objects.items())

    def _children(self) -> Iterator[tuple[tuple[str, str], str | None]]:
        for api_version, kind in CHILD_KINDS:
            for obj in self._client.list(api_version, kind, namespace="default"):
                labels = obj["metadata"].get("labels") or {}
                if labels.get("firsttoken.dev/service") == self._name:
                    yield (kind, obj["metadata"]["name"]), labels.get("firsttoken.dev/revision")


def until(story: Story, condition: Callable[[dict[str, Any]], bool], what: str, patience_s: float) -> None:
    """Tell the story until ``condition`` holds.

    Raises:
        LocalError: it did not within ``patience_s`` seconds.
    """
    wait_for(what, lambda: condition(story.look()), timeout_s=patience_s, interval_s=0.15)
