"""A cluster in memory that records what is asked of it; only for what needs no API server's own behaviour."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from firsttoken.manifests.names import FIELD_MANAGER
from firsttoken_operator.cluster import ClusterError
from firsttoken_operator.kinds import Kind

Object = dict[str, Any]


class FakeCluster:
    """`objects` by kind and name; `fails` maps a call such as `apply Service/chat` to the error it raises."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in objects}
        self.fails: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.unknown: set[str] = set()  # kinds this cluster does not know

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:  # noqa: ARG002
        """One object."""
        self._called("get", kind.kind, name)
        return copy.deepcopy(self.objects.get((kind.kind, name)))

    async def list(
        self,
        kind: Kind,
        namespace: str | None,  # noqa: ARG002 - there is one
        selector: str = "",
        fields: str = "",  # noqa: ARG002
    ) -> list[Object] | None:
        """All objects that carry the labels of `selector`."""
        self._called("list", kind.kind, selector)
        if kind.kind in self.unknown:
            return None
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        found = [o for (k, _), o in sorted(self.objects.items()) if k == kind.kind]
        return [copy.deepcopy(o) for o in found if wanted.items() <= (o["metadata"].get("labels") or {}).items()]

    async def apply(self, obj: Mapping[str, Any], subresource: str = "") -> Object:
        """Server-side apply, without merging."""
        self._called("apply", obj["kind"], obj["metadata"]["name"] + (f"/{subresource}" if subresource else ""))
        stored = copy.deepcopy(dict(obj))
        if not subresource:
            entry = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {}}
            stored["metadata"] = {**stored["metadata"], "uid": f"uid-{len(self.calls)}", "managedFields": [entry]}
            self.objects[obj["kind"], obj["metadata"]["name"]] = stored
        return stored

    async def create(self, obj: Mapping[str, Any]) -> Object:
        """Create; 409 if there is one."""
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._called("create", kind, name)
        if (kind, name) in self.objects:
            raise ClusterError(409, "AlreadyExists", f"{name} already exists")
        self.objects[kind, name] = copy.deepcopy(dict(obj))
        return dict(obj)

    async def merge(
        self,
        kind: Kind,
        name: str,
        namespace: str,  # noqa: ARG002 - there is one
        patch: Mapping[str, Any],
        subresource: str = "",
    ) -> Object:
        """A merge patch, one level deep."""
        self._called("merge", kind.kind, name + (f"/{subresource}" if subresource else ""))
        if subresource:
            return dict(patch)
        obj = self.objects[kind.kind, name]
        obj.update(copy.deepcopy(dict(patch)))
        return obj

    async def delete(self, obj: Mapping[str, Any]) -> None:
        """Delete."""
        self._called("delete", obj["kind"], obj["metadata"]["name"])
        self.objects.pop((obj["kind"], obj["metadata"]["name"]), None)

    def writes(self) -> Sequence[str]:
        """What was asked that changes something."""
        return [c for c in self.calls if not c.startswith(("get", "list"))]

    def _called(self, verb: str, kind: str, rest: str) -> None:
        call = f"{verb} {kind}/{rest}"
        self.calls.append(call)
        if call in self.fails:
            raise self.fails[call]
