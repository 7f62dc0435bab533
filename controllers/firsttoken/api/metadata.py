"""What the API server says about an object's metadata, as far as people get it wrong."""

import re
from collections.abc import Iterator
from typing import Any

from firsttoken.api.cause import Cause
from firsttoken.api.go_text import quoted

_FIELDS = frozenset(
    (
        "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
        "generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences",
        "resourceVersion", "selfLink", "uid",
    )
)  # fmt: skip
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)


def check_metadata(metadata: Any) -> Iterator[Cause]:
    """Name, field names, and the types of labels and annotations."""
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        yield Cause(("metadata",), "Invalid value: metadata must be a map with a name", "metadata")
        return
    for key in metadata:
        if key not in _FIELDS:
            yield Cause(("metadata", key), f"unknown field {quoted(f'metadata.{key}')}", f"metadata.{key}")
    yield from _name(metadata)
    for field in ("namespace", "generateName"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            path = f"metadata.{field}"
            yield Cause(("metadata", field), f"Invalid value: {path} is text: put it in quotes", path)
    for field in ("labels", "annotations"):
        yield from _texts(metadata.get(field), field)


def _name(metadata: dict[str, Any]) -> Iterator[Cause]:
    at, path = ("metadata", "name"), "metadata.name"
    name = metadata.get("name")
    if name is None or name == "":
        if not metadata.get("generateName"):
            yield Cause(at, "Required value: name or generateName is required", path)
        return
    if not isinstance(name, str):
        yield Cause(at, "Invalid value: a name is text: put it in quotes", path)
        return
    if len(name) > 253:
        yield Cause(at, f"Invalid value: {quoted(name)}: must be no more than 253 bytes", path)
    if not re.fullmatch(_SUBDOMAIN, name):
        yield Cause(at, f"Invalid value: {quoted(name)}: {_SUBDOMAIN_MESSAGE}", path)


def _texts(values: Any, field: str) -> Iterator[Cause]:
    at, path = ("metadata", field), f"metadata.{field}"
    if values is None:
        return
    if not isinstance(values, dict):
        yield Cause(at, f"Invalid value: {field} must be a map of texts", path)
        return
    for key, value in values.items():
        if value is not None and not isinstance(value, str):
            yield Cause((*at, key), f"Invalid value: {field} hold text: put the value in quotes", f"{path}.{key}")
