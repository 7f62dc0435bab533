"""The requests in virtual time: which engine has each, and what became of it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from firsttoken.rehearsal.gateway import Gateway
from firsttoken.rehearsal.pods import Pod
from firsttoken.simulation.fleet_shape import Replica, split
from firsttoken.simulation.live_fleet import LiveFleet, Member, slowed
from firsttoken.simulation.policies import Policy
from firsttoken.simulation.requests import Requests


class Fate(IntEnum):
    """What became of a request."""

    UNSENT = 0  # the service was not there yet
    SENT = 1  # served, or under way
    REFUSED = 2  # 400: longer than its revision's maximum model length
    UNSERVED = 3  # 503: no Envoy, no revision with requests, or none of its pods
    BROKEN = 4  # its pod was lost
    CUT_OFF = 5  # its pod had to end before it was finished
    ERROR = 6  # 500: its revision is bad


LOST = (Fate.UNSERVED, Fate.BROKEN, Fate.CUT_OFF, Fate.ERROR)


@dataclass(frozen=True)
class Served:
    """How one revision serves: its router, and what is wrong with it."""

    policy: Policy
    max_model_length: int
    prefill: float = 1.0  # a factor of the steps with prompt tokens
    errors: float = 0.0  # share of the requests that are answered 500


class Engines(Protocol):
    """What runs in the pods."""

    def served(self, revision: str) -> Served:
        """How a revision serves."""

    def replica(self, pod: Pod) -> Replica:
        """The engine of a pod, with its live settings."""


class Shape(NamedTuple):
    """One replica as it is at present: whether it gets new requests, how slow its node is, and its engine."""

    routed: bool
    slow: float
    replica: Replica


class Serving:
    """Requests from clients to engines. They are sent from `open_at` on, when the service is Ready for the first time:
    before, nobody has its address.
    """

    def __init__(self, requests: Requests, gateway: Gateway, engines: Engines, *, seed: int) -> None:
        self.requests, self.fleet = requests, LiveFleet(requests, seed=seed)
        self.fate = np.zeros(len(requests), np.int8)
        self.revision = np.full(len(requests), -1, np.int32)  # number of it in `revisions`
        self.revisions: list[str] = []
        self.open_at = math.inf
        self.slow: dict[str, float] = {}  # factor of the steps on a node
        self._gateway, self._engines, self._seed = gateway, engines, seed
        self._known: dict[str, Served] = {}
        self._delivery: dict[str, float] = {}  # seconds from an engine's token to the client, by revision
        self._members: dict[str, Member] = {}  # by pod
        self._shape: dict[str, Shape] = {}
        self._next = 0
        self._limits = requests.prompt_tokens.astype(np.int64)

    def run(self, until: float) -> Counter[Fate]:
        """Everything up to `until`, with pods and Envoys as they are now; what became of the requests that arrived."""
        last = int(np.searchsorted(self.requests.arrival, until))
        first, self._next = self._next, max(last, self._next)
        count = self._next - first
        if self.open_at == math.inf:
            return Counter()
        fates, pools = self._assigned(first, count)
        self.fate[first : first + count] = fates
        self.fleet.serve(first, pools, until)
        return Counter(Fate(f) for f in fates.tolist())

    def sync(self, pods: list[Pod], now: float, fate_of: Callable[[str], Fate]) -> dict[str, int]:
        """Pods have come, are going, or are gone: returns by name of the pod the requests that went with it.

        `fate_of`: what that means for them, by pod.
        """
        engines = {p.name: p for p in pods if p.is_engine and p.ready}
        shape = {n: self._shape_of(p, now) for n, p in engines.items()}
        if shape == self._shape:
            return {}
        gone = {}
        for name, member in self._members.items():
            if name not in engines:
                failed = self.fleet.unfinished(member, now)
                self.fate[failed] = fate_of(name)
                gone[name] = len(failed)
        self._shape = shape
        self._members = {n: self._member(p, shape[n]) for n, p in engines.items()}
        self.fleet.change(list(self._members.values()), now)
        return {n: count for n, count in gone.items() if count}

    def idle(self, pod: Pod) -> bool:
        """Whether an engine has nothing to do."""
        member = self._members.get(pod.name)
        return member is None or self.fleet.load(member) == 0

    def bad(self) -> list[str]:
        """Revisions with something wrong that requests went to."""
        with_requests = set(self.revision[self.fate != Fate.UNSENT].tolist())
        wrong = {n for n, s in self._known.items() if s.prefill != 1.0 or s.errors}
        return [name for number, name in enumerate(self.revisions) if name in wrong and number in with_requests]

    def ttft(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of requests that have their first token, seconds."""
        lag = np.array([self._delivery[r] for r in self.revisions])
        return np.asarray(self.fleet.rows["first"][rows] + lag[self.revision[rows]] - self.requests.arrival[rows])

    def _shape_of(self, pod: Pod, now: float) -> Shape:
        self._pool(pod.revision)
        replica = self._engines.replica(pod)
        self._delivery.setdefault(pod.revision, replica.settings.stages.delivery_seconds)
        return Shape(pod.known(now), self.slow.get(pod.node, 1.0), replica)

    def _member(self, pod: Pod, shape: Shape) -> Member:
        pool, prefill = self._pool(pod.revision), self._known[pod.revision].prefill
        settings, table = shape.replica
        if shape.slow != 1.0 or prefill != 1.0:
            table = slowed(table, steps=shape.slow, prefill=prefill)
        member = self._members.get(pod.name) or Member(pool, shape.replica)
        member.routed, member.replica = shape.routed, Replica(settings, table)
        return member

    def _pool(self, revision: str) -> int:
        if revision not in self._known:
            self._known[revision] = self._engines.served(revision)
            self.revisions.append(revision)
            self.fleet.add_pool(self._known[revision].policy)
        return self.revisions.index(revision)

    def _assigned(self, first: int, count: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """Fate and pool of the next requests."""
        fates, pools = np.full(count, Fate.UNSERVED, np.int8), np.full(count, -1, np.int64)
        numbers = np.arange(first, first + count)
        arrival = self.requests.arrival[first : first + count]
        envoys = self._gateway.ready()
        if envoys:
            which = numbers % len(envoys)
            for place, envoy in enumerate(envoys):
                self._split(envoy, np.flatnonzero(which == place), numbers, fates, pools)
        fates[arrival < self.open_at], pools[arrival < self.open_at] = Fate.UNSENT, -1
        self.revision[first : first + count] = pools
        pools[fates != Fate.SENT] = -1
        return fates, pools

    def _split(
        self,
        envoy: Pod,
        mine: NDArray[np.int64],
        numbers: NDArray[np.int64],
        fates: NDArray[np.int8],
        pools: NDArray[np.int64],
    ) -> None:
        """The requests of one Envoy by its weights."""
        weights = {r: w for r, w in self._gateway.weights(envoy).items() if w > 0}
        if not weights or not len(mine):
            return
        names = list(weights)
        chosen = split(numbers[mine], [float(weights[n]) for n in names], self._seed)
        for number, name in enumerate(names):
            if name not in self._known:
                continue
            rows = mine[chosen == number]
            pools[rows] = self.revisions.index(name)
            routed = any(m.routed and self.revisions[m.pool] == name for m in self._members.values())
            if routed and self._gateway.reaches(envoy, name):
                fates[rows] = self._outcome(self._known[name], numbers[rows])

    def _outcome(self, served: Served, numbers: NDArray[np.int64]) -> NDArray[np.int8]:
        """Of requests that reach a revision; a long output ends at its maximum model length, as in vLLM."""
        prompts = self.requests.prompt_tokens[numbers]
        fates = np.where(prompts < served.max_model_length, Fate.SENT, Fate.REFUSED).astype(np.int8)
        if served.errors:
            bad = split(numbers, [1 - served.errors, served.errors], self._seed + 1) == 1
            fates[bad] = Fate.ERROR
        rows = self.fleet.rows
        room = np.maximum(1, served.max_model_length - prompts)
        rows["output"][numbers] = np.minimum(rows["output"][numbers], room)
        return fates


def counted(fate: NDArray[np.int8]) -> Mapping[Fate, int]:
    """How many requests had each fate."""
    return {one: int((fate == one).sum()) for one in Fate}
