"""A cluster that holds one service, and the operator on it: Deployments that come up, a clock.

Cluster and operator are those of `firsttoken rehearse`. Here Deployments report what a test says, and time passes when
a test lets it pass.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from firsttoken.manifests.names import REVISION_LABEL
from firsttoken.reconcile.envoy_views import Envoys, EnvoyView
from firsttoken.reconcile.objects import Ref, label
from firsttoken.reconcile.routes import versions
from firsttoken.rehearsal.cluster import Cluster, RefusedError, merged
from firsttoken.rehearsal.operator import Operator
from firsttoken.rehearsal.storing import Object
from reconcile.services import API, profile, spec
from reconcile.storing import weights_of

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

__all__ = ["NOW", "RefusedError", "World", "kinds", "ready", "rolled"]


class World(Cluster, Operator):
    """One namespace with one InferenceService `chat`, and the operator's steps on it, one write after the other."""

    def __init__(self, **changes: Any) -> None:
        meta = {"name": "chat", "namespace": "apps"}
        service = {"apiVersion": API, "kind": "InferenceService", "metadata": meta, "spec": spec(**changes)}
        Cluster.__init__(self, service, NOW, {"nvidia-a100-40gb": profile("nvidia-a100-40gb")})
        Operator.__init__(self, self)

    # what people do

    def edit(self, **changes: Any) -> None:
        """A change of the spec."""
        self.set_spec(merged(self.service["spec"], changes))

    # what there is

    def get(self, kind: str, name: str) -> Object:
        """An object that must be there."""
        (found,) = (o for o in self.objects(kind) if o["metadata"]["name"] == name)
        return found

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return [o["metadata"]["name"] for o in self.objects(kind)]

    @property
    def revision(self) -> Object:
        """The status of revisions."""
        found: Object = self.status.get("revision") or {}
        return found

    @property
    def draining(self) -> list[str]:
        """Names of the revisions that finish their streams."""
        return [d["name"] if isinstance(d, dict) else d for d in self.revision["draining"]]

    def says(self, kind: str) -> tuple[str, str] | None:
        """Status and reason of a condition."""
        found = self.condition(kind)
        return None if found is None else (found["status"], found["reason"])

    def weights(self) -> dict[str, int]:
        """Shares of the requests as Envoy is told; revisions that it knows with none have 0."""
        return weights_of(self.store.get(Ref("v1", "ConfigMap", "chat-gateway-routes"), {}))

    # what Kubernetes' controllers do

    def report(self, deployment: Object, ready: int | None = None, **conditions: Object) -> None:
        """The Deployment's controller reports: `ready` replicas of the wanted ones (default: all)."""
        wanted = deployment["spec"].get("replicas", 1)
        count = wanted if ready is None else min(ready, wanted)
        counts = {"readyReplicas": count, "availableReplicas": count} if count else {}
        deployment["status"] = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": wanted,
            "updatedReplicas": wanted,
            **counts,
            "conditions": [{"type": kind, **fields} for kind, fields in conditions.items()],
        }

    def come_up(self, revision: str | None = None, ready: int | None = None) -> None:
        """Deployments (of one revision) report `ready` replicas each, all by default; Gateways accept their routes."""
        self.accept_routes()
        for deployment in self.objects("Deployment"):
            if revision is None or label(deployment, REVISION_LABEL) == revision:
                self.report(deployment, ready)

    def accept_routes(self) -> None:
        """The Gateway takes the routes that are attached to it."""
        for route in self.objects("HTTPRoute"):
            route["status"] = {"parents": [{"conditions": [{"type": "Accepted", "status": "True"}]}]}

    # what the operator does

    def view(self, *revisions: str, pod: str = "envoy-1", routes: Object | None = None) -> EnvoyView:
        """What an Envoy says that has these revisions' endpoints and (by default) the routes that are stored."""
        stored = self.store.get(Ref("v1", "ConfigMap", "chat-gateway-routes"))
        return EnvoyView(pod, dict.fromkeys(revisions, 1), versions(routes or stored))

    def say(self, *views: Callable[[], EnvoyView], silent: tuple[str, ...] = ()) -> None:
        """Which Envoys answer from now on, and what."""
        self.envoys = lambda: Envoys(tuple(view() for view in views), silent)

    def settle(self, most: int = 20, step: float = 0.0) -> int:
        """Reconcile until nothing is written, while all Deployments come up and time passes; the passes it took."""
        for number in range(most):
            before = self.writes
            self.come_up()
            self.reconcile()
            self.wait(step)
            if self.writes == before:
                return number
        raise AssertionError(f"still writing after {most} passes: {self.look()[1]}")


def ready(**changes: Any) -> World:
    """A world whose service serves, and is quiet."""
    world = World(**changes)
    world.settle()
    return world


def rolled(change: Object, seconds: float = 1.0, **changes: Any) -> tuple[World, str, str]:
    """A service right after a new revision took over: the world, the draining revision, the serving one."""
    world = ready(**changes)
    old = world.revision["stable"]
    world.edit(**change)
    world.reconcile()
    world.wait(seconds)
    world.come_up()
    world.reconcile()  # shifts
    world.reconcile()  # sees that it did
    return world, old, world.revision["stable"]


def kinds(objects: Iterable[Any]) -> list[str]:
    """`Kind/name` of objects in their order."""
    return [f"{o['kind']}/{o['metadata']['name']}" for o in objects]
