"""Validating manifests with kubeconform against what this very API server serves, definitions included."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from firsttoken_local.commands import finished
from firsttoken_local.errors import LocalError
from firsttoken_local.kube import KubeClient, Object
from firsttoken_local.schema_conversion import Schema, standalone


@dataclass(frozen=True)
class Problem:
    """One object that is not valid; ``file`` is "stdin" for text."""

    file: str
    kind: str
    name: str
    message: str


@dataclass(frozen=True)
class Conformance:
    """kubeconform's verdict: how many objects are valid, and what is wrong with the others."""

    valid: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether something was looked at and nothing was wrong."""
        return self.valid > 0 and not self.problems


def write_schemas(client: KubeClient, folder: Path) -> int:
    """Write one JSON schema per kind that the API server serves now; return how many.

    Call it again after definitions were added: their schemas exist only then.
    """
    index = client.request("GET", "/openapi/v3")["paths"]
    urls = [entry["serverRelativeURL"] for path, entry in index.items() if path.startswith(("api/", "apis/"))]
    with ThreadPoolExecutor(4) as pool:
        documents: list[Object] = list(pool.map(lambda url: client.request("GET", url), urls))
    schemas: dict[str, Schema] = {}
    for document in documents:
        for name, schema in standalone(document):
            # DeleteOptions and the like are declared once per group; any of them will do.
            schemas.setdefault(name, schema)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.glob("*.json")} - schemas.keys():
        (folder / stale).unlink()
    for name, schema in schemas.items():
        (folder / name).write_text(json.dumps(schema))
    return len(schemas)


def kubeconform(binary: Path, schemas: Path, manifests: Iterable[Path] | str) -> Conformance:
    """Validate files, folders or YAML text, strictly and without the network.

    Raises:
        LocalError: kubeconform did not run properly.
    """
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [str(binary), "-strict", "-summary", "-output", "json", "-schema-location", location]
    text = manifests if isinstance(manifests, str) else None
    if not isinstance(manifests, str):
        command += [str(path) for path in manifests]
    done = finished(command, stdin=text, timeout_s=300.0)
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise LocalError("kubeconform failed", (done.stdout + done.stderr).strip()) from error
    return parse_result(answer)


def parse_result(answer: Object) -> Conformance:
    """Read kubeconform's JSON; what it skipped (no kind is skipped here) counts as a problem."""
    problems = [Problem(one["filename"], one["kind"], one["name"], one["msg"]) for one in answer["resources"]]
    skipped = answer["summary"]["skipped"]
    if skipped:
        problems.append(Problem("", "", "", f"kubeconform skipped {skipped} objects"))
    return Conformance(answer["summary"]["valid"], tuple(problems))
