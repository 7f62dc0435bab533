"""`--calibration`: what InferenceRevisions in files (`kubectl get infrev -o yaml`) know of the live fleet."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firsttoken.api.base import API_VERSION
from firsttoken.api.documents import read as read_documents
from firsttoken.planning.calibration import Calibration, calibration_from
from firsttoken_operator.cli import files
from firsttoken_operator.cli.errors import BadInput
from firsttoken_operator.cli.files import Unreadable

_REMEDY = "write what `kubectl get infrev -o yaml` prints into it"


def calibration_of(paths: Sequence[str], *, recursive: bool) -> Calibration:
    """Of all these files. Raises BadInput: one can't be read, or none holds a revision that was measured."""
    if not paths:
        return Calibration()
    records = [record for path in files.read(paths, recursive=recursive) for record in _records(path)]
    found = calibration_from(records)
    if not records:
        raise BadInput(f"no InferenceRevision in {', '.join(paths)}: {_REMEDY}")
    if not found.ratios:
        raise BadInput(
            f"no InferenceRevision in {', '.join(paths)} has a usable status.calibration: see when it was measured"
        )
    return found


def _records(source: files.Source | Unreadable) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, Unreadable):
        raise BadInput(f"{source.name}: {source.why}")
    for document in read_documents(source.text):
        if document.causes:
            raise BadInput(f"{source.name}:{document.causes[0].line}: {document.causes[0].message}")
        value = document.value
        items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else [value]
        for item in items if isinstance(items, list) else ():
            if _is_revision(item):
                yield item


def _is_revision(item: Any) -> bool:
    if not isinstance(item, dict) or (item.get("apiVersion"), item.get("kind")) != (API_VERSION, "InferenceRevision"):
        return False
    meta, status = item.get("metadata"), item.get("status")
    named = isinstance(meta, dict) and isinstance(meta.get("name"), str)
    return named and (status is None or isinstance(status, dict))
