"""Drawn workloads: that they are what was asked for, and the same each time."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.api.service_inputs import WorkloadSpec
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.workload import resolve
from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.workload import (
    Between,
    Given,
    Lengths,
    LogNormal,
    SharedPrefixes,
    Workload,
    cut_outputs,
    service_workload,
)

CHAT = Workload(LogNormal(1024, 4096, 9000), LogNormal(128, 451, 9000), Arrivals(5.0), SharedPrefixes(256, 10))


def contents(work: Requests) -> list[bytes]:
    return [value.tobytes() for value in vars(work).values() if isinstance(value, np.ndarray)]


@given(st.integers(0, 2**63))
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    assert contents(CHAT.requests(seed, count=50)) == contents(CHAT.requests(seed, count=50))
    assert contents(CHAT.requests(seed, count=50)) != contents(CHAT.requests(seed + 1, count=50))


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = CHAT.requests(3, seconds=20), CHAT.requests(3, seconds=500)
    assert 0 < len(short) < len(long)
    assert contents(short)[:2] == contents(long.take(np.arange(len(short))))[:2]


@pytest.mark.parametrize(
    ("lengths", "p50", "p95"),
    [
        (LogNormal(1024, 4096), 1024, 4096),
        (LogNormal(100, 400, 300), 100, 300),
        (LogNormal(700, 700), 700, 700),
        (Between(11, 110), 60, 105),
        (Given([5, 5, 5, 9]), 5, 9),
    ],
)
def test_lengths_have_their_percentiles(lengths: Lengths, p50: int, p95: int) -> None:
    drawn = lengths.draw(200_000, np.random.Generator(np.random.PCG64(1)))
    assert np.quantile(drawn, [0.5, 0.95]) == pytest.approx([p50, p95], rel=0.02)
    assert drawn.min() >= 1


def test_the_mean_is_that_of_the_planner() -> None:
    drawn = LogNormal(1024, 4096, 9000).draw(400_000, np.random.Generator(np.random.PCG64(1)))
    assert drawn.mean() == pytest.approx(LengthDistribution(1024, 4096, 9000).mean, rel=0.01)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_vary_as_the_burstiness_says(burstiness: float) -> None:
    gaps = np.diff(Arrivals(20.0, burstiness).first(200_000, np.random.Generator(np.random.PCG64(2))))
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.02)


def test_the_rate_follows_the_day() -> None:
    """Rate r (1 + s cos(2 pi (t - peak) / period)): over the quarter around the peak, 1 + s sin(pi / 4) / (pi / 4)."""
    day = Arrivals(50.0, swing=0.6, period=1000.0, peak=300.0)
    times = day.within(4000.0, np.random.Generator(np.random.PCG64(3))) % 1000
    assert len(times) == pytest.approx(200_000, rel=0.01)
    for middle, sign in ((300, 1), (800, -1)):
        near = (np.abs(times - middle) < 125).sum() / len(times)
        assert near == pytest.approx(0.25 * (1 + sign * 0.6 * math.sin(math.pi / 4) / (math.pi / 4)), rel=0.02)


def test_prefixes_are_used_by_popularity() -> None:
    work = Workload(Between(200, 200), Between(1, 1), None, SharedPrefixes(100, 4, zipf=1.0, share=0.5))
    found = work.requests(4, count=100_000)
    sizes = np.diff(found.hash_offsets)
    assert set(sizes.tolist()) == {0, 6}
    assert (sizes > 0).mean() == pytest.approx(0.5, abs=0.01)
    kinds = found.hashes[found.hash_offsets[:-1][sizes > 0]] // 6
    shares = np.bincount(kinds, minlength=4) / len(kinds)
    assert shares == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.01)
    assert found.hashes[:6].tolist() == list(range(int(found.hashes[0]), int(found.hashes[0]) + 6))


def test_a_short_prompt_shares_only_what_it_has() -> None:
    work = Workload(Between(40, 40), Between(1, 1), None, SharedPrefixes(100, 3)).requests(1, count=10)
    assert (np.diff(work.hash_offsets) == 2).all()


def test_a_services_workload_is_its_spec() -> None:
    spec = WorkloadSpec.model_validate({"profile": "KnowledgeQA", "requestsPerSecond": 7})
    work = service_workload(resolve(spec), 2048)
    assert work == Workload(
        LogNormal(1150, 1500, 2047), LogNormal(400, 500, 2047), Arrivals(7.0), SharedPrefixes(448)
    )  # fmt: skip
    assert service_workload(resolve(spec), 2048, requests_per_second=9).arrivals == Arrivals(9.0)
    with pytest.raises(SimulationInputError, match="requestsPerSecond is missing"):
        service_workload(resolve(WorkloadSpec.model_validate({"profile": "Chat"})), 2048)


def test_outputs_end_at_the_maximum_model_length() -> None:
    found = cut_outputs(Workload(Between(90, 110), Between(50, 50)).requests(1, count=200), 120)
    assert (found.output_tokens == np.maximum(1, 120 - found.prompt_tokens)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogNormal(10, 5), "give 1 <= P50 <= P95"),
        (lambda: Between(0, 5), "give 1 <= low <= high"),
        (lambda: Given([]), "at least one"),
        (lambda: SharedPrefixes(10, 0), "count >= 1"),
        (lambda: Arrivals(0), "requests_per_second is 0: give a number above 0"),
        (lambda: Arrivals(1, swing=1), "swing is 1: give a part of the rate"),
        (lambda: CHAT.requests(1), "a workload needs a count of requests, or arrivals and seconds"),
        (lambda: CHAT.requests(-1, count=1), "seed is -1: give a whole number from 0 on"),
    ],
)
def test_bad_workloads_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SimulationInputError, match=message):
        make()
