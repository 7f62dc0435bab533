"""Promises against what is possible and what is predicted, and what is offered instead of a refusal."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.load.goodput import Target, largest_rate, missed_when_idle
from firsttoken.planning.nearest import in_words, with_value
from firsttoken.planning.plan import make_plan
from firsttoken.planning.timing.efficiency import table
from firsttoken.planning.types import Infeasible, Plan
from planning.load.cases import CHAT, SMALL
from planning.specs import DEEPSEEK, FALCON_7B, LLAMA_70B, MPT_7B, QWEN_7B, TINY, planned, reason, refused, service

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"


def slo(metric: str, target: str, bucket: str = "all", percentile: int = 95) -> dict[str, Any]:
    return {"metric": metric, "percentile": percentile, "promptTokens": bucket, "target": target}


def within(level: str) -> str:
    """How a plan says how far the times of both phases may be off."""
    widths = table()["intervals"][level]
    return f"+-{100 * widths['prefill']:.0f} % in TTFT and +-{100 * widths['decode']:.0f} % in TPOT"


UNMEASURED = within("unmeasured")


def missed(plan: Plan) -> list[str]:
    return [r.message for r in plan.reasons if r.code == "SLOMissed"]


def test_every_promise_that_an_idle_replica_breaks_is_named_the_worst_ratio_first() -> None:
    """TTFT is missed by more seconds, TPOT by a larger ratio: seconds of both are not of one size."""
    slos = [slo("TTFT", "110ms"), slo("TPOT", "5.5ms"), slo("TTFT", "30s", "16384+")]
    found = missed(planned(service(LLAMA_8B, "nvidia-h100-80gb", 1, slos=slos)))
    assert [text.partition(":")[0] for text in found] == ["TPOT P95 within 5.5 ms", "TTFT P95 within 110 ms"]
    assert all("even for an idle replica" in text for text in found)


@pytest.mark.parametrize(("ttft", "tpot", "worst"), [(0.030, 0.001, "TPOT"), (0.001, 0.015, "TTFT")])
def test_shapes_are_compared_by_the_worst_ratio_of_what_is_predicted_to_what_was_promised(
    ttft: float, tpot: float, worst: str
) -> None:
    """TTFT is the longer time in both cases."""
    targets = (Target("TTFT", 95, ttft), Target("TPOT", 95, tpot))
    found = largest_rate(SMALL.load(CHAT), targets)
    ratios = {t.metric: seconds / t.seconds for t, seconds in missed_when_idle(SMALL.load(CHAT), targets)}
    assert len(ratios) == 2
    assert found.binding is not None
    assert found.binding.metric == worst == next(iter(ratios))
    assert found.missed_by == pytest.approx(max(ratios.values()))


def test_a_promise_that_breaks_at_the_rate_is_named_with_what_is_predicted_there() -> None:
    work = {"profile": "KnowledgeQA", "requestsPerSecond": 50}
    slos = [slo("TTFT", "1200ms"), slo("TPOT", "500ms")]
    found = missed(planned(service(QWEN_7B, "nvidia-a100-40gb", 1, workload=work, slos=slos)))
    assert len(found) == 1, "TPOT holds however long the queue is"
    assert found[0].startswith("TTFT P95 within 1.2 s: ")
    assert found[0].endswith("is predicted at 50 requests/s")
    enough = planned(service(QWEN_7B, "nvidia-a100-40gb", 16, workload=work, slos=slos))
    assert not missed(enough)


def test_a_promise_of_prompts_that_can_not_come_is_kept() -> None:
    """The longest prompt here is below 16384 tokens."""
    plan = planned(service(QWEN_7B, "nvidia-l4", 1, slos=[slo("TTFT", "1ms", "16384+")]))
    assert plan.max_model_length < 16_384
    assert not missed(plan)


@pytest.mark.parametrize(("metric", "target"), [("TTFT", "5ms"), ("TPOT", "1ms")])
def test_a_promise_below_the_physical_floor_is_refused_with_the_floor(metric: str, target: str) -> None:
    slos = [slo(metric, target)]
    refusal = refused(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos))
    assert refusal.constraint == "SLO"
    assert "data-sheet peaks" in refusal.message
    floor, kept = re.findall(r"less than (\d+ms) is ruled out, (\d+ms) is predicted to be kept", refusal.message)[0]
    assert refusal.nearest["spec.slos[0].target"] == kept
    least, offered = (
        planned(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=[{**slos[0], "target": t}])) for t in (floor, kept)
    )
    assert missed(least), "possible by the data sheet, and predicted to be missed"
    assert not missed(offered), "what is offered is predicted to be kept"
    assert offered.roles[0].keeps_slos


def test_a_promise_that_is_ruled_out_says_for_which_prompt() -> None:
    """The figure follows from a prompt that nobody may have named."""
    slos = [slo("TTFT", "2ms"), slo("TPOT", "1ms"), slo("TTFT", "2ms", "4096-16384")]
    said = refused(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos)).message
    assert "for a prompt of 4096 tokens (P95, assumed for profile Chat), 256 of them cached (assumed for" in said
    assert "for a token after a prompt of 1024 tokens (P50, assumed for profile Chat):" in said
    assert "for a prompt of 4097 tokens (the shortest of the bucket), 256 of them cached" in said
    own = {"promptTokens": {"p50": 2000, "p95": 3000}, "sharedPrefixTokens": 512}
    said = refused(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos[:2], workload=own)).message
    assert "for a prompt of 3000 tokens (P95), 512 of them cached:" in said
    assert "for a token after a prompt of 2000 tokens (P50):" in said
    none = {"profile": "Summarization"}
    said = refused(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos[:1], workload=none)).message
    assert "for a prompt of 16384 tokens (P95, assumed for profile Summarization), none cached:" in said


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({}, "(no replica is to run; 70 % of what one replica would carry)"),
        ({"requestsPerSecond": 5}, "at 5 requests/s (no replica is to run; as if one replica were there)"),
    ],
)
def test_a_prediction_for_no_replica_says_so(workload: dict[str, Any], said: str) -> None:
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, scaling={"replicas": 0}, workload=workload))
    assert plan.roles[0].replicas == 0
    assert said in reason(plan, "Predicted")


def test_the_promise_that_ends_the_rate_is_named_and_only_where_one_does() -> None:
    bound, free = (
        planned(service(QWEN_7B, "nvidia-h100-80gb", 2, slos=[slo("TTFT", target)])) for target in ("200ms", "600s")
    )
    assert reason(bound, "PromisesBind").startswith("TTFT P95 within 200 ms ends the rate of a serve replica at")
    assert "PromisesBind" not in {r.code for r in free.reasons}


def test_all_promises_below_the_floor_are_refused_at_once_with_a_list_that_holds() -> None:
    """To raise one of two would not be enough, so both are named and offered together."""
    slos = [slo("TTFT", "5ms"), slo("TTFT", "10s"), slo("TPOT", "1ms")]
    refusal = refused(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos))
    assert "spec.slos[0]" in refusal.message
    assert "spec.slos[2]" in refusal.message
    assert "spec.slos[1]" not in refusal.message
    offered = refusal.nearest["spec.slos"]
    assert [o["metric"] for o in offered] == ["TTFT", "TTFT", "TPOT"]
    assert offered[1]["target"] == "10s", "what is possible stands"
    assert in_words(offered) in refusal.message


def test_offers_that_are_only_not_ruled_out_are_told_from_those_that_are_predicted_to_be_kept() -> None:
    """FP8 and faster GPUs make 3 ms a token possible by the data sheet; 11 ms are predicted to be kept today."""
    spec = service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=[slo("TPOT", "3ms")])
    refusal = refused(spec)
    doubts = refusal.message.partition("Not ruled out, but predicted to be missed: ")[2].partition(". Feasible")[0]
    plans = {path: make_plan(with_value(spec, path, value), catalogue()) for path, value in refusal.nearest.items()}
    short = {path for path, plan in plans.items() if isinstance(plan, Plan) and missed(plan)}
    assert short
    assert "spec.slos[0].target" not in short
    assert {path for path in plans if f"with {path}: " in doubts} == short


def test_a_faster_gpu_that_keeps_the_promise_is_offered_before_one_that_does_not() -> None:
    """An L40S is the next faster one, and takes longer too."""
    spec = service(LLAMA_8B, "nvidia-l4", 1, slos=[slo("TPOT", "20ms")])
    offered = refused(spec).nearest["spec.accelerator.type"]
    plan, slow = (
        make_plan(with_value(spec, "spec.accelerator.type", gpu), catalogue()) for gpu in (offered, "nvidia-l40s")
    )
    assert isinstance(plan, Plan)
    assert isinstance(slow, Plan)
    assert not missed(plan)
    assert missed(slow)


def test_a_value_is_set_in_a_list() -> None:
    spec = service(LLAMA_8B, "nvidia-h100-80gb", 1, slos=[slo("TTFT", "1s"), slo("TPOT", "50ms")])
    changed = with_value(spec, "spec.slos[1].target", "60ms")
    assert [s.target for s in changed.slos] == ["1s", "60ms"]
    assert [s.target for s in spec.slos] == ["1s", "50ms"]


PROMISES = [slo("TTFT", "2s"), slo("TPOT", "60ms")]
REFUSALS: dict[str, InferenceServiceSpec] = {
    "SLO": service(QWEN_7B, "nvidia-a10", 2, slos=[slo("TPOT", "10ms")]),
    "SLO of a budget": service(LLAMA_70B, "nvidia-h100-80gb", 4, slos=[slo("TPOT", "8ms")]),
    "SLO, several": service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=[slo("TTFT", "5ms"), slo("TPOT", "1ms")]),
    "SLO of a bucket": service(LLAMA_8B, "nvidia-l4", 8, slos=[slo("TTFT", "10ms", "1024-4096")]),
    "Memory": service(LLAMA_70B, "nvidia-a100-40gb", 4, slos=PROMISES),
    # The larger budget and the other formats fit, and what is promised is beyond some of them.
    "Memory and a promise": service(LLAMA_70B, "nvidia-a100-40gb", 4, slos=[slo("TPOT", "10ms")]),
    "MaxCount": service(QWEN_7B, "nvidia-a100-40gb", 2, scaling={"minReplicas": 3}, slos=PROMISES),
    "AcrossNodes": service(DEEPSEEK, "nvidia-h100-80gb", 32, layout={"mode": "Disaggregated"}, slos=PROMISES),
    "PipelineParallel": service(LLAMA_70B, "nvidia-l40s", 16, layout={"mode": "Disaggregated"}, slos=PROMISES),
    "TensorParallel": service(QWEN_7B, "nvidia-a100-40gb", engine={"pins": {"tensorParallel": 3}}, slos=PROMISES),
    "UnknownAccelerator": service(QWEN_7B, "nvidia-a100-40g", 1, slos=[slo("TTFT", "30s")]),
    "UnknownModel": service("hf://somebody/llama-3.1-8b-instruct", "nvidia-l4", 4, slos=[slo("TTFT", "30s")]),
    "ModelLength": service(
        QWEN_7B, "nvidia-a100-80gb", 1, model={"maxModelLength": 400_000}, slos=[slo("TTFT", "30s")]
    ),
    "KVCacheDtype": service("pvc://models/tiny", "cpu", model={"architecture": {"inline": TINY}},
                            engine={"pins": {"kvCacheDtype": "fp8"}}, slos=[slo("TTFT", "30s")]),
    "AttentionBackend": service(MPT_7B, "nvidia-a100-40gb", 1, engine={"pins": {"attentionBackend": "FLEX_ATTENTION"}},
                                slos=[slo("TTFT", "30s")]),
    "TokenBudget": service(QWEN_7B, "nvidia-a100-40gb", 1, slos=[slo("TTFT", "30s")],
                           engine={"pins": {"tokenBudget": 512, "chunkedPrefill": False}}),
    "Quantization": service("pvc://models/qwen2.5-7b", "nvidia-a100-40gb", 1, model={"quantization": "mxfp4",
                            "architecture": {"preset": "qwen2.5-7b"}}, slos=[slo("TTFT", "30s")]),
    "Dtype": service("hf://google/gemma-2-2b-it", "nvidia-t4", 1, slos=[slo("TTFT", "30s")]),
    "Falcon": service(FALCON_7B, "nvidia-t4", 1, slos=[slo("TTFT", "30s")]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_offered_instead_of_a_refusal_holds_with_the_promises(name: str) -> None:
    spec = REFUSALS[name]
    refusal = refused(spec)
    for path, value in refusal.nearest.items():
        assert isinstance(make_plan(with_value(spec, path, value), catalogue()), Plan), path
        assert f"{path}: {in_words(value)}" in refusal.message


def test_those_refusals_are_of_every_kind_and_most_have_a_way_out() -> None:
    found = {name: refused(spec) for name, spec in REFUSALS.items()}
    assert {r.constraint for r in found.values()} >= {
        "SLO", "Memory", "MaxCount", "AcrossNodes", "PipelineParallel", "TensorParallel", "UnknownAccelerator",
        "UnknownModel", "ModelLength", "KVCacheDtype", "AttentionBackend", "TokenBudget", "Quantization", "Dtype",
    }  # fmt: skip
    assert [name for name, r in found.items() if not r.nearest] == []
    assert found["Dtype"].nearest == {"spec.accelerator.type": "nvidia-a10"}
    assert found["SLO"].nearest.keys() == {"spec.slos[0].target", "spec.accelerator.type", "spec.model.quantization"}
    assert found["SLO of a budget"].nearest["spec.accelerator.maxCount"] == 8
    assert "spec.accelerator.maxCount" in found["Memory"].nearest


def test_a_larger_budget_that_can_not_keep_the_promise_is_not_offered() -> None:
    """Eight A100-40 hold the model, and no software makes a token of it there in 10 ms."""
    found = refused(REFUSALS["Memory and a promise"])
    assert "spec.accelerator.maxCount" not in found.nearest


buckets = st.sampled_from(["all", "0-64", "512-1024", "16384+"])
promises = st.lists(
    st.tuples(st.sampled_from(["TTFT", "TPOT"]), st.integers(1, 400), buckets, st.sampled_from([50, 95])).map(
        lambda p: slo(p[0], f"{p[1]}ms", p[2], p[3])
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([QWEN_7B, LLAMA_70B, LLAMA_8B]),
    st.sampled_from(["nvidia-l4", "nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-b200"]),
    st.integers(1, 8),
    promises,
    st.sampled_from(["Colocated", "Disaggregated"]),
)
def test_every_alternative_of_any_promise_is_feasible(
    uri: str, device: str, count: int, slos: list[dict[str, Any]], mode: str
) -> None:
    spec = service(uri, device, count, slos=slos, layout={"mode": mode})
    outcome = make_plan(spec, catalogue())
    if isinstance(outcome, Infeasible):
        for path, value in outcome.nearest.items():
            assert isinstance(make_plan(with_value(spec, path, value), catalogue()), Plan), path


@pytest.mark.parametrize(
    ("uri", "device", "said"),
    [
        (QWEN_7B, "nvidia-h100-80gb", f"measurements of this GPU, {within('measured')}"),
        (QWEN_7B, "nvidia-a100-80gb", f"measurements of this GPU, {within('kernels')}"),
        (DEEPSEEK, "nvidia-h200", f"measurements of this GPU, none of them of latent attention (MLA), {UNMEASURED}"),
        (
            "hf://mistralai/Mixtral-8x7B-Instruct-v0.1", "nvidia-h100-80gb",
            f"none of them of experts in 16 bits, {UNMEASURED}",
        ),
    ],
)  # fmt: skip
def test_what_was_not_measured_is_said_beside_what_was(uri: str, device: str, said: str) -> None:
    assert said in reason(planned(service(uri, device, 8)), "Predicted")


def test_weights_and_kv_without_kernel_tables_are_said_too() -> None:
    pins = {"pins": {"kvCacheDtype": "int4_per_token_head"}}
    model = {"quantization": "awq", "architecture": {"preset": "qwen2.5-7b"}}
    spec = service("pvc://models/mine", "nvidia-h100-80gb", 1, model=model, engine=pins)
    said = reason(planned(spec), "Predicted")
    assert f"none of them of awq weights or a KV cache in int4_per_token_head, {UNMEASURED}" in said


@pytest.mark.parametrize(
    ("device", "interval"),
    [
        ("nvidia-a100-80gb", f"none of them of a KV cache in fp8, {UNMEASURED}"),
        ("nvidia-h100-80gb", within("measured")),
    ],
)
def test_kernels_that_only_other_generations_were_measured_with_are_said(device: str, interval: str) -> None:
    """FP8 KV was measured on Hopper, Ada and Blackwell."""
    spec = service(QWEN_7B, device, 1, engine={"pins": {"kvCacheDtype": "fp8"}})
    assert f"measurements of this GPU, {interval}" in reason(planned(spec), "Predicted")


def test_a_rate_goes_before_a_promise_that_is_only_the_profile_s() -> None:
    """Of two A100s one shape keeps TTFT P95 of 500 ms and carries a fifth of the rate; the other carries all of it."""
    rate = {"profile": "CodeCompletion", "requestsPerSecond": 11}
    plan = planned(service(LLAMA_8B, "nvidia-a100-80gb", 2, workload=rate))
    (role,) = plan.roles
    assert (role.tensor_parallel, role.replicas, role.keeps_slos) == (1, 2, False)
    assert role.replicas * (role.capacity or 0) >= 11
    assert [o.keeps_slos for o in plan.alternatives] == [True]
    assert missed(plan)
    named = planned(service(LLAMA_8B, "nvidia-a100-80gb", 2, workload=rate, slos=[slo("TTFT", "500ms")]))
    assert (named.roles[0].tensor_parallel, named.roles[0].keeps_slos) == (2, True)


def test_step_times_of_two_devices_are_told_by_role() -> None:
    accelerator = {"decode": {"type": "nvidia-l4"}}
    spec = service(QWEN_7B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"}, accelerator=accelerator)
    said = reason(planned(spec), "Predicted")
    assert "measurements of this GPU for prefill (NVIDIA H100 SXM), modelled on measurements of other GPUs" in said
    assert "for decode (NVIDIA L4)" in said


def test_the_token_budget_names_percentiles_rate_and_that_the_replica_is_alone() -> None:
    said = reason(planned(service(QWEN_7B, "nvidia-h100-80gb", 8)), "TokenBudget")
    assert re.search(r"TTFT P95 .* and TPOT P95 .* predicted of one replica alone at [\d.]+ requests/s", said), said
