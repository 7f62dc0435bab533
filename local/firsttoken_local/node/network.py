"""Addresses of the real node: chosen so that they collide with nothing that this machine reaches today."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken_local.errors import LocalError

LINK = "ftnode0"  # the machine's end of the pair of interfaces; the node's end is called eth0 there
RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
# The first of each is what clusters without a real node use.
_SERVICES = tuple(f"10.{second}.0.0/16" for second in range(96, 128))
_PODS = tuple(f"10.{second}.0.0/16" for second in range(244, 200, -1))
_LINKS = tuple(f"10.{second}.0.0/16" for second in range(199, 128, -1))

Network = ipaddress.IPv4Network


@dataclass(frozen=True)
class NodeNetwork:
    """The ranges and addresses of a cluster with a real node.

    ``host`` is the machine as the node sees it, and the API server's advertised address; ``node`` is the node's own.
    """

    services: str
    pods: str
    host: str
    node: str

    @property
    def node_pods(self) -> str:
        """The node's own part of ``pods``: the last /24, which no fake node gets before the 255th."""
        return str(list(Network(self.pods).subnets(new_prefix=24))[-1])

    @property
    def kubernetes_service(self) -> str:
        """The address of the Service "kubernetes"."""
        return str(Network(self.services)[1])


def choose_network(taken: Iterable[Network]) -> NodeNetwork:
    """Choose ranges that overlap none of ``taken``.

    Raises:
        LocalError: every candidate is taken.
    """
    used = list(taken)

    def free(candidates: Iterable[str], what: str) -> Network:
        for text in candidates:
            candidate = Network(text)
            if not any(candidate.overlaps(one) for one in used):
                return candidate
        raise LocalError(f"no range of addresses is free for {what}: this machine has routes to all of 10.0.0.0/8")

    link = free(_LINKS, "the real node")
    return NodeNetwork(str(free(_SERVICES, "Services")), str(free(_PODS, "pods")), host=str(link[1]), node=str(link[2]))


def machine_networks() -> list[Network]:
    """Return what this machine reaches by routes other than the default one, and its name servers.

    Raises:
        LocalError: the command ``ip`` is missing or failed.
    """
    try:
        done = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise LocalError("the command `ip` is missing: install the package iproute2") from error
    if done.returncode:
        raise LocalError("the routes of this machine cannot be read", done.stderr.strip())
    own = (LINK,)  # of a node that runs already
    routes = [one for one in json.loads(done.stdout or "[]") if one.get("dev") not in own]
    texts = [one["dst"] for one in routes if one["dst"] != "default"] + list(name_servers(loopback=False))
    return [Network(text, strict=False) for text in texts]


def name_servers(*, loopback: bool) -> Iterator[str]:
    """Yield the machine's IPv4 name servers; those on loopback addresses are of no use in another namespace."""
    for path in RESOLVERS:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found = [parts[1] for line in lines if (parts := line.split())[:1] == ["nameserver"] and len(parts) > 1]
        usable = [one for one in found if ":" not in one and (loopback or not one.startswith("127."))]
        if usable:
            yield from usable
            return
