"""The telemetry contract: its bounds, its size, and its names, which are DESIGN's."""

from itertools import pairwise

import pytest

from firsttoken.api.engine import MeasurementSpec
from firsttoken.measurement.contract import (
    RATIO,
    SERIES,
    STAGE_BOUNDS,
    STAGES,
    TPOT_BOUNDS,
    TTFT_BOUNDS,
    bucket_of,
    series_count,
)
from firsttoken.planning.workload import bucket_names

BOUNDS = MeasurementSpec().prompt_token_buckets


def test_the_names_are_those_of_the_design() -> None:
    assert set(SERIES) == {
        "firsttoken_ttft_seconds", "firsttoken_ttft_stage_seconds", "firsttoken_tpot_seconds",
        "firsttoken_requests_total", "firsttoken_prompt_tokens", "firsttoken_cached_prompt_tokens_total",
        "firsttoken_request_kv_tokens", "firsttoken_kv_allocation_failures_total", "firsttoken_step_tokens",
        "firsttoken_token_budget", "firsttoken_running_requests", "firsttoken_oldest_waiting_seconds",
        "firsttoken_prefix_instability_total", "firsttoken_attention_backend_info", "firsttoken_settings_generation",
        "firsttoken_contract_info",
    }  # fmt: skip
    assert set(STAGES) == {"gateway", "input", "queue", "transfer", "prefill", "delivery"}


@pytest.mark.parametrize(("bounds", "low", "high"), [(TTFT_BOUNDS, 0.010, 60.0), (TPOT_BOUNDS, 0.001, 1.0)])
def test_neighbouring_bounds_are_ten_percent_apart(bounds: tuple[float, ...], low: float, high: float) -> None:
    assert (bounds[0], bounds[-1]) == (low, high)
    ratios = [b / a for a, b in pairwise(bounds)]
    assert all(1.0 < ratio <= RATIO * 1.001 for ratio in ratios)  # four digits of each bound are kept
    assert min(ratios[:-1]) > 1.09  # the last one is cut at the end of the range


def test_stages_are_coarse_and_rise() -> None:
    assert len(STAGE_BOUNDS) == 14
    assert list(STAGE_BOUNDS) == sorted(set(STAGE_BOUNDS))


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    assert [bucket_of(n, BOUNDS) for n in (1, 64, 65, 16384, 16385)] == [
        "0-64",
        "0-64",
        "64-256",
        "4096-16384",
        "16384+",
    ]
    assert {bucket_of(n, BOUNDS) for n in range(1, 20000)} == set(bucket_names(BOUNDS))


def test_a_pod_with_three_buckets_in_use_stays_below_a_thousand_series() -> None:
    assert series_count(3, stages=5) <= 1000
