"""`make bench-load`, second part: replicas behind a router, predicted (planning/load/routers.py) against simulated.

Predicted / simulated of TTFT P50 and P95 and TPOT P95 at parts of capacity, for 2, 4 and 8 replicas under each policy;
then goodput, the largest rate at which the profile's promises are kept, as planned against as found by bisection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from firsttoken.api.service_inputs import Profile
from firsttoken.planning.load.goodput import TTFT, Target, largest_rate, targets
from firsttoken.planning.load.routers import LEAST_LOADED, POWER_OF_TWO, ROUND_ROBIN, Router
from firsttoken.planning.routing import choose_routing, followers
from firsttoken.planning.types import Routing
from firsttoken.planning.workload import default_slos
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_shape import colocated
from firsttoken.simulation.policies import CacheAware, Policy, PowerOfTwo, RoundRobin
from load_model import CASES, Both, Times

SERVICES = {
    "8B, A100-40, chat, budget 2048": Profile.CHAT,
    "8B, A100-40, answers, budget 2048": Profile.KNOWLEDGE_QA,
    "70B, 4 x H100, chat, budget 8192": Profile.CHAT,
    "8B, H100, code, budget 2048": Profile.CODE_COMPLETION,
}
REPLICAS, LOADS = (2, 4, 8), (0.3, 0.5, 0.7)
EACH, LEAST = 2500, 6000  # requests of a run: so many a replica, and in all
HALVINGS, REACH = 6, 1.6  # of the search for goodput, around what is predicted


@dataclass(frozen=True)
class Chosen:
    """A policy, in the closed form and in the simulator."""

    name: str
    policy: Policy
    router: str
    followers: float = 0.0

    def before(self, replicas: int) -> Router:
        """So many replicas."""
        return Router(self.router, replicas, self.followers)


def policies(both: Both) -> Iterator[Chosen]:
    """As planned first, then what could be had instead."""
    shape, default = both.load.curves.shape, Routing()
    planned = choose_routing(shape)
    threshold = planned.cache_threshold
    name = f"cache_aware from {threshold:g} (planned)"
    yield Chosen(name, CacheAware(threshold), LEAST_LOADED, followers(shape, planned))
    if planned != default:
        yield Chosen("cache_aware from 0.3", CacheAware(), LEAST_LOADED, followers(shape, default))
    yield Chosen("power_of_two", PowerOfTwo(), POWER_OF_TWO)
    yield Chosen("round_robin", RoundRobin(), ROUND_ROBIN)


def simulated(both: Both, policy: Policy, replicas: int, rate: float, seed: int = 0) -> Fleet:
    """A fleet that has served, at `rate` requests a second of each replica."""
    requests = both.work(rate * replicas).requests(seed, count=max(LEAST, EACH * replicas))
    return Fleet(requests, [colocated(replicas, both.settings, both.table, policy)], seed=seed)


def times(fleet: Fleet) -> Times:
    """TTFT P50 and P95, TPOT P95; the first sixth is left out, while the fleet fills."""
    found = fleet.run()
    first = len(found.ttft) // 6
    ttft, tpot = found.ttft[first:], found.tpot[first:]
    return float(np.quantile(ttft, 0.5)), float(np.quantile(ttft, 0.95)), float(np.nanquantile(tpot, 0.95))


def goodput(both: Both, chosen: Chosen, replicas: int, promises: tuple[Target, ...]) -> tuple[float, float]:
    """Requests a second of a replica, predicted and simulated."""
    predicted = largest_rate(both.load.behind(chosen.before(replicas)), promises).rate
    low, high = predicted / REACH, predicted * REACH
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        _, ttft, tpot = times(simulated(both, chosen.policy, replicas, middle))
        kept = all((ttft if p.metric == TTFT else tpot) <= p.seconds for p in promises)
        low, high = (middle, high) if kept else (low, middle)
    return predicted, (low * high) ** 0.5


def main() -> None:
    """Print both tables, then the figures."""
    figures: dict[str, object] = {}
    heads = [f"{n} replicas, {load * 100:.0f} %" for n in REPLICAS for load in LOADS]
    print("| Case | Policy | " + " | ".join(heads) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in heads) + " |")
    cases = {name: Both(CASES[name]) for name in SERVICES}
    for name, both in cases.items():
        for chosen in policies(both):
            cells = []
            for n in REPLICAS:
                for load in LOADS:
                    rate = load * both.capacity
                    state = both.load.behind(chosen.before(n)).state(rate)
                    predicted = (state.ttft.p50, state.ttft.p95, state.tpot.p95)
                    found = times(simulated(both, chosen.policy, n, rate))
                    figures[f"{name}, {chosen.name}, {n}, {load}"] = {"predicted": predicted, "simulated": found}
                    cells.append(" / ".join(f"{p / s:.2f}" for p, s in zip(predicted, found, strict=True)))
            print(f"| {name} | {chosen.name} | " + " | ".join(cells) + " |", flush=True)
    print("\n| Case | Replicas | Goodput of one, predicted | simulated | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for name, both in cases.items():
        chosen = next(policies(both))
        for n in (1, *REPLICAS):
            one, other = goodput(both, chosen, n, targets(default_slos(SERVICES[name])))
            figures[f"{name}, goodput of {n}"] = {"predicted": one, "simulated": other}
            print(f"| {name} | {n} | {one:.3g} | {other:.3g} | {one / other:.2f} |", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
