"""Validation without a cluster: the schema, defaults and CEL rules of crds/*.yaml, with the API server's messages.

Text in, faults out; nothing is read or written here. What only a cluster knows (quotas, admission, whether an
AcceleratorProfile exists) is not judged.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from firsttoken.api import cel_rules, structure
from firsttoken.api.base import API_VERSION, GROUP
from firsttoken.api.cause import Cause
from firsttoken.api.crd import KINDS, object_schema
from firsttoken.api.documents import Document, read
from firsttoken.api.metadata import check_metadata
from firsttoken.api.schema import Schema, with_defaults

# A YAML file of Firsttoken objects has some kilobytes; etcd refuses an object above 1.5 MiB.
MAX_TEXT_CHARACTERS = 512 * 1024


@dataclass(frozen=True)
class Fault:
    """One thing wrong in a file; or a note, when it is no fault. `line` counts from 1, `document_index` from 0.

    `path` is in Kubernetes' notation (`spec.slos[0].target`), empty for the document as a whole; `message` is the one
    the API server gives for the same object.
    """

    document_index: int
    kind: str
    name: str
    path: str
    message: str
    line: int
    nothing_of_ours: bool = False
    """The text is about something else: it holds no object of ours, which is a fault only if it should."""


@dataclass(frozen=True)
class Validation:
    """Result of looking at a text: `checked` objects of ours, what is wrong with them, what was left aside."""

    faults: tuple[Fault, ...]
    notes: tuple[Fault, ...] = ()
    checked: int = 0


def validate(text: str) -> Validation:
    """Look at every YAML document of `text`. Never raises: whatever is wrong is a fault."""
    if len(text) > MAX_TEXT_CHARACTERS:
        message = f"too large: {len(text)} characters, at most {MAX_TEXT_CHARACTERS} are read: split the file"
        return Validation((Fault(0, "", "", "", message, 1),))
    faults: list[Fault] = []
    notes: list[Fault] = []
    checked = 0
    for document in read(text):
        verdict = _identify(document)
        if isinstance(verdict, str):
            checked += 1
            faults += _faults(document, _causes(document, schemas()[verdict]))
        elif document.causes:  # broken YAML: that it is no object of ours may only follow from that
            faults += _faults(document, document.causes)
        else:
            (notes if verdict.is_note else faults).append(_fault(document, verdict.cause))
    if not (faults or checked):
        faults.append(Fault(0, "", "", "", f"holds no object of {GROUP}: expected {_kind_names()}", 1, True))
    faults.sort(key=lambda f: (f.document_index, f.line, f.path))
    return Validation(tuple(faults), tuple(notes), checked)


def check_object(value: dict[str, Any]) -> tuple[Cause, ...]:
    """What is wrong with one object of ours (plain dicts and lists, not defaulted). Raises KeyError on another kind."""
    return tuple(_object_causes(value, schemas()[str(value.get("kind"))]))


@lru_cache
def schemas() -> dict[str, Schema]:
    """Kind → schema of the object, as in crds/*.yaml."""
    return {kind.name: object_schema(kind) for kind in KINDS}


@dataclass(frozen=True)
class _Refusal:
    cause: Cause
    is_note: bool = False


def _kind_names() -> str:
    return ", ".join(schemas())


def _identify(document: Document) -> str | _Refusal:
    """The kind of a document of ours, or why it isn't one."""
    value = document.value
    if not isinstance(value, dict):
        return _Refusal(Cause((), "not an object: a document is a map with apiVersion, kind, metadata and spec"))
    version, kind = value.get("apiVersion"), value.get("kind")
    for field, found in (("apiVersion", version), ("kind", kind)):
        if not isinstance(found, str) or not found:
            remedy = API_VERSION if field == "apiVersion" else f"one of {_kind_names()}"
            return _Refusal(Cause((field,), f"Required value: {field} is missing, expected {remedy}", field))
    if version == API_VERSION and kind in schemas():
        return str(kind)
    return _foreign(str(version), str(kind))


def _foreign(version: str, kind: str) -> _Refusal:
    if kind == "List":
        return _Refusal(
            Cause(("kind",), "a List is not looked into: write its items as documents parted by ---", "kind")
        )
    ours = version.partition("/")[0].lower() == GROUP
    close_kind = difflib.get_close_matches(kind, schemas(), 1, 0.8)
    close_group = difflib.get_close_matches(version.partition("/")[0].lower(), [GROUP], 1, 0.8)
    if not ours and not (close_group and close_kind):
        return _Refusal(Cause((), f"{version} {kind} is not Firsttoken's and was not checked"), is_note=True)
    wanted = close_kind[0] if close_kind else f"one of {_kind_names()}"
    message = (
        f'no matches for kind "{kind}" in version "{version}": did you mean apiVersion {API_VERSION} and kind {wanted}?'
    )
    return _Refusal(Cause(("kind",) if version == API_VERSION else ("apiVersion",), message, "kind"))


def _causes(document: Document, schema: Schema) -> Iterator[Cause]:
    """YAML faults, and what is wrong elsewhere: a value that couldn't be read is not missing too."""
    yield from document.causes
    unread = [cause.at for cause in document.causes if cause.blocks]
    for cause in _object_causes(document.value, schema):
        if not any(cause.at[: len(at)] == at for at in unread):
            yield cause


def _object_causes(value: dict[str, Any], schema: Schema) -> Iterator[Cause]:
    """As the API server goes about it: unknown fields, nulls and defaults, structure, then rules."""
    yield from check_metadata(value.get("metadata"))
    bare = {k: v for k, v in value.items() if k != "metadata"}
    unknown = list(structure.unknown_fields(bare, schema))
    yield from unknown
    # A status in a manifest is dropped on the way in.
    known = structure.without_unknown({k: v for k, v in bare.items() if k != "status"}, schema)
    filled = with_defaults(known, schema)
    found = list(structure.check(filled, schema))
    yield from found
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    broken = {cause.at for cause in (*unknown, *found) if cause.blocks}
    if isinstance(name, str):
        filled = {**filled, "metadata": {"name": name}}
    else:
        broken.add(("metadata", "name"))
    for cause in cel_rules.check(filled, schema, frozenset(broken)):
        yield replace(cause, path=cel_rules.path_of(cause.at, schema))


def _faults(document: Document, causes: Iterable[Cause]) -> list[Fault]:
    return list(dict.fromkeys(_fault(document, cause) for cause in causes))


def _fault(document: Document, cause: Cause) -> Fault:
    value = document.value if isinstance(document.value, dict) else {}
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    kind = value.get("kind")
    return Fault(
        document.index,
        kind if isinstance(kind, str) else "",
        name if isinstance(name, str) else "",
        cause.path,
        cause.message,
        cause.line or document.line_of(cause.at),
    )
