"""What -f names, checked: the objects in it, and one finding for everything that is wrong."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from firsttoken.api.base import API_VERSION
from firsttoken.api.crd import KINDS
from firsttoken.api.documents import read as read_documents
from firsttoken.api.schema import with_defaults
from firsttoken.api.validation import Fault, Validation, schemas
from firsttoken.api.validation import validate as validate_text
from firsttoken_operator.cli import files
from firsttoken_operator.cli.console import printable
from firsttoken_operator.cli.files import Source, Unreadable
from firsttoken_operator.cli.hints import with_hint

Object = Mapping[str, Any]

_MODELS = {kind.name: kind.model for kind in KINDS}
_OURS_TO_SAY = ("name", "namespace", "labels", "annotations")  # the rest of metadata only the server sets


@dataclass(frozen=True)
class Finding:
    """Something to say about a place in the input; `line` 0: about the file as a whole."""

    file: str
    line: int
    kind: str
    name: str
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f"{self.kind}/{self.name}" if self.kind else ""
        return printable(": ".join(part for part in (place, subject, self.path, self.message) if part))

    def wire(self) -> dict[str, Any]:
        """For `-o json`."""
        return dict(vars(self))


@dataclass(frozen=True)
class Found:
    """One object of Firsttoken and where it is. `value` has the defaults that the API server would fill in."""

    file: str
    line: int
    value: Object
    good: bool

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.value["kind"])

    @property
    def name(self) -> str:
        """Its name; empty if it has none."""
        meta = self.value.get("metadata")
        return str(meta.get("name") or "") if isinstance(meta, Mapping) else ""

    def finding(self, message: str) -> Finding:
        """A finding about this object as a whole."""
        return Finding(self.file, self.line, self.kind, self.name, "", message)


@dataclass(frozen=True)
class Inputs:
    """Everything that was read."""

    faults: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    objects: tuple[Found, ...]

    def of(self, kind: str) -> list[Found]:
        """The objects of one kind in the order of the input."""
        return [found for found in self.objects if found.kind == kind]


def load(paths: Iterable[str], *, recursive: bool = False) -> Inputs:
    """Read and check everything that `paths` name. Never raises for what is in them."""
    faults: list[Finding] = []
    notes: list[Finding] = []
    objects: list[Found] = []
    paths = list(paths)
    for source in files.read(paths, recursive=recursive):
        if isinstance(source, Unreadable):
            faults.append(Finding(source.name, 0, "", "", "", source.why))
            continue
        result = validate_text(source.text)
        bad = {fault.document_index for fault in result.faults}
        found = list(_objects(source, bad)) if result.checked else []
        faults += _faults(source, result, alone=source.name in paths or source.name == files.STDIN_NAME)
        notes += [_finding(source, note) for note in result.notes]
        for item in found:
            mistyped = list(_mistyped(item))
            faults += mistyped
            objects.append(replace(item, good=item.good and not mistyped))
    if not faults and not objects:
        faults.append(Finding(", ".join(paths), 0, "", "", "", f"no object of {API_VERSION} in it"))
    # A fault is said once, however many checks came upon it.
    return Inputs(tuple(dict.fromkeys(faults)), tuple(notes), tuple(objects))


def _faults(source: Source, result: Validation, *, alone: bool) -> Iterator[Finding]:
    """A file among others in a folder may be about something else; one that was named may not."""
    if not alone and not result.checked and all(_says_nothing_of_ours(fault) for fault in result.faults):
        return
    values = {document.index: document.value for document in read_documents(source.text)} if result.faults else {}
    for fault in result.faults:
        yield replace(_finding(source, fault), message=with_hint(fault, values.get(fault.document_index)))


def _says_nothing_of_ours(fault: Fault) -> bool:
    return not (fault.kind or fault.path) and fault.message.startswith("holds no object of")


def _finding(source: Source, fault: Fault) -> Finding:
    return Finding(source.name, fault.line, fault.kind, fault.name, fault.path, fault.message)


def _objects(source: Source, bad: set[int]) -> Iterator[Found]:
    for document in read_documents(source.text):
        value = document.value
        if isinstance(value, dict) and value.get("apiVersion") == API_VERSION and value.get("kind") in schemas():
            good = document.index not in bad
            yield Found(source.name, document.line, _as_stored(value) if good else value, good)


def _as_stored(value: dict[str, Any]) -> dict[str, Any]:
    """As the API server would keep it: nulls dropped, defaults filled in, nothing that only the server sets."""
    schema = schemas()[value["kind"]]
    bare = {k: v for k, v in value.items() if k not in ("metadata", "status")}
    metadata = {k: v for k, v in value["metadata"].items() if k in _OURS_TO_SAY and v is not None}
    for field in ("labels", "annotations"):
        if field in metadata:
            metadata[field] = {k: "" if v is None else v for k, v in metadata[field].items()}
    return {**with_defaults(bare, schema), "metadata": metadata}


def _mistyped(found: Found) -> Iterator[Finding]:
    """Faults that the schema lets pass and the models don't: the last net before anything is planned."""
    try:
        if found.good and found.name:  # with generateName there is no name yet
            _MODELS[found.kind].model_validate(found.value)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            path = ".".join(map(str, fault["loc"]))
            yield Finding(found.file, found.line, found.kind, found.name, path, fault["msg"])
