"""The compiled engine: what `engine.Engine` does, in compiled loops, with the same times."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.forward import forward
from firsttoken.simulation.outcome import Outcome, Totals
from firsttoken.simulation.progress import compose
from firsttoken.simulation.queues import arrive, next_ready, release, send
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.state import BIN_SECONDS, BINS, EngineState, replicas_state, request_rows
from firsttoken.simulation.step_table import StepTable


@compiled
def run_until(engine: EngineState, r: int, until: float) -> None:
    """Steps of replica `r` that are decided before `until` (seconds), and what has ended by then.

    A step that is under way at `until` has been run to its end, but its requests count as running. Whatever reaches the
    engine before `until` must have been sent.
    """
    rows, rep, heads, tails = engine.rows, engine.replicas[r], engine.heads[r], engine.tails[r]
    while True:
        now = rep.decides
        release(engine, r, min(now, until))
        if not now < until:
            return
        arrive(rows, rep, heads, tails, now)
        if compose(engine, r, max(now, rep.end)):
            if rep.steady:
                forward(engine, r, until)
            # Ahead: the next step is composed when this one starts.
            rep.decides = rep.start if rep.ahead else rep.end
        elif rep.end > now:
            rep.decides = rep.end
        elif rep.step_preempted == 0:
            ready = next_ready(rows, rep)
            if not ready < until:
                return
            rep.decides = ready
        # Else the first request in line preempted itself, being the least urgent: the others come at once.


@compiled
def _send_all(engine: EngineState, r: int, first: int) -> None:
    for i in range(first, len(engine.rows)):
        send(engine.rows, engine.replicas[r], i, engine.rows[i].arrival)


class FastEngine:
    """One replica. `requests` are known at the start and sent by `send`, `send_all` or a closed loop.

    `bins` of `bin_seconds` keep sums over time; they double when time runs past them. `log`: last steps kept one by
    one.
    """

    def __init__(
        self,
        requests: Requests,
        settings: EngineSettings,
        table: StepTable,
        *,
        bins: int = BINS,
        bin_seconds: float = BIN_SECONDS,
        log: int = 0,
    ) -> None:
        """Raises SimulationInputError: a request that this engine could never serve, hashes that cut its KV blocks, a
        table for smaller steps, an odd number of bins.
        """
        check(requests, settings)
        check_sizes(settings, table, bins, bin_seconds)
        self.requests, self.settings, self._peak_token = requests, settings, table.peak_token
        hashes, self.kinds = requests.dense_hashes()
        self.state = replicas_state(
            request_rows(requests, settings.priorities), hashes, len(self.kinds), [(settings, table)],
            hash_tokens=requests.hash_tokens, bins=bins, bin_seconds=bin_seconds, log=log,
        )  # fmt: skip

    def send(self, i: int, arrival: float) -> None:
        """Request `i` leaves its client at `arrival`, seconds."""
        send(self.state.rows, self.state.replicas[0], i, arrival)

    def send_all(self, first: int = 0) -> None:
        """Every request from number `first` on at its own arrival."""
        _send_all(self.state, 0, first)

    def run_until(self, until: float) -> None:
        """See the function of this name."""
        run_until(self.state, 0, until)

    def run(self) -> Outcome:
        """All requests at their own arrivals, to the end."""
        self.send_all()
        self.run_until(np.inf)
        return self.outcome()

    def run_closed(self, clients: int, think_seconds: float = 0.0) -> Outcome:
        """`clients` that each send the next request that long after the last token of the one before reaches them.

        The arrivals of the requests are ignored; the first ones are sent at time 0. Raises
        SimulationInputError.
        """
        if clients < 1 or not 0 <= think_seconds < np.inf:
            raise SimulationInputError(
                f"a closed loop of {clients} clients that think for {think_seconds} s: give 1 client or more, and "
                "seconds from 0 on"
            )
        rep = self.state.replicas[0]
        first = min(clients, len(self.requests))
        rep["closed"], rep["cursor"], rep["think"] = 1, first, think_seconds
        for i in range(first):
            self.send(i, 0.0)
        self.run_until(np.inf)
        return self.outcome()

    def outcome(self) -> Outcome:
        """As it is now."""
        rows, rep = self.state.rows, self.state.replicas[0]
        return Outcome(
            requests=self.requests,
            stages=self.settings.stages,
            **{n: rows[n].copy() for n in ("arrival", "ready", "queued", "first", "finish", "preempted", "cached")},
            timeline=self.state.timeline[0].copy(),
            bin_seconds=float(rep["bin_seconds"]),
            steps=log_of(self.state, 0),
            totals=totals_of(rep, self._peak_token),
        )


def log_of(engine: EngineState, r: int) -> NDArray[Any]:
    """The last steps of a replica, oldest first."""
    log, steps = engine.log[r], int(engine.replicas[r]["steps"])
    return np.roll(log, -(steps % len(log))) if steps > len(log) > 0 else log[:steps].copy()


def totals_of(rep: Any, peak_token: float) -> Totals:
    """Of a replica's record."""
    return Totals(
        int(rep["steps"]), float(rep["seconds"]), float(rep["gpu"]), float(rep["end"]), int(rep["preemptions"]),
        int(rep["finished"]), int(rep["peak_running"]), int(rep["peak_waiting"]), int(rep["peak_kv"]), peak_token,
    )  # fmt: skip


def check_sizes(settings: EngineSettings, table: StepTable, bins: int, bin_seconds: float) -> None:
    """Raises SimulationInputError: see FastEngine."""
    most = len(table.by_tokens) - 1, len(table.by_rows) - 1
    if settings.token_budget > most[0] or settings.max_num_seqs > most[1]:
        raise SimulationInputError(
            f"token_budget {settings.token_budget} and max_num_seqs {settings.max_num_seqs} exceed the step table "
            f"({most[0]} tokens, {most[1]} requests): make a larger table"
        )
    if bins < 2 or bins % 2 or not 0 < bin_seconds < np.inf:
        raise SimulationInputError(f"{bins} bins of {bin_seconds} s: give an even number of bins, and seconds above 0")


def check(requests: Requests, settings: EngineSettings) -> None:
    """Raises SimulationInputError: see FastEngine."""
    if len(requests.hashes) and requests.hash_tokens % settings.block_tokens:
        raise SimulationInputError(
            f"hash_tokens is {requests.hash_tokens}, no multiple of block_tokens ({settings.block_tokens}): hash whole "
            "KV blocks"
        )
    total = requests.prompt_tokens.astype(np.int64) + requests.output_tokens
    if len(total):
        row = int(total.argmax())
        settings.check(row, int(requests.prompt_tokens[row]), int(requests.output_tokens[row]))
