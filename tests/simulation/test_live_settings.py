"""settings.json as an engine takes it: who is in a trial, what is clamped, what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.api.service import InferenceService
from firsttoken.manifests.environment import SETTINGS_KEY
from firsttoken.manifests.live import live_config_map
from firsttoken.planning.types import LiveSettings
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.live_settings import SMALLEST_CHUNK, LiveValues, applied, read_live
from firsttoken.simulation.settings import EngineSettings

START = EngineSettings(token_budget=2048, max_num_seqs=256, kv_blocks=1000)
VALUES = {"tokenBudget": 512, "decodeCap": 64, "longPrefillThreshold": 0}


def content(**changed: Any) -> str:
    return json.dumps({"generation": 7, "default": VALUES, "trial": None, **changed})


def test_what_the_operator_writes_is_read() -> None:
    service = InferenceService.model_validate(
        {
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {"model": {"uri": "hf://a/b"}, "accelerator": {"type": "cpu"}},
        }
    )
    written = live_config_map(service, "a-12345678", LiveSettings(512, 64, 32), generation=3)
    assert read_live(written["data"][SETTINGS_KEY], "uid") == LiveValues(3, 512, 64, 32)


def test_a_trial_is_for_its_pods_only() -> None:
    text = content(trial={"podUIDs": ["one"], "settings": {**VALUES, "tokenBudget": 256}})
    assert read_live(text, "one").token_budget == 256
    assert read_live(text, "two").token_budget == 512


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "null", content(default=None), content(generation="7"),
        content(default={**VALUES, "tokenBudget": 0}),
        content(default={**VALUES, "decodeCap": -1}), content(default={"tokenBudget": 1}),
        "[" * 100_000, content(generation=10**400), " " * (2**20 + 1), content(generation=2**31),
        content(trial={"podUIDs": "my uid", "settings": VALUES}),
        content(trial={"podUIDs": ["uid"]}), content(default={**VALUES, "tokenBudget": 0.5}),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(text: str) -> None:
    says = r"settings\.json can't be used.*what was applied before stays"
    with pytest.raises(SimulationInputError, match=says) as refused:
        read_live(text, "uid")
    assert len(str(refused.value)) < 300


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 4096), st.integers(1, 512))
def test_the_budget_stays_between_the_start_and_room_for_a_chunk(budget: int, cap: int, start: int, seqs: int) -> None:
    began = EngineSettings(token_budget=start, max_num_seqs=min(seqs, start), kv_blocks=1000)
    found = applied(LiveValues(1, budget, cap, 0), began)
    assert found.token_budget <= start
    assert 1 <= found.most_running <= began.max_num_seqs
    assert found.token_budget >= min(found.decode_cap + SMALLEST_CHUNK, start)
    if cap + SMALLEST_CHUNK <= budget <= start and 0 < cap <= began.max_num_seqs:
        assert (found.token_budget, found.decode_cap) == (budget, cap)


def test_who_only_decodes_keeps_its_budget() -> None:
    assert applied(LiveValues(1, 128, 8, 64), START, computes=False).token_budget == START.token_budget
