"""Columns of requests and settings of engines: what is sorted, and what is refused, in one line."""

import math
from typing import Any

import numpy as np
import pytest

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import requests
from firsttoken.simulation.settings import EngineSettings, Stages
from simulation.cases import TABLE


def test_requests_are_sorted_by_arrival_with_their_hashes() -> None:
    found = requests(
        [2.0, 0.5, 2.0], [40, 20, 50], [1, 2, 3], priority=[0, 1, -1], block_hashes=[[7, 8], [], [7, 9, 9]]
    )
    assert found.arrival.tolist() == [0.5, 2.0, 2.0]
    assert found.prompt_tokens.tolist() == [20, 40, 50]
    assert found.priority.tolist() == [1, 0, -1]
    assert found.hash_offsets.tolist() == [0, 0, 2, 5]
    assert found.hashes.tolist() == [7, 8, 7, 9, 9]
    numbers, kinds = found.dense_hashes()
    assert (numbers.tolist(), kinds.tolist()) == ([0, 1, 0, 2, 2], [7, 8, 9])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arrival": [0.0, float("nan")]}, "arrival of request 1 is nan: give seconds from 0 on"),
        ({"arrival": [0.0, -1.0]}, "arrival of request 1 is -1.0: give seconds from 0 on"),
        ({"arrival": ["x", 1]}, "arrival must be numbers: could not convert string to float"),
        ({"prompt_tokens": [1, 0]}, "prompt_tokens of request 1 is 0: give 1 to 16777216 tokens"),
        ({"output_tokens": [2**40, 1]}, "output_tokens of request 0 is 1099511627776"),
        ({"output_tokens": [1, 2, 3]}, r"output_tokens has shape \(3,\): give one value for each of 2 requests"),
        ({"priority": [0, 300]}, "priority must be a whole number from -128 to 127"),
        ({"block_hashes": [[1]]}, "block_hashes has 1 lists: give one for each of 2 requests"),
        (
            {"block_hashes": [[1, 2, 3], []]},
            "block_hashes of request 0 has 3 blocks: 20 prompt tokens are 2 blocks of 16",
        ),
        ({"block_hashes": [[], []], "hash_tokens": 0}, "hash_tokens is 0: give the tokens of a hashed block"),
    ],
)
def test_bad_columns_are_named(columns: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"arrival": [0.0, 1.0], "prompt_tokens": [20, 20], "output_tokens": [1, 1]}
    with pytest.raises(SimulationInputError, match=message) as refused:
        requests(**{**good, **columns})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_budget": 0}, "token_budget is 0: give 1 or more"),
        ({"decode_cap": -1}, "decode_cap is -1: give 0"),
        ({"prefill_share": 1.0}, "prefill_share is 1.0: give a part of 1"),
        ({"reserved_tokens": 10_000}, r"reserved_tokens is 10000, more than the KV cache holds \(1600 tokens\)"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"token_budget": 512, "max_num_seqs": 8, "kv_blocks": 100}
    with pytest.raises(SimulationInputError, match=message):
        EngineSettings(**{**good, **changes})


@pytest.mark.parametrize(
    ("changes", "prompt", "message"),
    [
        ({}, 1600, r"request 1 has 1600 \+ 2 tokens, more than a request's KV may take \(1600\)"),
        ({"reserved_tokens": 320}, 320, r"more than a request's KV may take \(320\)"),
        ({"chunked_prefill": False}, 512, r"request 1 has 512 \+ 2 tokens and must fit into one step of 512"),
    ],
)
def test_what_could_never_be_served_is_refused(changes: dict[str, Any], prompt: int, message: str) -> None:
    settings = EngineSettings(512, 8, 100, **changes)
    FastEngine(requests([0.0, 0.0], [1, prompt - 1], [1, 2]), settings, TABLE).run()
    with pytest.raises(SimulationInputError, match=message):
        FastEngine(requests([0.0, 0.0], [1, prompt], [1, 2]), settings, TABLE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"token_budget": 513},
            r"token_budget 513 and max_num_seqs 8 exceed the step table \(512 tokens, 32 requests\)",
        ),
        ({"max_num_seqs": 33}, "make a larger table"),
        ({"bins": 63}, "63 bins of 1.0 s: give an even number of bins"),
        ({"bin_seconds": 0.0}, "and seconds above 0"),
        ({"clients": 0}, "a closed loop of 0 clients"),
        ({"think_seconds": math.nan}, "think for nan s"),
        ({"delivery_seconds": -1.0}, "delivery_seconds is -1.0: give seconds from 0 on"),
    ],
)
def test_sizes_and_times_are_checked(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"token_budget": 512, "max_num_seqs": 8, "bins": 64, "bin_seconds": 1.0, "clients": 1}
    given |= {"think_seconds": 0.0, "delivery_seconds": 0.0, **changes}
    with pytest.raises(SimulationInputError, match=message):  # noqa: PT012  # any of three places refuses
        stages = Stages(delivery_seconds=given["delivery_seconds"])
        settings = EngineSettings(given["token_budget"], given["max_num_seqs"], 100, stages=stages)
        engine = FastEngine(
            requests([0.0], [1], [1]), settings, TABLE, bins=given["bins"], bin_seconds=given["bin_seconds"]
        )
        engine.run_closed(given["clients"], given["think_seconds"])


def test_hashes_must_be_of_whole_kv_blocks() -> None:
    work = requests([0.0], [100], [1], block_hashes=[[1]], hash_tokens=24)
    with pytest.raises(SimulationInputError, match=r"hash_tokens is 24, no multiple of block_tokens \(16\)"):
        FastEngine(work, EngineSettings(512, 8, 100), TABLE)


def test_the_prefill_share_bounds_running_requests() -> None:
    assert EngineSettings(512, 400, 100, prefill_share=0.5).most_running == 256
    assert EngineSettings(512, 400, 100, prefill_share=0.5, decode_cap=64).most_running == 64
    assert EngineSettings(512, 400, 100).most_running == 400


def test_no_requests_take_no_time() -> None:
    totals = FastEngine(requests([], [], []), EngineSettings(512, 8, 100), TABLE).run().totals
    assert (totals.steps, totals.finished, totals.busy) == (0, 0, 0)
    assert np.isfinite(totals.end)
