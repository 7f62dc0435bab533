"""Demand: what of a workload is prefilled and decoded."""

import pytest

from firsttoken.api.service_inputs import Profile, WorkloadSpec
from firsttoken.planning.load.demand import request_shape
from firsttoken.planning.workload import resolve
from planning.load.cases import CHAT, shape


def test_a_shared_prefix_is_cached_in_whole_blocks() -> None:
    work = resolve(WorkloadSpec.model_validate({"profile": "Chat", "sharedPrefixTokens": 250}))
    assert request_shape(work, 8192).cached_tokens == 240
    assert request_shape(work, 8192, prefix_caching=False).cached_tokens == 0
    larger = request_shape(work, 8192, block=128)
    assert (larger.cached_tokens, larger.prompt_class(1.0, 128).cached, larger.prompt_class(1.0, 129).cached) == (
        128,
        0,
        128,
    )


def test_without_a_shared_prefix_nothing_is_cached() -> None:
    assert request_shape(resolve(WorkloadSpec(profile=Profile.SUMMARIZATION)), 32768).cached_tokens == 0


@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (16, 0), (17, 16), (256, 240), (257, 256), (1000, 256)])
def test_the_last_token_is_always_computed(tokens: int, cached: int) -> None:
    """vLLM takes no more blocks from the cache than leave one token to compute."""
    prompt = CHAT.prompt_class(1.0, tokens)
    assert prompt.cached == cached
    assert prompt.uncached >= 1


def test_lengths_end_at_the_maximum_model_length() -> None:
    work = resolve(WorkloadSpec(profile=Profile.CHAT))
    limited = request_shape(work, 2048)
    assert max(c.tokens for c in limited.prompt_classes) <= 2047


def test_running_requests_are_longer_than_the_average_one() -> None:
    """Inspection paradox: at a random moment a long request is more likely to be there."""
    fixed, mixed = shape((1000, 1000), (200, 200)), shape((1000, 1000), (200, 900))
    assert fixed.context == pytest.approx(1000 + 100)
    assert mixed.context > 1000 + mixed.outputs.mean / 2
    assert CHAT.longest_context(100) > CHAT.longest_context(2) > CHAT.context
