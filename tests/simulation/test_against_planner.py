"""The engine against the small one that the planner's closed formulas are held against, at the same arrivals."""

import numpy as np
import pytest

from firsttoken.planning.load.demand import RequestShape
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from planning.load.cases import ANSWERS, CHAT, EXPERTS, SMALL, SMALL_CHUNKS, Engine, capacity
from planning.load.engine_steps import arrivals, percentile, run

COUNT = 700
# The prefix that is cold here once lets the two part; percentiles of some hundred requests then scatter by this much.
SCATTER = 0.05


CASES = [(SMALL, CHAT, 0.6), (SMALL_CHUNKS, CHAT, 0.6), (SMALL, ANSWERS, 0.7), (EXPERTS, CHAT, 0.7)]


@pytest.mark.parametrize(("engine", "work", "load"), CASES)
def test_both_engines_give_the_same_times(engine: Engine, work: RequestShape, load: float) -> None:
    """That one knows no blocks and has a shared prefix cached from the start; the first request computes it here.

    What a request passes outside the engine is added to TTFT there, and is no delay before it.
    """
    rate, limits = load * capacity(engine, work), engine.limits
    given = arrivals(work, rate, COUNT)
    shared = [list(range(r.done // 16)) for r in given]
    columns = [r.arrival for r in given], [r.prompt for r in given], [r.output for r in given]
    table = step_table(engine.model, limits.token_budget, limits.max_running)
    settings = EngineSettings(limits.token_budget, limits.max_running, limits.kv_tokens // 16, schedule_ahead=False)
    found = FastEngine(requests(*columns, block_hashes=shared), settings, table).run()
    outside = table.api_request + table.api_token * found.requests.prompt_tokens
    ttft = np.sort((found.ttft + outside)[COUNT // 7 :]).tolist()
    tpot = np.sort(found.tpot[COUNT // 7 :][found.requests.output_tokens[COUNT // 7 :] > 1]).tolist()
    expected = run(engine.model, work, limits, rate, COUNT)
    for share in (0.5, 0.95):
        assert percentile(ttft, share) == pytest.approx(percentile(expected.ttft, share), rel=SCATTER)
        assert percentile(tpot, share) == pytest.approx(percentile(expected.tpot, share), rel=SCATTER)
    assert found.cached.sum() == pytest.approx(sum(r.done for r in given[1:]), rel=0.02)
