"""What Prometheus would have of the simulated engines: a block each round, and the last ones as measurements.

From the requests themselves: their first tokens, their ends, and who decodes at moments of the clock. Tokens of steps
are those of the prompts that got their first token; prompts that preemption computes twice are told by the counter.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from firsttoken.measurement.blocks import Block, Measurements, Part, Window
from firsttoken.planning.workload import bucket_names
from firsttoken.rehearsal.pods import Pod
from firsttoken.rehearsal.serving import Fate, Serving
from firsttoken.simulation.fleet_shape import Replica

ROUND_SECONDS = 300.0  # as the operator asks, and as long as a block is
BLOCKS = 6
_MOMENTS = 60  # of a block: how often gauges are scraped
FAILURES_TO_TELL = 2  # rounds, as in the operator
FAULT = "Prometheus does not answer: the world took it away"


class Prometheus:
    """The measurements of all revisions. `down_until`: it does not answer before, seconds."""

    def __init__(self, serving: Serving, bounds: tuple[int, ...], engine: Callable[[Pod], Replica]) -> None:
        self._serving, self._bounds, self._engine = serving, bounds, engine
        self._blocks: dict[str, list[Block]] = defaultdict(list)
        self._rounds = self._failures = 0
        self.down_until = 0.0
        self.found = Measurements()

    def next(self) -> float:
        """When the next round is, seconds."""
        return (self._rounds + 1) * ROUND_SECONDS

    def settle(self, now: float, pods: Iterable[Pod]) -> bool:
        """A round if it is due; whether what is told of a revision changed."""
        if now < self.next():
            return False
        engines: dict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            if pod.is_engine and pod.ready:
                engines[pod.revision].append(pod)
        for revision, mine in engines.items():
            if revision not in self._blocks:
                self._blocks[revision] = [{}] * self._rounds
            self._blocks[revision].append(self._block(revision, mine, now))
        self._rounds += 1
        for blocks in self._blocks.values():
            blocks.extend([{}] * (self._rounds - len(blocks)))
        before, self.found = self.found, self._told(now)
        return _state(before) != _state(self.found)

    def _told(self, now: float) -> Measurements:
        self._failures = self._failures + 1 if now < self.down_until else 0
        if self._failures:
            return Measurements(fault=FAULT) if self._failures >= FAILURES_TO_TELL else self.found
        windows: dict[Part, Window] = {}
        for revision, blocks in self._blocks.items():
            last: list[Block] = ([{}] * BLOCKS + blocks)[-BLOCKS:]
            if any(last):
                windows[revision, "serve"] = Window(ROUND_SECONDS, tuple(last))
        return Measurements(windows)

    def _block(self, revision: str, pods: list[Pod], now: float) -> Block:
        start, rows = now - ROUND_SECONDS, self._serving.fleet.rows
        mine = (self._serving.revision == self._serving.revisions.index(revision)) & (self._serving.fate == Fate.SENT)
        first = np.flatnonzero(mine & (rows["first"] > start) & (rows["first"] <= now))
        ended = np.flatnonzero(mine & (rows["finish"] > start) & (rows["finish"] <= now))
        found = dict([*self._first_tokens(first), *self._ends(ended)])
        moments = np.linspace(start, now, _MOMENTS, endpoint=False)
        begun, over = np.sort(rows["first"][mine]), np.sort(rows["finish"][mine])
        running = np.searchsorted(begun, moments, "right") - np.searchsorted(over, moments, "right")
        budgets = [float(self._engine(pod).settings.token_budget) for pod in pods]
        found |= {
            ("running", "decode"): float(running.mean()) / len(pods),
            ("engines", ""): float(len(pods)),
            ("least_budget", ""): min(budgets),
            ("most_budget", ""): max(budgets),
            # Settings that differ show in the budget; the number itself is nobody's here.
            ("least_generation", ""): 0.0,
            ("most_generation", ""): 0.0,
            ("preemptions", ""): float(rows["preempted"][ended].sum()),
            ("resets", ""): 0.0,
        }
        return found

    def _first_tokens(self, chosen: NDArray[np.int64]) -> Iterator[tuple[tuple[str, str], float]]:
        rows, total = self._serving.fleet.rows, 0.0
        for bucket, mine in self._buckets(chosen):
            prompt, cached = float(rows["prompt"][mine].sum()), float(rows["cached"][mine].sum())
            yield ("prefill_seconds", bucket), float((rows["first"][mine] - rows["queued"][mine]).sum())
            yield ("prefills", bucket), float(len(mine))
            yield ("prompts", bucket), float(len(mine))
            yield ("prompt_tokens", bucket), prompt
            yield ("cached_tokens", bucket), cached
            total += prompt - cached
        yield ("step_tokens", "prefill"), total

    def _ends(self, chosen: NDArray[np.int64]) -> Iterator[tuple[tuple[str, str], float]]:
        rows = self._serving.fleet.rows
        for bucket, mine in self._buckets(chosen):
            several = mine[rows["output"][mine] > 1]
            seconds = (rows["finish"][several] - rows["first"][several]) / (rows["output"][several] - 1)
            yield ("tpot_seconds", bucket), float(seconds.sum())
            yield ("tpots", bucket), float(len(several))
            yield ("kv_tokens", bucket), float((rows["prompt"][mine] + rows["output"][mine] - 1).sum())
            yield ("kv_requests", bucket), float(len(mine))

    def _buckets(self, chosen: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
        prompts = self._serving.fleet.rows["prompt"][chosen]
        places = np.searchsorted(np.asarray(self._bounds), prompts, side="left")
        for place, name in enumerate(bucket_names(self._bounds)):
            if (places == place).any():
                yield name, chosen[places == place]


def _state(found: Measurements) -> tuple[str, frozenset[tuple[Part, tuple[bool, ...]]]]:
    """Of what there are measurements, and for which parts of the window."""
    parts = ((part, tuple(bool(b) for b in window.blocks)) for part, window in found.windows.items())
    return found.fault, frozenset(parts)
