"""A real vLLM on CPU: what the simulator makes of an idle run, against the same engine under load.

`make accuracy-cpu` is the whole comparison and reports its figures; this holds that it works, and that a prediction is
no other engine's: machines that run tests are busy with other things.
"""

import pytest

from firsttoken_accuracy.engine.cases import servers
from firsttoken_accuracy.engine.report import document
from firsttoken_accuracy.engine.run import compare


@pytest.mark.timeout(1200)
def test_an_idle_run_predicts_the_engine_under_load() -> None:
    caching = servers()[2]
    assert (caching.prefix_caching, caching.token_budget) == (True, 256)
    rows, calibrated, results = compare([caching], [0.4])
    text, figures = document(rows, calibrated, results, cores=2)
    print(text)
    assert figures["figures"] == len(results[0].quantiles) == 4
    assert results[0].hit_rate > 0.2
    for one in results[0].quantiles:
        if one.percentile == 50:
            assert 0.2 < one.predicted / one.measured < 5, one
