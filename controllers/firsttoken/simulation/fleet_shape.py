"""What a fleet is: replicas of one revision or of several, colocated or prefill and decode apart, and the split."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.policies import LeastLoaded, Policy
from firsttoken.simulation.settings import EngineSettings, Link
from firsttoken.simulation.step_table import StepTable

MANY_TOKENS = 2**20


class Replica(NamedTuple):
    """One engine and its clock."""

    settings: EngineSettings
    table: StepTable


@dataclass(frozen=True)
class Pool:
    """Replicas behind one router. They may differ, as during a trial of live settings."""

    replicas: Sequence[Replica]
    policy: Policy = LeastLoaded()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        if not self.replicas:
            raise SimulationInputError("replicas is empty: give a pool one replica at least")


@dataclass(frozen=True)
class Revision:
    """What serves one share of the requests, in proportion to `weight`.

    Without `decode` the replicas of `pool` do everything. With it they only compute prompts, as with vllm-router and
    NixlConnector: a prefill engine computes the prompt and one token that nobody sees; then a decode engine gets the
    same prompt, reserves its KV blocks, fetches the KV over `link`, and computes the last prompt token: the client's
    first token. Until then its KV stays on the prefill side (no lease ends here). Both sides have their own `stages`.
    """

    pool: Pool
    decode: Pool | None = None
    link: Link = Link()  # noqa: RUF009  # frozen
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise SimulationInputError(f"weight is {self.weight}: give a share of the requests, from 0 on")


def colocated(count: int, settings: EngineSettings, table: StepTable, policy: Policy = LeastLoaded()) -> Revision:  # noqa: B008
    """`count` equal replicas."""
    return Revision(Pool((Replica(settings, table),) * count, policy))


def link_of(model: StepModel, bytes_per_second: float | None = None) -> Link:
    """The link of the planner's formula for the KV of `model`; by default the PCIe of its ranks together."""
    set_up = model.transfer_seconds(0, bytes_per_second)
    return Link(set_up, (model.transfer_seconds(MANY_TOKENS, bytes_per_second) - set_up) / MANY_TOKENS)


def split(keys: NDArray[np.int64], weights: Sequence[float], seed: int) -> NDArray[np.int64]:
    """Number of the revision that each key belongs to, by hash: equal keys (request or user ids) stay together.

    Shares are laid one after the other, so while the weight of the last (the canary) rises, nobody leaves it. Raises
    SimulationInputError: no revision has weight.
    """
    if not sum(weights) > 0:
        raise SimulationInputError(f"weights are {list(weights)}: give one revision a weight above 0 at least")
    bounds = np.cumsum(weights) / sum(weights)
    bounds[np.flatnonzero(weights)[-1] :] = 1.0  # whatever rounding left
    return np.searchsorted(bounds, _uniform(keys, seed), side="right")


def _uniform(keys: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """A hash of each key, another one for each seed, as a number from 0 to below 1."""
    start = _mixed(np.array([seed % 2**64], np.uint64))
    return np.asarray((_mixed(keys.astype(np.uint64) + start) >> np.uint64(11)) * 2.0**-53)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64 (Steele, Lea, Flood 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
