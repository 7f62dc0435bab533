"""Which policy vllm-router gets: what all prompts share is no reason to send them all to one replica."""

import json

import pytest

from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.routing import FEW, MANY, MOST_THRESHOLD, choose_routing, followers
from firsttoken.planning.types import Routing
from planning.load.cases import shape
from planning.specs import QWEN_7B, planned, reason, service

ANSWERS = shape((1150, 1500), (400, 500), 448)
CHAT = shape((1024, 4096), (128, 451), 256)
PREFIX = shape((500, 500), (100, 100), 400)  # next to nothing is a prompt's own


def test_without_a_shared_prefix_the_routers_own_threshold_stands() -> None:
    assert choose_routing(shape((1469, 7315), (13, 90))) == Routing()
    assert choose_routing(shape((8000, 16000), (100, 200), 256)) == Routing(), "hardly any prompt is as short as that"


def test_a_prefix_that_all_prompts_share_is_not_followed() -> None:
    found = choose_routing(ANSWERS)
    assert (found.policy, found.cache_threshold) == ("cache_aware", 0.55)
    assert followers(ANSWERS, Routing()) > 0.9
    assert followers(ANSWERS, found) <= FEW
    # The least such threshold: longer beginnings stay followed.
    assert followers(ANSWERS, Routing("cache_aware", 0.5)) > FEW


def test_conversations_are_followed_as_far_as_that_goes() -> None:
    found = choose_routing(CHAT)
    assert (found.policy, found.cache_threshold) == ("cache_aware", MOST_THRESHOLD)
    assert FEW < followers(CHAT, found) <= MANY


def test_prompts_that_are_mostly_shared_go_to_the_smaller_load_of_two() -> None:
    assert choose_routing(PREFIX).policy == "power_of_two"
    assert followers(PREFIX, choose_routing(PREFIX)) == 0


@pytest.mark.parametrize("threshold", [0.25, 0.5, 0.8])
def test_a_prompt_of_just_the_threshold_does_not_follow(threshold: float) -> None:
    """vllm-router asks for more than the threshold."""
    length = round(400 / threshold)
    assert followers(shape((length, length), (9, 9), 400), Routing("cache_aware", threshold)) == 0
    assert followers(shape((length - 1, length - 1), (9, 9), 400), Routing("cache_aware", threshold)) == 1


def test_the_plan_says_why_and_what_came_second() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": "KnowledgeQA"}))
    assert plan.routing == Routing("cache_aware", 0.55)
    said = reason(plan, "RoutingPolicy")
    assert "share their first 448 tokens" in said
    assert "power_of_two came second" in said


def test_a_plan_without_a_router_says_nothing_of_it() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 1, workload={"profile": "KnowledgeQA"}))
    assert not plan.router
    assert "routing" not in plan_to_json(plan)
    assert not [r for r in plan.reasons if r.code == "RoutingPolicy"]


def test_an_older_plan_is_routed_as_it_was_rendered() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": "KnowledgeQA"}))
    wire = json.loads(json.dumps(plan_to_json(plan)))
    assert plan_from_json(wire).routing == plan.routing
    del wire["routing"]
    assert plan_from_json(wire).routing == Routing()
