"""A cluster that holds one service, as far as `decide` can see it: objects, Deployments that come up, a clock.

Not an API server: it stores what is applied (`storing`), gives out uids, counts versions and generations, and refuses
a changed InferenceRevision. Deployments report what a test says, and time passes when a test lets it pass.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from firsttoken.manifests.images import Images
from firsttoken.manifests.names import FIELD_MANAGER, REVISION_LABEL, ROLE_LABEL, SERVICE_LABEL
from firsttoken.reconcile import Decision, Event, Observation, decide
from firsttoken.reconcile.envoy_views import Envoys, EnvoyView
from firsttoken.reconcile.objects import Ref, is_owned, label, progress, ref
from firsttoken.reconcile.routes import versions
from reconcile.services import API, merged, profile, spec
from reconcile.storing import Object, give_up, merge, owned_fields, status_beside, weights_of

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class RefusedError(Exception):
    """The API server's 4xx."""


class World:
    """One namespace with one InferenceService `chat`, and the operator's steps on it, one write after the other."""

    def __init__(self, **changes: Any) -> None:
        self.now = NOW
        self.store: dict[Ref, Object] = {}
        self.pods: list[Object] = []
        self.gateway_api = True
        self.envoys: Callable[[], Envoys] | None = None  # None: there is no way to them
        self.asked = 0
        self.images = Images()
        self.model_config: Object | None = None  # what the hub says
        self.model_fault = ""
        self.refuse: set[str] = set()  # kinds that the API server refuses, as an admission webhook would
        self.events: list[Event] = []
        self.writes = 0
        self.profiles = {"nvidia-a100-40gb": profile("nvidia-a100-40gb")}
        self.before_delete: Callable[[Object], None] = lambda _: None
        self._numbers = 0
        meta = {"name": "chat", "namespace": "apps", "uid": "uid-of-chat", "generation": 1, "resourceVersion": "7"}
        self.service: Object = {
            "apiVersion": API,
            "kind": "InferenceService",
            "metadata": meta,
            "spec": spec(**changes),
        }

    # what people do

    def edit(self, **changes: Any) -> None:
        """A change of the spec."""
        self.set_spec(merged(self.service["spec"], changes))

    def set_spec(self, new: Object) -> None:
        """Another spec."""
        if new != self.service["spec"]:
            self.service = copy.deepcopy({**self.service, "spec": new})
            self.service["metadata"]["generation"] += 1

    def by_hand(self, obj: Object, patch: Object) -> None:
        """Somebody edits an object."""
        self._put(merged(obj, patch))

    def create(self, kind: str, name: str, api_version: str = "v1", **parts: Any) -> Object:
        """Somebody else's object."""
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "apps"}}
        return self._put(merged(body, parts))

    def remove(self, obj: Object) -> None:
        """An object goes."""
        self.store.pop(ref(obj), None)

    def wait(self, seconds: float) -> None:
        """Time passes (or the clock jumps back)."""
        self.now += timedelta(seconds=seconds)

    def delete_service(self) -> None:
        """The service goes, and the garbage collector takes what it owned."""
        uid = self.service["metadata"]["uid"]
        for obj in self.objects():
            owners = obj["metadata"].get("ownerReferences") or []
            if owners and all(o["uid"] == uid for o in owners):
                self.remove(obj)

    # what there is

    def objects(self, kind: str | None = None) -> list[Object]:
        """Everything stored (of a kind), by name."""
        return [o for key, o in sorted(self.store.items()) if kind in (None, key.kind)]

    def get(self, kind: str, name: str) -> Object:
        """An object that must be there."""
        (found,) = (o for o in self.objects(kind) if o["metadata"]["name"] == name)
        return found

    def names(self, kind: str) -> list[str]:
        """Names of all objects of a kind."""
        return [o["metadata"]["name"] for o in self.objects(kind)]

    @property
    def status(self) -> Object:
        """The service's status."""
        found: Object = self.service.get("status") or {}
        return found

    @property
    def revision(self) -> Object:
        """The status of revisions."""
        found: Object = self.status.get("revision") or {}
        return found

    @property
    def draining(self) -> list[str]:
        """Names of the revisions that finish their streams."""
        return [d["name"] if isinstance(d, dict) else d for d in self.revision["draining"]]

    def condition(self, kind: str) -> Object | None:
        """One condition of the service."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), None)

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

    def look(self) -> tuple[Observation, Decision]:
        """What would be decided now: names not among the labelled children are looked up, as 0006 has it."""
        observation, decision = self._decide(self.observe())
        uid = self.service["metadata"]["uid"]
        there = [self.store[ref(o)] for o in decision.apply if ref(o) in self.store]
        seen = {ref(o) for o in (*observation.children, *observation.revisions) if is_owned(o, uid)}
        foreign = frozenset(ref(o) for o in there if not is_owned(o, uid))
        ours = tuple(copy.deepcopy(o) for o in there if is_owned(o, uid) and ref(o) not in seen)
        if foreign or ours:
            records = tuple(o for o in ours if o["kind"] == "InferenceRevision")
            others = tuple(o for o in ours if o["kind"] != "InferenceRevision")
            observation = replace(
                observation,
                foreign=foreign,
                children=(*observation.children, *others),
                revisions=(*observation.revisions, *records),
            )
            observation, decision = self._decide(observation)
        return observation, decision

    def _decide(self, observation: Observation) -> tuple[Observation, Decision]:
        """Envoys are asked only if that could matter, as the operator does."""
        decision = decide(observation)
        if self.envoys is None or not decision.ask:
            return observation, decision
        self.asked += 1
        observation = replace(observation, envoys=self.envoys())
        return observation, decide(observation)

    def view(self, *revisions: str, pod: str = "envoy-1", routes: Object | None = None) -> EnvoyView:
        """What an Envoy says that has these revisions' endpoints and (by default) the routes that are stored."""
        stored = self.store.get(Ref("v1", "ConfigMap", "chat-gateway-routes"))
        return EnvoyView(pod, dict.fromkeys(revisions, 1), versions(routes or stored))

    def say(self, *views: Callable[[], EnvoyView], silent: tuple[str, ...] = ()) -> None:
        """Which Envoys answer from now on, and what."""
        self.envoys = lambda: Envoys(tuple(view() for view in views), silent)

    def observe(self) -> Observation:
        """The objects with the service's label, as values of their own."""
        labelled = [copy.deepcopy(o) for o in self.objects() if label(o, SERVICE_LABEL) == "chat"]
        deployments = [o for o in labelled if o["kind"] == "Deployment" and label(o, ROLE_LABEL) is not None]
        return Observation(
            now=self.now,
            service=copy.deepcopy(self.service),
            revisions=tuple(o for o in labelled if o["kind"] == "InferenceRevision"),
            children=tuple(o for o in labelled if o["kind"] != "InferenceRevision"),
            pods=() if all(progress(d).complete for d in deployments) else tuple(copy.deepcopy(self.pods)),
            profiles=self.profiles,
            gateway_api=self.gateway_api,
            model_config=copy.deepcopy(self.model_config),
            model_fault=self.model_fault,
            images=self.images,
        )

    def reconcile(self, steps: int | None = None) -> Decision:
        """One pass of the operator; with `steps` it is killed after that many writes."""
        observation, decision = self.look()
        for number, _ in enumerate(self._act(observation, decision)):
            if number == steps:
                break
        return decision

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

    def _act(self, observation: Observation, decision: Decision) -> Iterator[None]:
        """As the operator acts: a step is yielded before each write."""
        rejected = {}
        for obj in decision.apply:
            yield
            try:
                self.apply(obj)
            except RefusedError as error:
                rejected[ref(obj)] = str(error)
                if obj["kind"] == "InferenceRevision":
                    break
        if rejected:
            decision = decide(replace(observation, rejected=rejected))
        for event in decision.events:
            yield
            self.writes += 1
            self.events.append(event)
        if decision.status is not None:
            yield
            self.put_status(decision.status)
        for gone in decision.delete:
            yield
            self.writes += 1
            self.before_delete(self.store[ref(gone)])
            self.remove(self.store[ref(gone)])

    def apply(self, obj: Object) -> None:
        """Server-side apply with our manager."""
        self.writes += 1
        if obj["kind"] in self.refuse:
            raise RefusedError(f"admission webhook denied {obj['kind']}")
        old = self.store.get(ref(obj))
        new = copy.deepcopy(old) if old is not None else {"metadata": {}}
        for entry in new["metadata"].get("managedFields", ()):
            give_up(new, entry["fieldsV1"], obj)
        merge(new, obj)
        if old is not None and obj["kind"] == "InferenceRevision" and old["spec"] != new["spec"]:
            raise RefusedError("a revision is a record and can't be changed")
        entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned_fields(obj)}
        new["metadata"]["managedFields"] = [entry]
        self._put(new)

    def put_status(self, status: Object) -> None:
        """Server-side apply of the status; conditions of others stay."""
        self.writes += 1
        self.service["status"] = status_beside(self.service.get("status"), status)

    def _put(self, obj: Object) -> Object:
        old = self.store.get(ref(obj))
        meta = obj["metadata"]
        self._numbers += 1
        if old is None:
            stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            obj["metadata"] = {**meta, "uid": f"uid-{self._numbers}", "generation": 1, "creationTimestamp": stamp}
        elif old.get("spec") != obj.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        obj["metadata"]["resourceVersion"] = str(self._numbers)
        self.store[ref(obj)] = obj
        return obj


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
