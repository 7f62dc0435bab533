"""What a router makes of the arrivals of a service: how evenly each of its replicas is loaded.

Arrivals are Poisson. Drawn at random each replica would see Poisson arrivals, too, and be alone (ALONE). A router does
better, or worse: by `near`, how many prompts come close to another one at the same replica, of those that Poisson
arrivals would bring; and by `far`, the variance of what comes over long times, of theirs. Plain numbers.
"""

from dataclasses import dataclass

RANDOM, ROUND_ROBIN, LEAST_LOADED, POWER_OF_TWO = "random", "round_robin", "least_loaded", "power_of_two"

# What is left of `near` behind many replicas, chosen so that TTFT P50 and P95 of 8B and 70B models, chat, code and
# answers, agree with simulated fleets of 2, 4 and 8 at 30, 50 and 70 % of capacity (`make bench-load`). A router counts
# requests: the more of them decode, the less it sees which replica has prompts waiting. So it falls short of what it
# would do for prompts alone by a part that grows with the running decodes, half of it at `half`.
_LOADS = {LEAST_LOADED: (0.7, 3.0, 1), POWER_OF_TWO: (0.85, 0.8, 2)}  # most, half, power of 1 / replicas
REGULAR = 1.2  # round robin is blind to long prompts: what is left grows with the load
LATE = 8  # power of the load at which a router no longer helps: all replicas are full
MOST_HERD = 0.9  # of a replica that gets all for a while; beyond, loads differ so much that the router moves on


@dataclass(frozen=True)
class Router:
    """A policy over equal replicas. `followers`: part of the prompts that go where the one before them went."""

    policy: str
    replicas: int
    followers: float = 0.0

    @property
    def far(self) -> float:
        """All but chance share out the requests evenly in the long run."""
        return 1.0 if self.policy == RANDOM else 1 / max(1, self.replicas)

    def near(self, running: float, load: float) -> float:
        """Beside so many `running` decodes of a replica, at such a `load` of prompts (rho). Never falls with either."""
        n, rho = max(1, self.replicas), min(1.0, load)
        if n == 1 or self.policy == RANDOM:
            return 1.0
        if self.policy == ROUND_ROBIN:
            many = min(1.0, REGULAR * rho)
            part = many + (1 - many) * n**-1.5
        else:
            most, half, power = _LOADS[self.policy]
            many = most * running / (running + half)
            part = many + (1 - many) / n**power
        part += (1 - part) * rho**LATE
        return self._herded(part, n, rho)

    def _herded(self, part: float, n: int, rho: float) -> float:
        """With followers: they come as densely as all of the service's, in rows of 1 / (1 - followers)."""
        follow = self.followers
        if not follow or not rho:
            return part
        in_sight = max(1.0, n * rho)  # prompts of the service that come while one is computed
        row = in_sight if follow >= 1 else follow * (1 - follow**in_sight) / (1 - follow)
        dense = min(n * row / in_sight, max(part, MOST_HERD / rho))
        return max(part, part * (1 - follow) + dense * follow)


ALONE = Router(RANDOM, 1)
