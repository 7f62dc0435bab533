"""A real API server with Firsttoken's definitions, asked over HTTP as kubectl does."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from kubernetes import client, config

from firsttoken.api.base import GROUP, VERSION
from firsttoken.api.crd import KINDS

NAMESPACE = "default"
WAITING = "Invalid value: null: some validation rules were not checked"
CRDS = Path(__file__).parents[2] / "crds"


class Cluster(Protocol):
    """What the fixture `cluster` gives."""

    kubeconfig: Path


@dataclass(frozen=True)
class Answer:
    """Status code and body of a reply."""

    code: int
    body: dict[str, Any]

    @property
    def causes(self) -> set[tuple[str, str]]:
        """(field, message) of each cause.

        Left out is what only repeats or comments another cause: the hint that rules wait for the structure, checks of
        /scale (their field begins with a dot), and the second word on a fraction where a whole number belongs.
        """
        causes = self.body.get("details", {}).get("causes", [])
        found = {(c.get("field", "").replace("<nil>", ""), c["message"]) for c in causes}
        repeated = (WAITING, 'Invalid value: "": Checked value must be of type integer')
        return {(f, m) for f, m in found if not m.startswith(repeated) and not f.startswith(".")}

    @property
    def judged(self) -> bool:
        """Whether the CEL rules were evaluated: not while a type is wrong or something required is missing."""
        causes = self.body.get("details", {}).get("causes", [])
        return not any(c["message"].startswith(WAITING) for c in causes)


class Server:
    """The API server, by kind and name."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = client.ApiClient(config.new_client_from_config(config_file=str(kubeconfig)).configuration)

    def request(
        self, method: str, path: str, body: Any = None, accept: str = "application/json", **query: str
    ) -> Answer:
        """One request; `body` is an object, sent as JSON, or YAML text."""
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        if isinstance(body, str):
            kind, body = "application/yaml", body.encode()
        parameters = self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": accept, "Content-Type": kind},
            body=body,
            auth_settings=["BearerToken"],
        )
        reply = self._client.call_api(*parameters)
        return Answer(reply.status, json.loads(reply.read() or b"{}"))

    def create(self, value: Mapping[str, Any], **query: str) -> Answer:
        """What `kubectl create` and `kubectl apply` of a new object send."""
        return self.request("POST", path_of(str(value["kind"])), value, fieldValidation="Strict", **query)

    def apply(self, value: Mapping[str, Any], **query: str) -> Answer:
        """What `kubectl apply --server-side` sends."""
        path = f"{path_of(str(value['kind']))}/{value['metadata']['name']}"
        return self.request("PATCH", path, value, fieldValidation="Strict", fieldManager="e2e-validation", **query)

    def install(self) -> None:
        """Apply crds/*.yaml and wait until they are served."""
        base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        names = []
        for file in sorted(CRDS.glob("*.yaml")):
            value = yaml.safe_load(file.read_text(encoding="utf-8"))
            names.append(value["metadata"]["name"])
            answer = self.request("PATCH", f"{base}/{names[-1]}", value, fieldManager="e2e-validation", force="true")
            assert answer.code in (200, 201), answer.body.get("message")
        deadline = time.monotonic() + 30
        while not all(self._established(f"{base}/{name}") for name in names):
            assert time.monotonic() < deadline, "the definitions were not established within 30 s"
            time.sleep(0.2)

    def _established(self, path: str) -> bool:
        conditions = self.request("GET", path).body.get("status", {}).get("conditions", [])
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def path_of(kind: str) -> str:
    """URL path of a kind's collection."""
    (found,) = (k for k in KINDS if k.name == kind)
    scope = f"/namespaces/{NAMESPACE}" if found.namespaced else ""
    return f"/apis/{GROUP}/{VERSION}{scope}/{found.plural}"


@pytest.fixture(scope="session")
def server(cluster: Cluster) -> Server:
    """The API server with our definitions."""
    server = Server(cluster.kubeconfig)
    server.install()
    return server
