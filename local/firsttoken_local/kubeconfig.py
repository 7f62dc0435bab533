"""kubeconfig files with everything inside, so that a copy works anywhere on the machine."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from firsttoken_local.errors import LocalError
from firsttoken_local.pki import Credential, write_private


def write_kubeconfig(path: Path, server: str, authority: Path, user: str, credential: Credential) -> None:
    """Write a kubeconfig for one user with a client certificate."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    cluster = {"server": server, "certificate-authority-data": inline(authority)}
    secret = {
        "client-certificate-data": inline(credential.certificate),
        "client-key-data": inline(credential.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": user, "user": secret}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
        "current-context": "local",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(document, sort_keys=False).encode())


@dataclass(frozen=True)
class Connection:
    """Where the API server is, and how to authenticate there."""

    host: str
    port: int
    context: ssl.SSLContext


def read_kubeconfig(path: Path) -> Connection:
    """Read a kubeconfig that :func:`write_kubeconfig` wrote.

    Raises:
        LocalError: the file is missing or of another shape.
    """
    try:
        document: dict[str, Any] = yaml.safe_load(path.read_text())
        cluster = document["clusters"][0]["cluster"]
        user = document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        pair = b"".join(base64.b64decode(user[name]) + b"\n" for name in ("client-certificate-data", "client-key-data"))
        host, _, port = str(cluster["server"]).removeprefix("https://").rpartition(":")
    except (OSError, KeyError, IndexError, TypeError, yaml.YAMLError) as error:
        raise LocalError(f"{path} is not a kubeconfig of the local cluster: {error!r}") from error
    context = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile() as file:  # ssl reads client certificates from files only
        file.write(pair)
        file.flush()
        context.load_cert_chain(file.name)
    return Connection(host, int(port), context)
