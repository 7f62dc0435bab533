"""What the plan is chosen by: the cases that the planner was made for, each with the reason it gives."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.backends import BACKENDS, MLA_BACKENDS
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.plan import fits, make_plan, with_replicas
from firsttoken.planning.start import Trial, earliest
from firsttoken.planning.types import Infeasible, Plan, RolePlan
from planning.specs import FALCON_7B, LLAMA_70B, MPT_7B, QWEN_7B, planned, reason, refused, service

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"
CODES_OF_PROPOSALS = ("DisaggregationProposal", "NoDisaggregation")


def workload(
    profile: str, prompt: tuple[int, int], output: tuple[int, int], rate: float | None = None
) -> dict[str, object]:
    lengths = {
        k: {"p50": p50, "p95": p95} for k, (p50, p95) in {"promptTokens": prompt, "outputTokens": output}.items()
    }
    return {"profile": profile, **lengths, **({"requestsPerSecond": rate} if rate is not None else {})}


QA = workload("KnowledgeQA", (1150, 1500), (400, 500), 20)
LONG = workload("Summarization", (24000, 30000), (150, 200))


def shape(plan: Plan) -> list[tuple[str, int, int]]:
    return [(r.role, r.replicas, r.tensor_parallel) for r in plan.roles]


def codes(plan: Plan) -> set[str]:
    return {r.code for r in plan.reasons}


def test_M8_a_7b_model_on_a_node_of_a100_takes_the_gpus_that_the_rate_needs() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload=QA))
    assert shape(plan) == [("serve", 4, 1)]
    assert "20 requests/s" in reason(plan, "Replicas")
    assert plan.prediction is not None
    assert not plan.prediction.assumed_rate
    assert plan.prediction.ttft.p50 <= plan.prediction.ttft.p95 <= plan.prediction.ttft.p99 < 1.2
    assert set(plan.prediction.by_prompt_tokens) >= {"512-1024", "1024-4096"}


def test_70b_in_16_bits_on_four_a100_40_says_what_would_do() -> None:
    refusal = refused(service(LLAMA_70B, "nvidia-a100-40gb", 4))
    assert refusal.constraint == "Memory"
    assert refusal.nearest["spec.model.quantization"] == "fp8"
    assert refusal.nearest["spec.accelerator.maxCount"] == 8


def test_70b_on_eight_h100_is_two_replicas_of_four_and_proposes_fp8() -> None:
    plan = planned(service(LLAMA_70B, "nvidia-h100-80gb", 8))
    assert shape(plan) == [("serve", 2, 4)]
    assert [a.tensor_parallel for a in plan.alternatives] == [8]
    assert "requests/s a replica instead of" in reason(plan, "Fp8WeightsProposal")
    assert "takes an evaluation" in reason(plan, "Fp8WeightsProposal")


def test_a_1b_model_completes_code_on_an_l4() -> None:
    work = workload("CodeCompletion", (1469, 7315), (13, 90), 1)
    plan = planned(service("hf://meta-llama/Llama-3.2-1B", "nvidia-l4", 2, workload=work))
    assert shape(plan) == [("serve", 1, 1)]
    assert plan.prediction is not None
    assert plan.prediction.relative_interval > 0.3, "nobody measured an L4"
    assert "other GPUs" in reason(plan, "Predicted")


def test_M4_5_long_prompts_with_short_outputs_bring_a_proposal_to_split_with_its_gain() -> None:
    """Where TPOT is what binds colocated replicas, be it by the profile or by the spec; else its figures are said."""
    pays = planned(
        service(LLAMA_8B, "nvidia-a100-40gb", 8, workload=workload("Summarization", (32000, 36000), (200, 200)))
    )
    assert pays.layout == "Colocated"
    assert "the gain is more than the model may be off" in reason(pays, "DisaggregationProposal")
    assert "confirm the imbalance" in reason(pays, "DisaggregationProposal")
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG))
    assert "times as fast only" in reason(plan, "NoDisaggregation")
    slos = [{"metric": "TTFT", "target": "10s"}, {"metric": "TPOT", "target": "15ms"}]
    tight = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, slos=slos))
    assert "the gain is more than the model may be off" in reason(tight, "DisaggregationProposal")


def test_M4_5_a_chat_of_even_lengths_brings_none() -> None:
    """What was compared is said with its figures, and the gain is within what the model may be off."""
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=workload("Chat", (500, 900), (500, 900))))
    assert "DisaggregationProposal" not in codes(plan)
    said = reason(plan, "NoDisaggregation")
    found = re.search(
        r"(\d+) prefill and (\d+) decode replicas .* carry ([\d.]+) requests/s .* on 8 GPUs, colocated ([\d.]+) "
        r"\(([+-]\d+) %\); at [\d.]+ requests/s.* TTFT P95 .* TPOT P95 .*: too little, the model may be off by (\d+) %",
        said,
    )
    assert found, said
    prefill, decode, apart, together, gain, off = map(float, found.groups())
    assert prefill + decode <= 8
    assert 100 * (apart / together - 1) == pytest.approx(gain, abs=1)
    assert gain <= off


def test_a_split_is_made_when_asked_for_and_sized_by_the_rate() -> None:
    work = workload("Summarization", (24000, 32000), (150, 200), 2)
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"}, workload=work))
    prefill, decode = plan.roles
    assert prefill.replicas > decode.replicas
    assert prefill.capacity is not None
    assert prefill.replicas * prefill.capacity >= 2
    assert not codes(plan) & set(CODES_OF_PROPOSALS)


def test_M4_5_each_role_of_a_split_is_judged_on_its_own_gpus() -> None:
    h100, a100 = "nvidia-h100-80gb", "nvidia-a100-80gb"

    def roles(prefill: str, decode: str) -> tuple[RolePlan, ...]:
        spec = service(
            LLAMA_8B, h100, 8, workload=workload("Chat", (4000, 8000), (150, 200), 6),
            layout={"mode": "Disaggregated"}, engine={"pins": {"tensorParallel": 1}},
            accelerator={"prefill": {"type": prefill}, "decode": {"type": decode}},
        )  # fmt: skip
        return planned(spec).roles

    mixed, slow, fast = roles(h100, a100), roles(a100, a100), roles(h100, h100)
    assert [r.accelerator for r in mixed] == [h100, a100]
    assert [r.engine_args["max-num-batched-tokens"] for r in mixed] == ["8192", "2048"], "vLLM's default for each"
    assert (mixed[0].capacity or 0) > 2 * (slow[0].capacity or 0), (
        "prompts are bound by compute: 989 against 312 TFLOPS"
    )
    assert mixed[1].capacity == slow[1].capacity
    assert (mixed[1].capacity or 0) < (fast[1].capacity or 0)


@pytest.mark.parametrize(
    ("uri", "device", "serving", "named"),
    [
        (FALCON_7B, "nvidia-a100-40gb", {"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"}, None),
        (FALCON_7B, "nvidia-t4", {"TRITON_ATTN", "FLEX_ATTENTION"}, "TRITON_ATTN"),
        (MPT_7B, "nvidia-a100-40gb", {"FLASH_ATTN", "TRITON_ATTN"}, None),
        (MPT_7B, "nvidia-b200", {"FLASH_ATTN", "TRITON_ATTN"}, "FLASH_ATTN"),
    ],
)
def test_M4_1_models_with_odd_attention_refuse_the_kernels_that_can_not_serve_them(
    uri: str, device: str, serving: set[str], named: str | None
) -> None:
    """One KV head for 71 (Falcon), ALiBi (MPT). `named`: to vLLM, which would take another by itself."""

    def outcome(**pins: str) -> Plan | Infeasible:
        return fits(service(uri, device, 2, engine={"pins": pins}), catalogue())

    found = {kernel: outcome(attentionBackend=kernel) for kernel in (*BACKENDS, *MLA_BACKENDS)}
    assert {kernel for kernel, one in found.items() if isinstance(one, Plan)} == serving
    refusals = [one for one in found.values() if isinstance(one, Infeasible)]
    assert {one.constraint for one in refusals} == {"AttentionBackend"}
    chosen = outcome()
    assert isinstance(chosen, Plan)
    assert chosen.roles[0].engine_args.get("attention-backend") == named


def test_replicas_follow_the_rate_without_a_new_plan_and_stop_at_the_budget() -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload=QA))

    def at(rate: float, count: int = 8, **scaling: int) -> tuple[int, str]:
        spec = service(QWEN_7B, "nvidia-a100-40gb", count, workload={**QA, "requestsPerSecond": rate}, scaling=scaling)
        found = with_replicas(plan, spec)
        assert isinstance(found, Plan)
        return found.roles[0].replicas, reason(found, "Replicas")

    assert at(1)[0] == 1
    assert at(20)[0] == 4
    assert at(50)[0] > at(20)[0]
    assert at(1, minReplicas=2)[0] == 2
    assert at(50, maxReplicas=4)[0] == 4
    count, why = at(1000)
    assert count == 8
    assert "raise spec.accelerator.maxCount" in why


@dataclass(frozen=True)
class Tried(Trial):
    """With figures instead of a forecast; only the budget of that is looked at."""

    ttft: float = 0.0  # type: ignore[assignment]
    tpot: float | None = None  # type: ignore[assignment]
    excess: float = 0.0  # type: ignore[assignment]


def trial(budget: int, ttft: float, excess: float = 0.5, *, carries: bool = True) -> Trial:
    engine: Any = SimpleNamespace(load=SimpleNamespace(engine=SimpleNamespace(token_budget=budget)))
    return Tried(engine, engine, 1.0, carries, ttft, None, excess)


@pytest.mark.parametrize(
    ("trials", "carrying", "taken"),
    [
        ([(512, 0.9), (2048, 0.5), (8192, 0.4)], {512, 2048}, 2048),  # 8192 breaks a promise
        ([(512, 0.9), (2048, 0.5), (8192, 0.4)], {512, 2048, 8192}, 8192),  # the earliest
        ([(512, 0.400), (2048, 0.405), (8192, 0.9)], {512, 2048, 8192}, 2048),  # alike: the larger
        ([(256, 82.6, 30.0), (512, 1.6, 4.9), (8192, 0.4, 9.0)], set(), 512),  # none keeps them: missed by least
    ],
)
def test_M4_2_the_token_budget_begins_where_the_promises_are_kept(
    trials: list[tuple[float, ...]], carrying: set[int], taken: int
) -> None:
    assert earliest([trial(*one, carries=one[0] in carrying) for one in trials]).budget == taken  # type: ignore[arg-type]


def test_M4_2_a_shape_is_judged_with_the_budget_that_carries_most_and_starts_with_one_that_carries_the_rate() -> None:
    code = {"profile": "CodeCompletion"}
    best, default = (
        planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=code, engine=engine))
        for engine in ({}, {"pins": {"tokenBudget": 8192}})
    )
    assert best.settings.token_budget < 8192, "8192 tokens a step would hold up every stream"
    assert (best.roles[0].capacity or 0) > 1.5 * (default.roles[0].capacity or 0)


def test_M4_2_pins_and_bounds_of_tuning_stand() -> None:
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG))
    assert "would give" in reason(plan, "TokenBudget")
    pinned = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, engine={"pins": {"tokenBudget": 1024}}))
    assert pinned.settings.token_budget == 1024
    bounded = {"mode": "Auto", "tokenBudget": {"min": 256, "max": 512}}
    assert planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, tuning=bounded)).settings.token_budget <= 512


def test_M4_4_running_requests_stop_where_a_decode_step_would_break_the_promise() -> None:
    slos = [{"metric": "TPOT", "percentile": 95, "target": "12ms"}]
    plan = planned(
        service(QWEN_7B, "nvidia-h100-80gb", 1, workload=workload("Chat", (100, 200), (400, 500)), slos=slos)
    )
    assert plan.settings.decode_cap < int(plan.roles[0].engine_args["max-num-seqs"])
    assert "TPOT P95 within 12 ms" in reason(plan, "DecodeCap")


PLANS = """
import json, sys
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.output import plan_to_json
from firsttoken.planning.plan import make_plan
for spec in json.load(sys.stdin):
    print(json.dumps(plan_to_json(make_plan(InferenceServiceSpec.model_validate(spec), catalogue()))))
"""


def test_same_input_same_plan_byte_for_byte_in_every_process() -> None:
    """Sets and hashes come out in another order in each: a colocated plan, a split, and a refusal."""
    work = workload("Chat", (1024, 4096), (128, 451), 5)
    specs = [
        service(LLAMA_70B, "nvidia-h100-80gb", 8, workload=work),
        service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=work, layout={"mode": "Disaggregated"}),
        service(LLAMA_70B, "nvidia-a100-40gb", 4),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PLANS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**environment, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]  # fmt: skip
    one, two = (process.communicate(json.dumps([spec.wire() for spec in specs]))[0] for process in running)
    assert [process.returncode for process in running] == [0, 0]
    assert one == two
    assert [json.loads(line)["feasible"] for line in one.splitlines()] == [True, True, False]
    assert plan_from_json(json.loads(one.splitlines()[0])) == make_plan(specs[0], catalogue())


def test_an_idle_promise_of_the_profile_that_is_missed_refuses_nothing() -> None:
    work = {"profile": "CodeCompletion", "requestsPerSecond": 0.1}
    plan = planned(service(QWEN_7B, "nvidia-l4", 8, workload=work))
    assert "the profile's default" in reason(plan, "SLOMissed")
    assert plan.roles[0].replicas == 1
    assert "all that a replica serves" in reason(plan, "Replicas")
    assert plan.settings.decode_cap == int(plan.roles[0].engine_args["max-num-seqs"]), "a default caps nothing"


def test_M4_4_a_promise_that_one_request_breaks_caps_nothing() -> None:
    slos = [{"metric": "TPOT", "percentile": 95, "target": "5ms"}]
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 1, slos=slos))
    assert "SLOMissed" in codes(plan)
    most = int(plan.roles[0].engine_args["max-num-seqs"])
    assert plan.settings.decode_cap == min(most, plan.settings.token_budget - 16), "room for a block of prefill"
