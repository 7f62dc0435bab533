"""How vllm-router chooses among the replicas of a role, and why: what is to be followed is more than all prompts share.

`cache_aware` sends a prompt to the replica that was last sent its longest known beginning, if that is more than
`--cache-threshold` of it. A beginning that *all* prompts have is in every replica's cache anyway; followed, it sends
each prompt to where the one before it went, until that replica has 64 requests more than another.
"""

import math

from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.routers import LEAST_LOADED, POWER_OF_TWO, Router
from firsttoken.planning.load.steady import DECODE
from firsttoken.planning.types import Reason, Routing
from firsttoken.planning.words import number

CACHE_AWARE = "cache_aware"

ENVOY = Routing(POWER_OF_TWO)  # where no router stands between: the smaller load of two

# Prompts that may follow the one before them for the shared prefix alone, part of all.
FEW = 0.05
# A next turn is its conversation so far and about as much again at first, a fifth more later: above this threshold it
# would no longer be followed.
MOST_THRESHOLD = 0.65
# Followed by more than these for the shared prefix alone, cache_aware answers later than the smaller load of two (8B
# chat on A100-40, 4 and 8 replicas at 60 %: with 21 % TTFT P50 is 5 % later, P95 6 % earlier).
MANY = 0.25
STEP = 0.05  # of a threshold: lengths are not known better


def choose_routing(shape: RequestShape) -> Routing:
    """Of replicas with a prefix cache each. The least threshold, from vllm-router's own on, that few prompts pass with
    the shared prefix alone; power_of_two where too many do at any.
    """
    least = Routing()
    steps = range(round(least.cache_threshold / STEP), round(MOST_THRESHOLD / STEP) + 1)
    tried = [Routing(CACHE_AWARE, round(step * STEP, 2)) for step in steps]
    found = next((r for r in tried if followers(shape, r) <= FEW), tried[-1])
    return found if followers(shape, found) <= MANY else Routing(POWER_OF_TWO, least.cache_threshold)


def routing_of(roles: int, shape: RequestShape, *, caching: bool) -> Routing:
    """Of a layout: a split always has a router, replicas that do everything where they have caches to aim for."""
    return choose_routing(shape) if roles > 1 or caching else ENVOY


def router_before(shape: RequestShape, routing: Routing, role: str, replicas: int) -> Router:
    """What chooses among the replicas of a role, for the load model. Decode replicas are chosen by load, by the smaller
    of two, and so are those that Envoy stands before.
    """
    if role == DECODE or routing.policy != CACHE_AWARE:
        return Router(POWER_OF_TWO, replicas)
    return Router(LEAST_LOADED, replicas, followers(shape, routing))


def followers(shape: RequestShape, routing: Routing) -> float:
    """Part of the prompts that are sent where the one before them went, for the prefix that all share."""
    if routing.policy != CACHE_AWARE or not shape.cached_tokens:
        return 0.0
    # A prompt of just that length does not exceed the threshold.
    return shape.prompts.below(math.ceil(shape.cached_tokens / routing.cache_threshold) - 1)


def routing_reasons(shape: RequestShape, routing: Routing) -> tuple[Reason, ...]:
    """Why it isn't vllm-router's default, and what came second; nothing where it is."""
    if routing == Routing():
        return ()
    shared, default = shape.cached_tokens, Routing()
    why = (
        f"all prompts share their first {shared} tokens, which every replica has cached: with vllm-router's default "
        f"({default.cache_threshold}) {_percent(followers(shape, default))} of them would each be sent where the one "
        "before went, and wait for it"
    )
    if routing.policy == CACHE_AWARE:
        rest = followers(shape, routing)
        left = f" ({_percent(rest)} are so short that they still are)" if rest > FEW else ""
        text = (
            f"cache_aware, followed from {number(routing.cache_threshold * 100)} % of a prompt on: {why}{left}; longer "
            "beginnings are followed, and the rest goes to the smallest load; power_of_two came second: it spreads "
            "about as well, and finds no beginning again"
        )
        return (Reason("RoutingPolicy", text),)
    nearest = Routing(CACHE_AWARE, MOST_THRESHOLD)
    text = (
        f"power_of_two, the smaller load of two drawn at random: {why}; cache_aware from "
        f"{number(MOST_THRESHOLD * 100)} % on came second: {_percent(followers(shape, nearest))} would still be"
    )
    return (Reason("RoutingPolicy", text),)


def _percent(part: float) -> str:
    return f"{part * 100:.0f} %"
