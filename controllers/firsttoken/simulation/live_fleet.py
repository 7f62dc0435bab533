"""A fleet that changes while it runs: replicas come, go, drain, die and slow down, and requests move between pools.

Between two changes it is what `fleet.Fleet` is: the same engines, the same routers' choices. Colocated replicas only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import check_sizes
from firsttoken.simulation.fleet import DRAWS, pool_records
from firsttoken.simulation.fleet_shape import Pool, Replica
from firsttoken.simulation.fleet_state import FleetState, fleet_rows
from firsttoken.simulation.live_loop import serve_until
from firsttoken.simulation.policies import LeastLoaded, Policy
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.state import NOBODY, EngineState, replicas_state
from firsttoken.simulation.step_table import StepTable

# What may change while a replica serves (DESIGN §4, live tuning): of its record, and of its settings.
LIVE = ("token_budget", "most_running", "threshold")
_LIVE_SETTINGS = ("token_budget", "decode_cap", "prefill_share", "long_prefill_threshold")
_BINS, _BIN_SECONDS = 2, 3600.0  # nobody reads the time series of these replicas


@dataclass(eq=False)
class Member:
    """One replica of pool number `pool`. Not `routed`: it finishes what it has, and gets nothing new.

    While it serves, its `replica` may be replaced by one with another clock or other live settings.
    """

    pool: int
    replica: Replica
    routed: bool = True
    place: int = NOBODY  # in the arrays
    started: EngineSettings | None = None


class LiveFleet:
    """All `requests` are known at the start; who serves them is said stretch by stretch, in rising time."""

    def __init__(self, requests: Requests, *, seed: int = 0) -> None:
        self.requests = requests
        self.pool = np.full(len(requests), NOBODY, np.int64)  # of each request that was sent
        self.members: list[Member] = []
        self.policies: list[Policy] = []
        self._rows, self._ranks = fleet_rows(requests, False)
        self._hashes, kinds = requests.dense_hashes()
        self._kinds = len(kinds)
        self._draws = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**31, (len(requests), DRAWS))
        self._owner = np.full(len(requests), NOBODY, np.int32)
        self._senders = np.full((0, max(1, self._kinds)), NOBODY, np.int32)
        self._state: FleetState | None = None

    def add_pool(self, policy: Policy = LeastLoaded()) -> int:  # noqa: B008 - frozen
        """A new pool behind a router of its own; its number."""
        self.policies.append(policy)
        return len(self.policies) - 1

    def change(self, members: Sequence[Member], now: float) -> NDArray[np.int64]:
        """From `now` on the fleet has these members: some of those it had, with whatever they do at present, and new
        ones. Returns the requests that fail with those that are gone. Raises SimulationInputError: a replica that
        serves has other settings than live ones, or a step table that is too small for it.
        """
        for one in members:
            _check(one)
        staying = {id(m) for m in members}
        gone = [self.unfinished(m, now) for m in self.members if id(m) not in staying]
        failed = np.sort(np.concatenate([np.zeros(0, np.int64), *gone]))
        order = sorted(members, key=lambda m: (m.pool, not m.routed))
        self._state = self._arranged(order)
        self.members = order
        for one in order:
            one.started = one.started or one.replica.settings
        return failed

    def serve(self, first: int, pools: NDArray[np.int64], until: float) -> None:
        """Requests from number `first` on go to these pools (NOBODY: to none), and all that happens before `until`."""
        count = np.array([sum(m.routed and m.pool == p for m in self.members) for p in range(len(self.policies))])
        pools = np.where((pools >= 0) & (count[pools] > 0), pools, NOBODY) if len(count) else np.full_like(pools, -1)
        self.pool[first : first + len(pools)] = pools
        if self._state is not None and self.members:
            serve_until(self._state, self.requests.arrival, first, pools, until)

    def load(self, member: Member) -> int:
        """Requests that it has and has not finished."""
        assert self._state is not None  # noqa: S101 - a member is in it
        rep = self._state.engine.replicas[member.place]
        return int(rep["pending"] + rep["waiting"] + rep["running"] + rep["finishing"])

    def unfinished(self, member: Member, now: float) -> NDArray[np.int64]:
        """The requests themselves."""
        return np.flatnonzero((self._owner == member.place) & ~(self._rows["finish"] <= now))

    @property
    def rows(self) -> NDArray[Any]:
        """state.ROW of each request: `first` and `finish` are NaN, or in the future, while it is under way."""
        return self._rows

    def _arranged(self, order: Sequence[Member]) -> FleetState:
        """The state with its replicas in this order: what they have goes with them."""
        old = self._state
        hash_tokens = self.requests.hash_tokens
        engine = replicas_state(
            self._rows, self._hashes, self._kinds, [m.replica for m in order], hash_tokens=hash_tokens,
            bins=_BINS, bin_seconds=_BIN_SECONDS, log=0,
        ) if order else None  # fmt: skip
        moved = np.full(len(self.members) + 1, NOBODY, np.int32)  # the last entry is for NOBODY = -1 itself
        for place, member in enumerate(order):
            if member.place != NOBODY and old is not None and engine is not None:
                moved[member.place] = place
                _carry(old.engine, member.place, engine, place)
        for member in self.members:
            member.place = NOBODY
        for place, member in enumerate(order):
            member.place = place
        self._owner = moved[self._owner]
        senders = np.full((len(self.policies), self._senders.shape[1]), NOBODY, np.int32)
        senders[: len(self._senders)] = moved[self._senders]
        self._senders = _only_routed(senders, order)
        if engine is None:
            return old  # type: ignore[return-value]
        return FleetState(
            engine=engine,
            pools=self._pools(order, old),
            senders=self._senders,
            draws=self._draws,
            ranks=self._ranks,
            replica=self._owner,
            reached=np.zeros(len(order)),
            held_heads=np.full(len(order), NOBODY, np.int32),
            held_tails=np.full(len(order), NOBODY, np.int32),
        )

    def _pools(self, order: Sequence[Member], old: FleetState | None) -> NDArray[Any]:
        records = pool_records([(policy, 0) for policy in self.policies])
        for number, record in enumerate(records):
            places = [m.place for m in order if m.pool == number and m.routed]
            record["first"], record["count"] = places[0] if places else 0, len(places)
            if old is not None and number < len(old.pools) and places:
                record["turn"] = old.pools[number]["turn"] % len(places)
        return records


def _check(member: Member) -> None:
    settings, table = member.replica
    check_sizes(settings, table, _BINS, _BIN_SECONDS)
    if member.started is None:
        return
    before = vars(member.started)
    changed = [n for n, v in vars(settings).items() if n not in _LIVE_SETTINGS and v != before[n]]
    if changed:
        name = changed[0]
        raise SimulationInputError(
            f"{name} of a replica that serves changes from {before[name]} to {getattr(settings, name)}: start another "
            f"replica, or change only {', '.join(_LIVE_SETTINGS)}"
        )


def _only_routed(senders: NDArray[np.int32], order: Sequence[Member]) -> NDArray[np.int32]:
    """Routers forget who is not theirs any more."""
    kept = np.array([*(m.routed for m in order), True])
    return np.where(kept[senders], senders, np.int32(NOBODY)).astype(np.int32)


def _carry(old: EngineState, source: int, new: EngineState, place: int) -> None:
    """What replica `source` of `old` has and does becomes that of `place` in `new`; its settings are the new ones.

    Both have room for it: arrays are as long as the largest replica was started for, and `_check` lets none change.
    """
    fresh = {name: new.replicas[place][name].copy() for name in ("table", *LIVE)}
    new.replicas[place] = old.replicas[source]
    for name, value in fresh.items():
        new.replicas[place][name] = value
    for name in ("running", "finishing", "heads", "tails", "nodes", "timeline"):
        given, taken = getattr(old, name)[source], getattr(new, name)[place]
        size = min(len(given), len(taken))
        taken[:size] = given[:size]


def slowed(table: StepTable, *, steps: float = 1.0, prefill: float = 1.0) -> StepTable:
    """The clock of a replica whose steps take `steps` times as long, and those with prompt tokens `prefill` times that.

    A step with prompt tokens is slowed as a whole, so the decodes beside them wait, too.
    """
    constants = table.constants.copy()
    constants["prefill_scale"] *= steps * prefill
    constants["decode_scale"] *= steps
    return replace(table, constants=constants)


__all__ = ["LIVE", "LiveFleet", "Member", "Pool", "Replica", "slowed"]
