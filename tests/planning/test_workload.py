"""Profiles (M7), maximum model lengths, bucket names."""

import pytest

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service_inputs import Profile, WorkloadSpec
from firsttoken.planning.workload import bucket_names, default_slos, resolve
from planning.specs import FALCON_7B, QWEN_7B, planned, reason, refused, service


@pytest.mark.parametrize("profile", list(Profile))
def test_every_profile_has_targets_for_ttft_and_tpot(profile: Profile) -> None:
    slos = default_slos(profile)
    assert {s.metric for s in slos} == {"TTFT", "TPOT"}
    assert all(duration_seconds(s.target) > 0 for s in slos)


@pytest.mark.parametrize("profile", list(Profile))
def test_profile_lengths_are_in_order(profile: Profile) -> None:
    work = resolve(WorkloadSpec(profile=profile))
    assert work.prompt.p50 <= work.prompt.p95
    assert work.output.p50 <= work.output.p95
    assert work.shared_prefix <= work.prompt.p50


def test_what_the_spec_names_wins_over_the_profile() -> None:
    work = resolve(
        WorkloadSpec.model_validate(
            {"profile": "Summarization", "promptTokens": {"p50": 100, "p95": 200}, "sharedPrefixTokens": 64}
        )
    )
    assert (work.prompt.p95, work.output.p95, work.shared_prefix) == (200, 400, 64)
    assert work.prefix_caching  # a named shared prefix is worth caching in any profile


def test_a_default_shared_prefix_is_no_longer_than_named_prompts() -> None:
    work = resolve(WorkloadSpec.model_validate({"profile": "Chat", "promptTokens": {"p50": 20, "p95": 40}}))
    assert work.shared_prefix == 20


def test_bucket_names() -> None:
    assert bucket_names([64, 256, 512, 1024, 4096, 16384]) == (
        "0-64", "64-256", "256-512", "512-1024", "1024-4096", "4096-16384", "16384+",
    )  # fmt: skip
    assert bucket_names([8]) == ("0-8", "8+")


LONG_PROMPTS = {"promptTokens": {"p50": 10_000, "p95": 16_000}, "outputTokens": {"p50": 100, "p95": 384}}


def test_maximum_length_follows_from_the_workload_with_headroom() -> None:
    work = {"promptTokens": {"p50": 800, "p95": 1000}, "outputTokens": {"p50": 100, "p95": 200}}
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 1, workload=work))
    assert plan.max_model_length == 2560  # twice 1200, rounded up to 256
    assert "1200" in reason(plan, "MaxModelLength")


def test_lengths_of_the_profile_are_not_passed_off_as_the_user_s() -> None:
    def sentences(**workload: object) -> list[str]:
        plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": "Chat", **workload}))
        return [reason(plan, code) for code in ("MaxModelLength", "MaxNumSeqs", "PrefixCaching")]

    lengths = {"p50": 500, "p95": 1000}
    note = "assumed for profile Chat"
    assert all(f", {note}" in text for text in sentences())
    assert not any(
        note in text for text in sentences(promptTokens=lengths, outputTokens=lengths, sharedPrefixTokens=64)
    )
    longest, running, _ = sentences(promptTokens=lengths)
    assert f"output {note}" in longest
    assert f"P95, output {note}" in running
    assert all(f"prompt {note}" in text for text in sentences(outputTokens=lengths)[:2])


def test_a_prefill_role_names_the_prompt_only() -> None:
    work = {"promptTokens": {"p50": 500, "p95": 1000}}
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload=work, layout={"mode": "Disaggregated"}))
    prefill, decode = reason(plan, "MaxNumSeqs").split(" | ")
    assert "assumed" not in prefill
    assert "output assumed" in decode


def test_maximum_length_of_the_spec_is_taken_as_it_is() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 1, model={"maxModelLength": 3000}))
    assert plan.max_model_length == 3000
    assert plan.roles[0].engine_args["max-model-len"] == "3000"


def test_headroom_is_given_up_before_the_plan_is() -> None:
    plan = planned(service("hf://Qwen/Qwen3-8B", "nvidia-l4", 1, workload=LONG_PROMPTS))
    assert plan.max_model_length == 16_384
    assert "memory leaves no room" in reason(plan, "MaxModelLength")


def test_profile_lengths_are_cut_to_a_short_model() -> None:
    plan = planned(service(FALCON_7B, "nvidia-a100-40gb", 1, workload={"profile": "Summarization"}))
    assert plan.max_model_length == 2048
    assert "cut" in reason(plan, "WorkloadCapped")


def test_named_lengths_beyond_the_model_are_infeasible() -> None:
    work = {"promptTokens": {"p50": 1000, "p95": 4000}, "outputTokens": {"p50": 100, "p95": 200}}
    refusal = refused(service(FALCON_7B, "nvidia-a100-40gb", 1, workload=work))
    assert refusal.constraint == "ModelLength"
    assert refusal.nearest == {"spec.workload.promptTokens.p95": 1848}


def test_named_lengths_beyond_the_given_maximum_name_the_one_needed() -> None:
    work = {"promptTokens": {"p50": 1000, "p95": 4000}, "outputTokens": {"p50": 100, "p95": 200}}
    refusal = refused(service(QWEN_7B, "nvidia-a100-40gb", 1, model={"maxModelLength": 4096}, workload=work))
    assert refusal.nearest == {"spec.model.maxModelLength": 4200}


def test_a_maximum_beyond_the_model_is_infeasible() -> None:
    refusal = refused(service(FALCON_7B, "nvidia-a100-40gb", 1, model={"maxModelLength": 4096}))
    assert (refusal.constraint, refusal.nearest) == ("ModelLength", {"spec.model.maxModelLength": 2048})


def test_prompts_beyond_the_chosen_maximum_are_not_predicted() -> None:
    plan = planned(service("hf://Qwen/Qwen3-8B", "nvidia-l4", 1, workload=LONG_PROMPTS))
    assert plan.max_model_length == 16_384, "without headroom: 2 x P95 does not fit"
    assert plan.prediction is not None
    assert "16384+" not in plan.prediction.by_prompt_tokens, "vLLM answers 400 to such a prompt"
    named = {"maxModelLength": 16_384}
    same = planned(service("hf://Qwen/Qwen3-8B", "nvidia-l4", 1, workload=LONG_PROMPTS, model=named))
    assert plan.prediction == same.prediction, "the same engine, whoever chose its maximum"
    assert plan.roles[0].capacity == same.roles[0].capacity
