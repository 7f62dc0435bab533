"""The closed formulas for pipeline stages against an engine that is stepped batch by batch, at the same arrivals."""

import pytest

from firsttoken.planning.load.demand import RequestShape
from planning.load.cases import ANSWERS, CHAT, SUMMARIES, Engine, capacity, staged
from planning.load.engine_steps import percentile, run

# Some thousand requests with lengths that vary this much leave percentiles uncertain by 5 to 10 %.
COUNT = 3000
FOUR_STAGES = staged(4)


@pytest.mark.parametrize(
    ("engine", "work", "load"),
    [
        (FOUR_STAGES, CHAT, 0.3),
        (FOUR_STAGES, ANSWERS, 0.6),
        (FOUR_STAGES, SUMMARIES, 0.6),
    ],
)
def test_stepping_an_engine_gives_the_same(engine: Engine, work: RequestShape, load: float) -> None:
    rate = load * capacity(engine, work)
    state, measured = engine.load(work).state(rate), run(engine.model, work, engine.limits, rate, COUNT)
    assert state.running == pytest.approx(measured.running, rel=0.15)
    for share, found in ((0.5, state.ttft.p50), (0.95, state.ttft.p95)):
        assert found == pytest.approx(percentile(measured.ttft, share), rel=0.25)
    assert state.tpot.p95 == pytest.approx(percentile(measured.tpot, 0.95), rel=0.3)
