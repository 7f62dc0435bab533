"""Several replicas in one state: what a router in compiled code steps."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.fast import FastEngine, run_until
from firsttoken.simulation.queues import send
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.state import replicas_state, request_rows
from simulation.cases import TABLE, engines, workloads


@settings(deadline=None, max_examples=40)
@given(workloads(), engines(), st.integers(1, 3))
def test_replicas_share_nothing_but_the_rows(work: Requests, engine: EngineSettings, replicas: int) -> None:
    """Requests go round; each replica does what it would alone with its own."""
    hashes, kinds = work.dense_hashes()
    rows = request_rows(work, engine.priorities)
    state = replicas_state(rows, hashes, len(kinds), [(engine, TABLE)] * replicas, hash_tokens=work.hash_tokens)
    for i, arrival in enumerate(work.arrival.tolist()):
        for r in range(replicas):
            run_until(state, r, arrival)
        send(rows, state.replicas[i % replicas], i, arrival)
    for r in range(replicas):
        run_until(state, r, np.inf)
        mine = np.arange(r, len(work), replicas)
        alone = FastEngine(work.take(mine), engine, TABLE).run()
        np.testing.assert_array_equal(rows["finish"][mine], alone.finish)
        np.testing.assert_array_equal(rows["cached"][mine], alone.cached)
