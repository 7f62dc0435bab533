"""Applying YAML files: definitions first, then what needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from firsttoken_local.errors import LocalError
from firsttoken_local.kube import ApiError, KubeClient, Object
from firsttoken_local.waiting import wait_for

# What later objects depend on comes first; every kind not named follows.
ORDER = (
    "CustomResourceDefinition",
    "Namespace",
    "PriorityClass",
    "StorageClass",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ConfigMap",
    "Secret",
)


def read_objects(paths: Iterable[Path]) -> list[Object]:
    """Read all objects of YAML files; folders count with every .yaml and .yml below them, lists with their items.

    Raises:
        LocalError: a file is missing, is no YAML, or holds something that is no Kubernetes object.
    """
    objects: list[Object] = []
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
        for file in files:
            try:
                documents = list(yaml.safe_load_all(file.read_text()))
            except (OSError, yaml.YAMLError) as error:
                raise LocalError(f"{file} cannot be read: {error}") from error
            for document in documents:
                objects += _objects(document, file)
    return objects


def _objects(document: object, file: Path) -> list[Object]:
    if document is None:
        return []
    if not isinstance(document, dict) or not {"apiVersion", "kind"} <= document.keys():
        raise LocalError(f"{file} holds something that is no Kubernetes object")
    if document["kind"] == "List":
        return [one for item in document.get("items") or [] for one in _objects(item, file)]
    if not isinstance(document.get("metadata"), dict) or "name" not in document["metadata"]:
        raise LocalError(f"{file} holds a {document['kind']} without a name")
    return [document]


def in_order(objects: Iterable[Object]) -> list[Object]:
    """Return the objects so that nothing comes before what it depends on; otherwise their order is kept."""
    return sorted(objects, key=lambda one: ORDER.index(one["kind"]) if one["kind"] in ORDER else len(ORDER))


def apply_objects(client: KubeClient, objects: Iterable[Object], timeout_s: float = 30.0) -> list[Object]:
    """Apply objects by server-side apply and return them as stored.

    Raises:
        LocalError: one is refused (named in the message), or a definition was not established in time.
    """
    stored: list[Object] = []
    awaited: list[str] = []
    for obj in in_order(objects):
        if awaited and obj["kind"] != "CustomResourceDefinition":
            await_established(client, awaited, timeout_s)
            awaited = []
        stored.append(_apply(client, obj, timeout_s))
        if obj["kind"] == "CustomResourceDefinition":
            awaited.append(obj["metadata"]["name"])
    await_established(client, awaited, timeout_s)
    return stored


def _apply(client: KubeClient, obj: Object, timeout_s: float) -> Object:
    """Apply one object; a kind that is not served yet may be so in a moment."""

    def attempt() -> Object | None:
        try:
            return client.apply(obj)
        except ApiError as error:
            # A missing namespace is a 404 as well, but is said to be one: waiting would not help there.
            if error.status == 404 and "namespaces" not in error.message:
                return None
            raise LocalError(f"{obj['kind']} {obj['metadata']['name']}: {error.message}") from error

    return wait_for(f"{obj['apiVersion']} {obj['kind']} to be served", attempt, timeout_s=timeout_s)


def await_established(client: KubeClient, names: Sequence[str], timeout_s: float = 30.0) -> None:
    """Wait until definitions are Established: from then on their objects are accepted.

    Raises:
        LocalError: they were not within ``timeout_s`` seconds.
    """
    for name in names:
        client.wait(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            name,
            lambda found: any(
                one["type"] == "Established" and one["status"] == "True"
                for one in (found.get("status") or {}).get("conditions") or []
            ),
            timeout_s=timeout_s,
        )


def apply_files(kubeconfig: Path, paths: Iterable[Path], timeout_s: float = 30.0) -> list[Object]:
    """Apply YAML files and folders as the user of ``kubeconfig``; see :func:`apply_objects`."""
    return apply_objects(KubeClient(kubeconfig), read_objects(paths), timeout_s)
