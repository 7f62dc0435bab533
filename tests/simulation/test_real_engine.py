"""The comparison with a real vLLM on CPU, without the engine: `make accuracy-cpu` is the comparison itself."""

import numpy as np
import pytest

from firsttoken_accuracy.engine.calibrate import PARAMETERS, calibrate, predicted
from firsttoken_accuracy.engine.cases import MAX_NUM_SEQS, Case, Quantiles, Result, capacity, servers, simulate, work
from firsttoken_accuracy.engine.idle import BATCHES, PROMPTS, Row
from firsttoken_accuracy.engine.report import document

# A CPU as it might be: 4 ms a request, 5 ms a step, a hundredth of the assumed peak.
TRUE = {
    "api_request_us": 4000.0, "api_token_us": 2.0, "step_us": 5000.0, "request_us": 150.0, "mfu": 0.02,
    "prefill_mfu": 0.004, "decode_mbu": 0.03,
}  # fmt: skip
BUDGET = 256


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    shapes = [Row(True, 1, tokens, 0.0) for tokens in PROMPTS] + [Row(False, *batch, 0.0) for batch in BATCHES]
    return [Row(r.first, r.requests, r.tokens, predicted(TRUE, r, BUDGET)) for r in shapes]


def test_idle_rows_give_back_the_efficiencies_that_made_them(rows: list[Row]) -> None:
    found = calibrate(rows, BUDGET)
    assert found.worst_error < 0.02
    assert found.values.keys() == TRUE.keys() == {p.name for p in PARAMETERS}
    for name in ("api_request_us", "step_us", "mfu"):
        assert found.values[name] == pytest.approx(TRUE[name], rel=0.1), name


def test_clients_send_what_the_simulator_reads() -> None:
    given = work(2.0, seed=3, count=40)
    assert [len(a.prompt) for a in given.asks] == given.requests.prompt_tokens.tolist()
    assert [a.tokens for a in given.asks] == given.requests.output_tokens.tolist()
    assert [a.at for a in given.asks] == pytest.approx(given.requests.arrival.tolist())
    for i, one in enumerate(given.asks):
        for j, other in enumerate(given.asks[:i]):
            mine, theirs = (given.requests.hashes[slice(*given.requests.hash_offsets[k : k + 2])] for k in (i, j))
            assert (one.prompt[:192] == other.prompt[:192]) == np.array_equal(mine, theirs)


def test_caching_and_load_show_in_the_prediction(rows: list[Row]) -> None:
    model = calibrate(rows, BUDGET).model()
    plain, caching = servers()[0], servers()[-1]
    assert (plain.prefix_caching, caching.prefix_caching) == (False, True)
    assert plain.max_num_seqs == MAX_NUM_SEQS
    most = capacity(plain, model)
    calm, busy = (simulate(plain, model, work(share * most, 1).requests) for share in (0.3, 0.8))
    assert np.median(busy.first - busy.arrival) > np.median(calm.first - calm.arrival)
    assert not calm.cached.any()
    assert simulate(caching, model, work(0.3 * most, 1).requests).cached.sum() > 0


def test_the_report_counts_what_is_within_the_target(rows: list[Row]) -> None:
    quantiles = (Quantiles("TTFT", 50, 0.1, 0.11), Quantiles("TTFT", 95, 0.2, 0.3))
    results = [Result(Case(servers()[0], 0.3, 1.5), quantiles, 0.0, 1.0)]
    text, figures = document(rows, calibrate(rows, BUDGET), results, cores=2)
    assert (figures["figures"], figures["within"]) == (2, 1)
    assert figures["worst"] == pytest.approx(0.5)
    assert "1 of 2 figures are within 20%" in text
    assert "| 100.0 | +10 | 200.0 | +50 |" in text
