"""How a router chooses among the replicas of a revision.

A replica's load is what the router has sent there and not got back: on its way, waiting or running. Of equals the first
is taken, as vllm-router does.
"""

from dataclasses import dataclass

from firsttoken.planning.types import Routing
from firsttoken.simulation.errors import SimulationInputError

ROUND_ROBIN, LEAST_LOADED, POWER_OF_TWO, CACHE_AWARE = range(4)


@dataclass(frozen=True)
class RoundRobin:
    """One after the other."""


@dataclass(frozen=True)
class LeastLoaded:
    """The smallest load of all: Envoy's LEAST_REQUEST with FULL_SCAN, vllm-router's choice where loads differ much."""


@dataclass(frozen=True)
class PowerOfTwo:
    """The smaller load of two different replicas drawn at random: vllm-router's `power_of_two`.

    Envoy's LEAST_REQUEST does so by default, but may draw the same one twice.
    """


@dataclass(frozen=True)
class CacheAware:
    """vllm-router's `cache_aware`; the defaults are those of its command line (0.1.17).

    Loads differ too much when the largest exceeds the smallest by more than `most_ahead` *and* is above `most_times`
    of it: then the smallest load is taken. Else the replica that was last sent the longest known beginning of the
    prompt, if that is more than `least_match` of it; else the smallest load (src/policies/cache_aware.rs). The router's
    memory is of what it sent, not of what is cached, and ends never here (there every `eviction-interval-secs`).

    `held`: by what the replicas have cached when the request comes, as routers do that are told of cache events; of
    equally long beginnings the one at the smallest load.
    """

    least_match: float = Routing.cache_threshold
    most_ahead: int = Routing.most_ahead
    most_times: float = Routing.most_times
    held: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.least_match <= 1:
            raise SimulationInputError(f"least_match is {self.least_match}: give a part of the prompt, from 0 to 1")
        if self.most_ahead < 0:
            raise SimulationInputError(f"most_ahead is {self.most_ahead}: give 0 requests or more")
        if not self.most_times >= 1:
            raise SimulationInputError(f"most_times is {self.most_times}: give a ratio of loads, 1 or more")


Policy = RoundRobin | LeastLoaded | PowerOfTwo | CacheAware
CODES = {RoundRobin: ROUND_ROBIN, LeastLoaded: LEAST_LOADED, PowerOfTwo: POWER_OF_TWO, CacheAware: CACHE_AWARE}
