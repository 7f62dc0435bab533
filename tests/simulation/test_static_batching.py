"""Batching as it was before continuous batching, and attention that moves its scores several times (M8's baseline)."""

from dataclasses import replace

import numpy as np
import pytest

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.requests import requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from planning.timing.models import LLAMA_8B, step_model
from simulation.cases import TABLE, both

STATIC = EngineSettings(
    token_budget=512,
    max_num_seqs=4,
    kv_blocks=1000,
    chunked_prefill=False,
    prefix_caching=False,
    reserved_tokens=420,
    schedule_ahead=False,
    static_batching=True,
)


def test_nobody_joins_a_batch_before_its_last_request_has_ended() -> None:
    work = requests(np.array([0.0, 0.0, 0.001]), np.array([100, 50, 60]), np.array([3, 40, 5]))
    for outcome in (both(work, STATIC)[2], both(work, replace(STATIC, schedule_ahead=True))[2]):
        assert outcome.queued[2] >= outcome.finish[1] > outcome.finish[0]
    joined = both(work, replace(STATIC, static_batching=False))[2]
    assert joined.queued[2] < joined.finish[0]


def test_prompts_are_padded_to_the_longest_of_their_batch() -> None:
    work = requests(np.zeros(3), np.array([150, 40, 10]), np.array([2, 2, 2]))
    exact, _, fast = both(work, STATIC)
    assert exact.steps[0].prefill_tokens == 450
    assert exact.steps[0].seconds == TABLE.step_seconds([(0, 150)] * 3, [])[0]
    assert fast.steps[0]["prefill_tokens"] == 450


def test_a_padded_batch_fits_into_a_step() -> None:
    """Three of 150 tokens do, four (600) don't, though 150 + 3 x 10 would."""
    work = requests(np.zeros(4), np.array([150, 10, 10, 10]), np.array([9, 9, 9, 9]))
    outcome = both(work, STATIC)[2]
    assert (outcome.queued[:3] == outcome.queued[0]).all()
    assert outcome.queued[3] > outcome.queued[0]


@pytest.mark.parametrize(
    "changes", [{"chunked_prefill": True}, {"prefix_caching": True}, {"reserved_tokens": 0}], ids=str
)
def test_what_such_servers_did_not_have_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SimulationInputError, match="static_batching"):
        replace(STATIC, **changes)


def test_a_split_of_prefill_and_decode_is_refused() -> None:
    pool = Pool((Replica(STATIC, TABLE),))
    work = requests(np.zeros(1), np.array([10]), np.array([2]))
    with pytest.raises(SimulationInputError, match="static_batching"):
        Fleet(work, [Revision(pool, pool)])


def test_scores_that_are_moved_more_often_take_longer_in_both_models() -> None:
    slow, fast = (step_model(LLAMA_8B, "nvidia-a100-40gb", tiled=False, score_bytes=b) for b in (24, 8))
    chunks = [(0, 400)]
    scores, rates = 32 * 32 * 400 * 400, slow.parts().rates  # layers, heads, queries, keys
    more = slow.step_seconds(chunks).attention - fast.step_seconds(chunks).attention
    assert more == pytest.approx(16 * scores / (rates.bandwidth * rates.efficiency.decode_mbu), rel=1e-9)
    table = step_table(slow, 512, 4)
    assert table.step_seconds(chunks, [])[0] == pytest.approx(slow.step_seconds(chunks).seconds, rel=1e-9)
    work = requests(np.zeros(1), np.array([400]), np.array([2]))
    assert FastEngine(work, STATIC, table).run().first[0] == pytest.approx(slow.step_seconds(chunks).seconds, rel=1e-9)
