"""helm, and what it renders."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from firsttoken_local.builds import ensure
from firsttoken_local.progress import Printed
from firsttoken_local.schema_conversion import convert, file_name, standalone

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "charts" / "firsttoken"
VERSIONS = ("1.34", "1.35", "1.36")
# Of the kinds the chart has.
GROUPS = ("api", *(f"apis__{g}" for g in ("apps", "policy", "rbac.authorization.k8s.io", "networking.k8s.io")))
GROUPS += ("apis__apiextensions.k8s.io",)

Object = dict[str, Any]


@functools.cache
def binary(name: str) -> Path:
    """A tool from the cache, built if it is not there."""
    return ensure([name], Printed())[name] / name


def helm(*arguments: str | Path, kubeconfig: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm without any configuration of the person who runs the tests."""
    with tempfile.TemporaryDirectory() as home:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HELM_")}
        environment |= {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        environment["KUBECONFIG"] = str(kubeconfig or Path(home) / "none")
        command = [str(binary("helm")), *map(str, arguments)]
        return subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=300
        )


def template(values: Object | None = None, version: str = "1.36.3") -> str:
    """The chart rendered as release `firsttoken` in namespace `firsttoken-system`."""
    return _template(json.dumps(values or {}), version)


@functools.cache
def _template(values: str, version: str) -> str:
    done = helm(
        *("template", "firsttoken", CHART, "--namespace", "firsttoken-system", "--kube-version", version),
        *("--values", "-"),
        stdin=values,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(values: Object | None = None) -> list[Object]:
    """The rendered objects."""
    return objects(template(values))


def objects(text: str) -> list[Object]:
    """The objects of a YAML text."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


@functools.cache
def example() -> str:
    """What the operator would create for an example that has engines, a router and a gateway."""
    command = [
        sys.executable,
        "-m",
        "firsttoken_operator.cli",
        "render",
        "-f",
        "examples/kb-assistant.yaml",
        "--serving",
    ]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60).stdout


def one(objects: list[Object], kind: str, name: str = "firsttoken-operator") -> Object:
    """An object that must be there once."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def fault(*arguments: str, values: Object | None = None) -> str:
    """What helm says of values it refuses."""
    done = helm("template", "firsttoken", CHART, *arguments, "--values", "-", stdin=json.dumps(values or {}))
    assert done.returncode != 0
    return done.stderr


def write_schemas(version: str, folder: Path) -> Path:
    """JSON schemas of one Kubernetes version and of the Prometheus operator, for kubeconform."""
    documents = ensure([f"openapi-{version}"], Printed())[f"openapi-{version}"] / "v3"
    for group in GROUPS:
        for name, schema in standalone(json.loads((documents / f"{group}__v1_openapi.json").read_text())):
            (folder / name).write_text(json.dumps(schema))
    definitions = ensure(["prometheus-operator"], Printed())["prometheus-operator"] / "crds"
    for path in definitions.glob("*monitors.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        for served in spec["versions"]:
            schema = convert(served["schema"]["openAPIV3Schema"])
            name = file_name(spec["group"], served["name"], spec["names"]["kind"])
            (folder / name).write_text(json.dumps(schema))
    return folder
