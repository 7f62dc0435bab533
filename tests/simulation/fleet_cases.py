"""Small random fleets."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.policies import CacheAware, LeastLoaded, PowerOfTwo, RoundRobin
from firsttoken.simulation.settings import Link
from simulation.cases import TABLES, engines

# Where a few requests are much, so that both rules of cache-aware routing come up.
EAGER = CacheAware(0.1, 3, 1.2)
POLICIES = (RoundRobin(), LeastLoaded(), PowerOfTwo(), CacheAware(), EAGER, replace(EAGER, held=True))
LINKS = (Link(), Link(0.002, 1e-5), Link(0.05, 0.0), Link(0.0, 1e-3))


@st.composite
def pools(draw: Any, most: int = 4, whole: bool = True) -> Pool:
    """Up to `most` replicas, alike or not. `whole`: they do prefill and decode."""
    count = draw(st.integers(1, most))
    if draw(st.booleans()):
        replicas = (Replica(draw(engines(whole)), draw(st.sampled_from(TABLES))),) * count
    else:
        replicas = tuple(Replica(draw(engines(whole)), draw(st.sampled_from(TABLES))) for _ in range(count))
    return Pool(replicas, draw(st.sampled_from(POLICIES)))


@st.composite
def colocations(draw: Any) -> Revision:
    """Replicas that do everything."""
    return Revision(draw(pools()), weight=draw(st.sampled_from([0.1, 1.0])))


@st.composite
def separations(draw: Any) -> Revision:
    """Prefill and decode replicas, most of them short of KV."""
    link = draw(st.sampled_from(LINKS))
    return Revision(draw(pools(3, False)), draw(pools(3, False)), link, weight=draw(st.sampled_from([0.1, 1.0])))


def mixed() -> st.SearchStrategy[list[Revision]]:
    """Two revisions of either kind."""
    return st.lists(st.one_of(colocations(), separations()), min_size=2, max_size=2)
