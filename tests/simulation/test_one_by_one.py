"""Recorded requests of a real vLLM, played again."""

from firsttoken.planning.timing.efficiency import table
from firsttoken_accuracy.errors import Errors
from firsttoken_accuracy.one_by_one import play


def test_single_requests_of_a_recorded_run_are_predicted_within_the_targets() -> None:
    played = play("rtx_pro_6000_server", table())
    assert len(played) == 300
    assert Errors.of(p.ttft for p in played).mape <= 0.12
    assert Errors.of(p.tpot for p in played).mape <= 0.05
