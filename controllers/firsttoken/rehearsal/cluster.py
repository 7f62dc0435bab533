"""A cluster in memory that holds one service, as far as `decide` can see it.

Not an API server: it stores what is applied (`storing`), gives out uids, counts versions and generations, and refuses
a changed InferenceRevision. What Kubernetes' controllers do with the objects is elsewhere (`kubelet`), or a test's.
"""

import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from firsttoken.manifests.names import FIELD_MANAGER
from firsttoken.reconcile.objects import Ref, ref
from firsttoken.rehearsal.storing import Object, give_up, merge, owned_fields


class RefusedError(Exception):
    """The API server's 4xx."""


class Cluster:
    """One namespace with one InferenceService. `now` is the API server's clock, set by whoever lets time pass."""

    def __init__(self, service: Object, now: datetime, profiles: Mapping[str, Object]) -> None:
        """`service` as it is applied: the server's own metadata is filled in. `profiles`: AcceleratorProfiles."""
        self.now = now
        self.store: dict[Ref, Object] = {}
        self.pods: list[Object] = []
        self.profiles = dict(profiles)
        self.gateway_api = True
        self.refuse: set[str] = set()  # kinds that the API server refuses, as an admission webhook would
        self.writes = 0  # by the operator
        self.watched = 0  # changes of anything that is watched
        self.before_delete: Callable[[Object], None] = lambda _: None
        self._numbers = 0
        meta = {"uid": f"uid-of-{service['metadata']['name']}", "generation": 1, "resourceVersion": "7"}
        self.service: Object = copy.deepcopy({**service, "metadata": {**service["metadata"], **meta}})

    # what people do

    def set_spec(self, new: Object) -> None:
        """Another spec."""
        if new != self.service["spec"]:
            self.service = copy.deepcopy({**self.service, "spec": new})
            self.service["metadata"]["generation"] += 1
            self.watched += 1

    def by_hand(self, obj: Object, patch: Object) -> None:
        """Somebody edits an object."""
        self.put(merged(obj, patch))

    def create(self, kind: str, name: str, api_version: str = "v1", **parts: Any) -> Object:
        """Somebody else's object."""
        meta = {"name": name, "namespace": self.service["metadata"]["namespace"]}
        return self.put(merged({"apiVersion": api_version, "kind": kind, "metadata": meta}, parts))

    def remove(self, obj: Object) -> None:
        """An object goes."""
        if self.store.pop(ref(obj), None) is not None:
            self.watched += 1

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

    @property
    def status(self) -> Object:
        """The service's status."""
        found: Object = self.service.get("status") or {}
        return found

    def condition(self, kind: str) -> Object | None:
        """One condition of the service."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), None)

    # what the API server does

    def apply(self, obj: Object) -> None:
        """Server-side apply with the operator's field manager. Raises RefusedError."""
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
        self.put(new)

    def apply_status(self, obj: Object) -> None:
        """Server-side apply to the status of an object that must be there, by uid. Raises RefusedError."""
        self.writes += 1
        old = self.store.get(ref(obj))
        if old is None or old["metadata"]["uid"] != obj["metadata"].get("uid", old["metadata"]["uid"]):
            raise RefusedError(f"{ref(obj)} is not there")
        self.put({**copy.deepcopy(old), "status": {**(old.get("status") or {}), **copy.deepcopy(obj["status"])}})

    def put_status(self, status: Object) -> None:
        """The service's status becomes this one (0012)."""
        self.writes += 1
        self.watched += 1
        self.service["status"] = copy.deepcopy(status)

    def delete(self, key: Ref) -> None:
        """The operator deletes an object."""
        self.writes += 1
        self.before_delete(self.store[key])
        self.remove(self.store[key])

    def put(self, obj: Object) -> Object:
        """An object as somebody wrote it: the server keeps identity, version and generation."""
        old = self.store.get(ref(obj))
        meta = obj["metadata"]
        self._numbers += 1
        self.watched += 1
        if old is None:
            stamp = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
            obj["metadata"] = {**meta, "uid": f"uid-{self._numbers}", "generation": 1, "creationTimestamp": stamp}
        elif old.get("spec") != obj.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        obj["metadata"]["resourceVersion"] = str(self._numbers)
        self.store[ref(obj)] = obj
        return obj


def merged(base: Object, patch: Object) -> Object:
    """`base` with `patch` laid over it (RFC 7396): None removes."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value) if isinstance(value, dict) else value
    return result
