"""Free ports, such that clusters started at the same moment do not get the same ones."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterable

from firsttoken_local.builds import cache_folder, locked, make_cache
from firsttoken_local.errors import LocalError

# Below the range from which the kernel takes the local ports of outgoing connections (32768 and up on Linux):
# a port of that range may be taken between its choice and its use.
FIRST, LAST = 20000, 32000
RESERVED_S = 300.0


def is_free(port: int) -> bool:
    """Tell whether a process could listen on 127.0.0.1 at this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_ports(names: Iterable[str]) -> dict[str, int]:
    """Choose a free port for each name; nobody else is given the same one within five minutes.

    Raises:
        LocalError: no port is free.
    """
    path = cache_folder() / "ports.json"
    make_cache(path.parent)
    with locked(path.with_suffix(".lock")):
        now = time.time()
        try:
            given = json.loads(path.read_text())
        except (OSError, ValueError):
            given = {}
        given = {port: when for port, when in given.items() if 0 <= now - when < RESERVED_S}
        candidates = iter(random.sample(range(FIRST, LAST), LAST - FIRST))
        chosen = {}
        for name in names:
            port = next((one for one in candidates if str(one) not in given and is_free(one)), None)
            if port is None:
                raise LocalError(f"no port between {FIRST} and {LAST} is free")
            chosen[name] = port
            given[str(port)] = now
        path.write_text(json.dumps(given))
    return chosen
