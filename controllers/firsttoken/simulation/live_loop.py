"""A stretch of time of a fleet that stays as it is meanwhile, compiled: see live_fleet.py."""

from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.fast import run_until
from firsttoken.simulation.fleet_router import advance, choose, deliver
from firsttoken.simulation.fleet_state import FleetState
from firsttoken.simulation.state import NOBODY


@compiled
def serve_until(fleet: FleetState, arrivals: Any, first: int, pool_of: Any, until: float) -> None:
    """Requests from number `first` on, one for each of `pool_of`, through the routers of their pools; then all replicas
    up to `until` (seconds). NOBODY for a request that reaches none. Pools that are named have replicas.
    """
    for k in range(len(pool_of)):
        p = pool_of[k]
        if p == NOBODY:
            continue
        i = first + k
        advance(fleet, p, arrivals[i])
        deliver(fleet, choose(fleet, p, i, 0), i, i, arrivals[i])
    for r in range(len(fleet.engine.replicas)):
        run_until(fleet.engine, r, until)
