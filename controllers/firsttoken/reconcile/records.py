"""Is an InferenceRevision what this operator wrote? What is in a record is applied, so it is checked before use.

The hash makes a record and its name belong together; the rest keeps a forged one from reaching beyond its service
(docs/decisions/0001).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from firsttoken.manifests import groups
from firsttoken.manifests.names import REVISION_LABEL, labels
from firsttoken.planning.output import plan_from_json
from firsttoken.reconcile.objects import Object, label

PLACEHOLDER = "revision-00000000"  # stands for the name, which follows from the hash
_ROUTER_MAY = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},)
_KINDS = {
    ("apps/v1", "Deployment"),
    (groups.API_VERSION, groups.KIND),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
}


def canonical(value: Any) -> str:
    """`value` as JSON with one spelling."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(value: Any) -> str:
    """SHA-256 of `value` as canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def objects_hash(objects: Any, name: str) -> str:
    """Content hash of a revision's objects, whatever the revision is called."""
    return content_hash(json.loads(canonical(objects).replace(name, PLACEHOLDER)))


def record_labels(record: Object) -> dict[str, str]:
    """The labels a record is found by."""
    return labels(record["spec"]["serviceName"], "settings", revision=record["metadata"]["name"])


def fault(record: Object, service: str) -> str | None:
    """Why a record must not be used, None if it is sound."""
    name = record["metadata"]["name"]
    try:
        spec = record["spec"]
        plan_from_json(spec["plan"])
        objects, digest = spec["objects"], spec["hash"]
        if spec["serviceName"] != service or name != f"{service}-{digest[:8]}" or objects_hash(objects, name) != digest:
            return "its name and hash don't follow from its content"
        return next((why for obj in objects if (why := _object_fault(obj, name)) is not None), None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"this version can't read it: {error!r}"


def _object_fault(obj: Mapping[str, Any], name: str) -> str | None:
    kind, own = obj["kind"], obj["metadata"]["name"]
    if (obj["apiVersion"], kind) not in _KINDS:
        return f"it holds a {kind}, which no revision has"
    if label(obj, REVISION_LABEL) != name or not own.startswith(name):
        return f"{kind}/{own} is not of this revision"
    if kind == "Role" and any(rule not in _ROUTER_MAY for rule in obj["rules"]):
        return f"Role/{own} grants more than a router needs"
    if kind == "RoleBinding" and obj["roleRef"] != {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": own,
    }:
        return f"RoleBinding/{own} binds another role"
    return None
