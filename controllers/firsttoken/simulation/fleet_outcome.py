"""What a fleet leaves: the times of each request wherever they passed, and each replica's own outcome."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.outcome import Outcome, tpot_of
from firsttoken.simulation.requests import Requests


@dataclass(frozen=True, eq=False)
class FleetOutcome:
    """n requests, in the order they were given. Seconds of one clock; NaN: not yet. Names as in Outcome.

    `prefilled`: end of the prompt's last step; the same as `first` unless a decode replica makes the first token.
    """

    requests: Requests
    revision: NDArray[np.int64]  # number of the revision
    replica: NDArray[np.int32]  # number of the replica, over the whole fleet; the prefill replica where there is one
    decoder: NDArray[np.int32]  # the replica that made the tokens
    arrival: NDArray[np.float64]
    ready: NDArray[np.float64]
    queued: NDArray[np.float64]
    prefilled: NDArray[np.float64]
    first: NDArray[np.float64]
    finish: NDArray[np.float64]
    preempted: NDArray[np.int32]  # on both sides
    cached: NDArray[np.int32]  # prompt tokens that the prefill side had
    gateway: NDArray[np.float64]
    delivery: NDArray[np.float64]
    replicas: tuple[Outcome, ...]  # of each replica; a decode replica's arrivals are hand-overs
    roles: tuple[str, ...]  # serve, prefill or decode
    revisions: tuple[int, ...]  # of each replica

    @property
    def ttft(self) -> NDArray[np.float64]:
        """From leaving the client to the first token there."""
        return self.first + self.delivery - self.arrival

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Mean time of a token after the first; NaN where there is none."""
        return tpot_of(self.requests, self.first, self.finish)

    def times(self) -> Mapping[str, NDArray[np.float64]]:
        """See Outcome. `transfer`: from the prompt's last step to the first token."""
        return {
            "ttft": self.ttft,
            "gateway": self.gateway,
            "input": self.ready - self.arrival - self.gateway,
            "queue": self.queued - self.ready,
            "prefill": self.prefilled - self.queued,
            "transfer": self.first - self.prefilled,
            "delivery": self.delivery,
            "tpot": self.tpot,
        }
