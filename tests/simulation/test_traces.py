"""Trace files: the forms that are known, and what is said about a bad line."""

from itertools import pairwise

import numpy as np
import pytest

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.traces import EXCERPTS, excerpt, read_trace
from simulation.cases import TABLE

AZURE = [
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
]
MOONCAKE = [
    '{"timestamp": 500, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}',
    '{"timestamp": 1500, "input_length": 512, "output_length": 6, "hash_ids": [0]}',
]
OURS = ["arrival,prompt_tokens,output_tokens,priority,block_hashes", "1.5,40,3,-1,7 8", "", "1.0,20,2,,"]


def test_azure_times_are_clock_times() -> None:
    found = read_trace(AZURE, "a.csv")
    assert found.arrival.tolist() == pytest.approx([0, 4.314579])
    assert found.prompt_tokens.tolist() == [374, 396]
    assert found.output_tokens.tolist() == [44, 109]
    assert not len(found.hashes)


def test_mooncake_times_are_milliseconds_and_blocks_have_512_tokens() -> None:
    found = read_trace(MOONCAKE, "m.jsonl")
    assert found.arrival.tolist() == [0.0, 1.0]
    assert found.hash_tokens == 512
    assert found.hashes.tolist() == [0, 1, 0]


def test_our_own_form_is_sorted_and_may_say_priority_and_hashes() -> None:
    found = read_trace(OURS, "o.csv", hash_tokens=32)
    assert found.arrival.tolist() == [0.0, 0.5]
    assert found.priority.tolist() == [0, -1]
    assert found.hashes.tolist() == [7, 8]
    assert found.hash_tokens == 32


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "t: the trace is empty"),
        (AZURE[:1], "t: the trace is empty"),
        ([*AZURE, "yesterday,1,1"], "t:4: TIMESTAMP is 'yesterday': no time"),
        ([*AZURE, "2023-11-16 18:15:50,1"], "t:4: 2 cells where the header has 3"),
        ([*AZURE, "2023-11-16 18:15:50,0,1"], "t:4: ContextTokens is '0': give a whole number from 1"),
        ([*AZURE, "2023-11-16 18:15:50,1.5,1"], "t:4: ContextTokens is '1.5': give a whole number"),
        ([*AZURE, "2023-11-16 18:15:50,,1"], "t:4: ContextTokens is missing"),
        (["time,tokens", "1,2"], "t:2: columns time, tokens are of no known trace: rename them .Azure 2023: TIMESTAMP"),
        ([*MOONCAKE, '{"timestamp": 1'], "t:3: no JSON object"),
        ([*MOONCAKE, '{"timestamp": 1, "input_length": 5}'], "t:3: output_length is missing"),
        ([MOONCAKE[0].replace("[0, 1]", "3")], "t:1: hash_ids is 3: give a list of whole numbers"),
        ([MOONCAKE[0].replace("[0, 1]", '["a"]')], "t:1: hash_ids is 'a': give a whole number"),
        ([OURS[0], "nan,1,1,,"], "t:2: arrival is 'nan': no time"),
        ([OURS[0], "0,1,1,,", "1e10,1,1,,"], "t:3: arrival is 1e.10 s after the first request: .* at most ten years"),
        ([OURS[0], "1e15,1,1,,", "0,1,1,,"], "t:2: arrival is '1e15': too large; check the column's unit"),
        ([MOONCAKE[0].replace("500", "true")], "t:1: timestamp is True: no time"),
        ([*AZURE, "2023-11-16 18:15:50+02:00,1,1"], "t:4: TIMESTAMP has an offset from UTC, unlike that of line 2"),
        (
            [AZURE[0], "2023-11-16T18:15:50Z,1,1", AZURE[1]],
            "t:3: TIMESTAMP has no offset from UTC, unlike that of line 2",
        ),
        ([OURS[0], f"1,{'9' * 140_000},1,,"], "t:2: no CSV: field larger than field limit"),
        ([OURS[0], f"1,{'9' * 5000},1,,"], "t:2: prompt_tokens is '9{60}'…: give a whole number"),
        ([OURS[0], f"{'x' * 5000},1,1,,"], "t:2: arrival is 'x{60}'…: no time"),
        ([MOONCAKE[0].replace("600", "1" * 5000)], "t:1: no JSON object: a number has too many digits"),
        ([MOONCAKE[0].replace("600", "1" * 400)], "t:1: input_length is 1{62}…: give a whole number"),
        ([MOONCAKE[0].replace("600", "[" * 100_000)], "t:1: no JSON object: nested too deep"),
        ([MOONCAKE[0].replace("600", "[" * 500 + "]" * 500)], "t:1: input_length is a list or an object: give a whole"),
        ([MOONCAKE[0].replace("500", "[[]]")], "t:1: timestamp is a list or an object: no time"),
        (["[" + MOONCAKE[0] + ",", MOONCAKE[1] + "]"], "t:1: a JSON list: write one object a line instead"),
        ([*MOONCAKE, "timestamp,input_length,output_length"], "t:3: no JSON object"),
        ([*MOONCAKE, "[1]"], "t:3: no JSON object: write one on every line"),
        ([*AZURE, MOONCAKE[0]], "t:4: 5 cells where the header has 3"),
        ([OURS[0] + ",arrival", "1,1,1,,,1"], "t:1: column 'arrival' is there twice"),
        ([MOONCAKE[0].replace("input_length", "timestamp")], "t:1: column 'timestamp' is there twice"),
        ([OURS[0].replace("arrival", "a" * 5000), "1,1,1,,"], "t:2: columns a{120}… are of no known trace"),
        (
            [*MOONCAKE, MOONCAKE[0].replace("[0, 1]", "[1]")],
            "t:3: hash_ids has 1 as block 1, and in line 1 it is block 2",
        ),
        ([MOONCAKE[0].replace("[0, 1]", "[7, 7]")], "t:1: hash_ids has 7 as block 2, and in line 1 it is block 1"),
        (
            [*MOONCAKE, MOONCAKE[1].replace("[0]", "[0, 1]")],
            "t:3: hash_ids has 2 blocks: 512 prompt tokens are 1 blocks",
        ),
        ([OURS[0], "1,1,1,900,"], "t:2: priority is '900': give a whole number from -128 to 127"),
    ],
)
def test_the_first_bad_line_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(SimulationInputError, match=message) as refused:
        read_trace(lines, "t")
    assert "\n" not in str(refused.value)


def test_offsets_from_utc_count() -> None:
    one_moment = ["2023-11-16T18:15:50+00:00,1,1", "2023-11-16T20:15:51+02:00,1,1", "2023-11-16T18:15:52Z,1,1"]
    assert read_trace([AZURE[0], *one_moment], "t").arrival.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("name", EXCERPTS)
def test_excerpts_ship_and_can_be_played(name: str) -> None:
    work = excerpt(name)
    assert len(work) == 1000
    assert all(a <= b for a, b in pairwise(work.arrival.tolist()))
    outcome = FastEngine(work, EngineSettings(512, 32, 20_000), TABLE).run()
    assert outcome.totals.finished == 1000
    assert (outcome.cached.sum() > 0) == bool(len(work.hashes))


def test_a_larger_cache_finds_no_less_of_mooncakes_prefixes() -> None:
    """Each request is served before the next comes, so nothing but the size of the cache decides."""
    work = excerpt(EXCERPTS[2])
    alone = type(work)(**{**vars(work), "arrival": np.arange(len(work)) * 1e4})
    sizes = (10_000, 100_000, 1_000_000)
    hits = [FastEngine(alone, EngineSettings(512, 1, size), TABLE).run().cached.sum() for size in sizes]
    assert hits[0] < hits[1] <= hits[2]
    # With room for everything, a block is computed once, unless it is not full or ends its prompt.
    seen: set[int] = set()
    expected = 0
    for i, prompt in enumerate(work.prompt_tokens.tolist()):
        blocks = work.hashes[work.hash_offsets[i] : work.hash_offsets[i + 1]].tolist()
        known = next((j for j, block in enumerate(blocks) if block not in seen), len(blocks))
        expected += min(known * 512, (prompt - 1) // 16 * 16)
        seen.update(blocks)
    assert hits[2] == expected
