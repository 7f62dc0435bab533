"""The compiled fleet: one loop over arrivals, many engines. `fleet_exact.ExactFleet` does the same in plain Python."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import check, check_sizes, log_of, totals_of
from firsttoken.simulation.fleet_loop import serve
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision, split
from firsttoken.simulation.fleet_state import POOL, FleetState, fleet_rows
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.policies import CODES, CacheAware, Policy, PowerOfTwo
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.state import BIN_SECONDS, BINS, NOBODY, replicas_state

DRAWS = 4  # two random numbers at each of two routers


class Fleet:
    """Replicas are numbered revision by revision, a revision's prefill replicas before its decode replicas.

    `keys`: what the split between revisions hashes, one whole number a request, as a user's id; by default the
    request's number. `seed`: of the split and of random choices. `bins`, `bin_seconds` and `log` as in FastEngine, for
    each replica.
    """

    def __init__(
        self,
        requests: Requests,
        revisions: Sequence[Revision],
        *,
        seed: int = 0,
        keys: NDArray[np.int64] | None = None,
        bins: int = BINS,
        bin_seconds: float = BIN_SECONDS,
        log: int = 0,
    ) -> None:
        """Raises SimulationInputError: as FastEngine for one of the replicas; no revision, or none with weight."""
        self.requests, self.revisions = requests, tuple(revisions)
        check_fleet(requests, self.revisions)
        self.revision = revision_of(requests, self.revisions, seed, keys)
        self.pools = pools_of(self.revisions)
        self.replicas = tuple(replica for pool, *_ in self.pools for replica in pool.replicas)
        for one in self.replicas:
            check_sizes(one.settings, one.table, bins, bin_seconds)
        self.state = self._state(seed, {"bins": bins, "bin_seconds": bin_seconds, "log": log})

    def run(self) -> FleetOutcome:
        """All requests at their own arrivals, to the end."""
        firsts = np.array([number for number, (_, role, _) in enumerate(self.pools) if role != "decode"])
        serve(self.state, self.requests.arrival, firsts[self.revision])
        return self.outcome()

    def outcome(self) -> FleetOutcome:
        """As it is now."""
        rows, count, own = self.state.engine.rows, len(self.requests), self.state.replica
        halves = rows[count:] if len(rows) > count else rows
        apart = np.array([r.decode is not None for r in self.revisions])[self.revision]
        last = np.where(apart, halves, rows[:count])
        stages = [one.settings.stages for one in self.replicas]
        decoder = np.where(apart, own[-count:], own[:count]) if count else own
        lag = np.array([s.delivery_seconds for s in stages])[decoder]
        rows = rows[:count]
        return FleetOutcome(
            requests=self.requests,
            revision=self.revision,
            replica=own[:count].copy(),
            decoder=decoder,
            **{name: rows[name].copy() for name in ("arrival", "ready", "queued", "cached")},
            prefilled=rows["first"].copy(),
            first=last["first"].copy(),
            finish=last["finish"].copy(),
            preempted=rows["preempted"] + np.where(apart, last["preempted"], 0),
            gateway=np.array([s.gateway_seconds for s in stages])[own[:count]],
            delivery=lag,
            replicas=tuple(self._replica(r) for r in range(len(self.replicas))),
            roles=tuple(role for pool, role, _ in self.pools for _ in pool.replicas),
            revisions=tuple(number for pool, _, number in self.pools for _ in pool.replicas),
        )

    def _replica(self, r: int) -> Outcome:
        engine, count, one = self.state.engine, len(self.requests), self.replicas[r]
        mine = np.flatnonzero(self.state.replica == r)
        rows, rep = engine.rows[mine], engine.replicas[r]
        requests = self.requests.take(mine % max(1, count))
        return Outcome(
            requests=replace(requests, arrival=rows["arrival"], output_tokens=rows["output"]),
            stages=one.settings.stages,
            **{n: rows[n].copy() for n in ("arrival", "ready", "queued", "first", "finish", "preempted", "cached")},
            timeline=engine.timeline[r].copy(),
            bin_seconds=float(rep["bin_seconds"]),
            steps=log_of(engine, r),
            totals=totals_of(rep, one.table.peak_token),
        )

    def _state(self, seed: int, sizes: dict[str, Any]) -> FleetState:
        requests, count = self.requests, len(self.requests)
        hashes, kinds = requests.dense_hashes()
        apart = np.array([r.decode is not None for r in self.revisions])
        rows, ranks = fleet_rows(requests, bool(apart.any()))
        rows["output"][:count][apart[self.revision]] = 1
        engine = replicas_state(rows, hashes, len(kinds), self.replicas, hash_tokens=requests.hash_tokens, **sizes)
        for r, (role, link) in enumerate((role, link) for pool, role, link in self._links() for _ in pool.replicas):
            engine.replicas[r]["holds"] = role == "prefill"
            engine.replicas[r]["link_set_up"], engine.replicas[r]["link_token"] = (
                link.set_up_seconds,
                link.token_seconds,
            )
        replicas = len(self.replicas)
        return FleetState(
            engine=engine,
            pools=_pool_records(self.pools),
            senders=np.full((len(self.pools), max(1, len(kinds))), NOBODY, np.int32),
            draws=draws_of(self.pools, count, seed),
            ranks=ranks,
            replica=np.full(len(rows), NOBODY, np.int32),
            reached=np.zeros(replicas),
            held_heads=np.full(replicas, NOBODY, np.int32),
            held_tails=np.full(replicas, NOBODY, np.int32),
        )

    def _links(self) -> list[tuple[Pool, str, Any]]:
        return [(pool, role, self.revisions[number].link) for pool, role, number in self.pools]


def pools_of(revisions: Sequence[Revision]) -> tuple[tuple[Pool, str, int], ...]:
    """Pools in the order of their replicas: with role (serve, prefill, decode) and number of the revision."""
    found: list[tuple[Pool, str, int]] = []
    for number, one in enumerate(revisions):
        found.append((one.pool, "prefill" if one.decode else "serve", number))
        if one.decode:
            found.append((one.decode, "decode", number))
    return tuple(found)


def revision_of(
    requests: Requests, revisions: Sequence[Revision], seed: int, keys: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Number of the revision that serves each request. Raises SimulationInputError."""
    if seed < 0:
        raise SimulationInputError(f"seed is {seed}: give a whole number from 0 on")
    own = np.arange(len(requests)) if keys is None else np.asarray(keys, np.int64)
    if len(own) != len(requests):
        raise SimulationInputError(f"keys has {len(own)} values: give one for each of {len(requests)} requests")
    return split(own, [one.weight for one in revisions], seed)


def draws_of(pools: Sequence[tuple[Pool, str, int]], count: int, seed: int) -> NDArray[np.int64]:
    """Random numbers for each request, two at each router; none where nobody draws."""
    used = any(isinstance(pool.policy, PowerOfTwo) for pool, *_ in pools)
    source = np.random.Generator(np.random.PCG64(seed))
    return source.integers(0, 2**31, (count if used else 0, DRAWS))


def check_fleet(requests: Requests, revisions: Sequence[Revision]) -> None:
    """Raises SimulationInputError: there is no revision, or a replica could never serve one of the requests."""
    if not revisions:
        raise SimulationInputError("revisions is empty: give a fleet one revision at least")
    prompts = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
    for pool, role, _ in pools_of(revisions):
        if role != "serve" and any(one.settings.static_batching for one in pool.replicas):
            raise SimulationInputError("static_batching is of engines that do all: let revisions have no decode pool")
        for settings in {id(one.settings): one.settings for one in pool.replicas}.values():
            check(prompts if role == "prefill" else requests, settings)


def _pool_records(pools: Sequence[tuple[Pool, str, int]]) -> NDArray[Any]:
    found, first = pool_records([(pool.policy, len(pool.replicas)) for pool, *_ in pools]), 0
    for number, (pool, role, _) in enumerate(pools):
        found[number]["first"], found[number]["decode"] = first, number + 1 if role == "prefill" else NOBODY
        first += len(pool.replicas)
    return found


def pool_records(pools: Sequence[tuple[Policy, int]]) -> NDArray[Any]:
    """POOL of each: its policy, and how many replicas it has."""
    found = np.zeros(len(pools), POOL)
    for one, (policy, count) in zip(found, pools, strict=True):
        one["count"], one["policy"], one["decode"], one["head"] = count, CODES[type(policy)], NOBODY, NOBODY
        if isinstance(policy, CacheAware):
            for name in ("held", "most_ahead", "least_match", "most_times"):
                one[name] = getattr(policy, name)
    return found


__all__ = ["Fleet", "FleetOutcome", "Pool", "Replica", "Revision"]
