"""What a real node changes on the machine itself: a link, routes, a table of nftables, one sysctl.

The node reaches the API server at the link's address, although it listens on 127.0.0.1 only: packets that come in
by the link are redirected. Nothing of it is reachable from other machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firsttoken_local.commands import finished
from firsttoken_local.errors import LocalError
from firsttoken_local.node.network import LINK, NodeNetwork
from firsttoken_local.node.requirements import command

TABLE = "firsttoken-node"
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def run(arguments: Sequence[str], *, stdin: str | None = None, check: bool = True) -> str:
    """Run one of the machine's commands and return its output.

    Raises:
        LocalError: it is missing, or it failed and ``check`` is set.
    """
    argv = [command(arguments[0]), *arguments[1:]]
    done = finished(argv, stdin=stdin, timeout_s=60.0)
    if done.returncode and check:
        raise LocalError(f"{' '.join(arguments)} failed", (done.stderr + done.stdout).strip())
    return done.stdout


def connect(network: NodeNetwork, pid: int) -> None:
    """Link the machine with the network namespace of ``pid``, and route pods and Services there.

    Raises:
        LocalError: a command failed.
    """
    run(["ip", "link", "delete", LINK], check=False)  # of an earlier life
    peer = ["peer", "name", "eth0", "netns", str(pid)]
    run(["ip", "link", "add", LINK, "type", "veth", *peer])
    run(["ip", "address", "add", f"{network.host}/30", "dev", LINK])
    Path(f"/proc/sys/net/ipv4/conf/{LINK}/route_localnet").write_text("1")
    run(["ip", "link", "set", LINK, "up"])
    for range_ in (network.node_pods, network.services):
        run(["ip", "route", "replace", range_, "via", network.node, "dev", LINK])


def connected() -> bool:
    """Tell whether the link is there."""
    return Path(f"/sys/class/net/{LINK}").exists()


def rules(network: NodeNetwork, api_port: int) -> str:
    """Return the table of nftables: the API server for the node, and the way out for the pods."""
    inside = f"{{ {network.node_pods}, {network.node} }}"
    return f"""\
table ip {TABLE} {{
  chain prerouting {{
    type nat hook prerouting priority dstnat;
    iifname "{LINK}" ip daddr {network.host} tcp dport {api_port} dnat to 127.0.0.1:{api_port}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {inside} oifname != {{ "{LINK}", "lo" }} masquerade
  }}
}}
"""


def redirect(network: NodeNetwork, api_port: int) -> None:
    """Load the rules in place of earlier ones, and let packets be forwarded.

    Raises:
        LocalError: nftables refused them.
    """
    replaced = f"table ip {TABLE}\ndelete table ip {TABLE}\n{rules(network, api_port)}"
    run(["nft", "-f", "-"], stdin=replaced)
    FORWARDING.write_text("1")


def disconnect() -> None:
    """Remove the link, its routes and the rules; what is gone already is no fault.

    Raises:
        LocalError: something of it is still there.
    """
    run(["ip", "link", "delete", LINK], check=False)
    run(["nft", "delete", "table", "ip", TABLE], check=False)
    if connected():
        raise LocalError(f"the link {LINK} could not be removed")
    if f"table ip {TABLE}\n" in run(["nft", "list", "tables"]) + "\n":
        raise LocalError(f"the nftables table {TABLE} could not be removed")
