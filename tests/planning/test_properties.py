"""What must hold for any spec: budgets, memory, determinism, honest alternatives, JSON and back."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import device_bytes
from firsttoken.planning.choice import ALIKE
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.nearest import with_value
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.plan import make_plan, with_replicas
from firsttoken.planning.replicas import margin
from firsttoken.planning.types import Infeasible, Plan
from planning.any_spec import (
    DEVICES,
    ROUNDED,
    carried,
    few,
    planned_if_any,
    rates,
    relaxed,
    services,
    shape_of,
    specs,
)  # fmt: skip
from planning.specs import LLAMA_70B, QWEN_7B, service

# What is asserted of plans says nothing of refusals and the other way round, so one of each is always looked at.
FITS = service(LLAMA_70B, "nvidia-h100-80gb", 8, workload={"requestsPerSecond": 5})
SPLIT = service(QWEN_7B, "nvidia-a100-40gb", 8, layout={"mode": "Disaggregated"})
TOO_LARGE = service(LLAMA_70B, "nvidia-a100-40gb", 4)
SMALLER = service(QWEN_7B, "nvidia-a100-40gb", 3, scaling={"maxReplicas": 5})


@relaxed
@given(specs(), st.integers(1, 40))
@example(FITS, 3)
@example(SPLIT, 1)
def test_more_gpus_never_make_a_feasible_request_infeasible(spec: InferenceServiceSpec, more: int) -> None:
    limit = spec.accelerator.max_count
    if limit is None or isinstance(make_plan(spec, DEVICES), Infeasible):
        return
    larger = with_value(spec, "spec.accelerator.maxCount", limit + more)
    assert isinstance(make_plan(larger, DEVICES), Plan)


@relaxed
@given(specs())
@example(FITS)
@example(SPLIT)
def test_memory_never_exceeds_the_device(spec: InferenceServiceSpec) -> None:
    plan = make_plan(spec, DEVICES)
    if isinstance(plan, Infeasible):
        return
    memory, role = plan.memory, plan.roles[-1]
    parts = memory.weights_bytes + memory.kv_cache_bytes + memory.activation_bytes + memory.overhead_bytes
    assert parts <= memory.usable_bytes <= device_bytes(DEVICES[role.accelerator]) * role.gpus_per_replica
    assert memory.max_concurrent_requests >= memory.max_concurrent_at_maximum_length >= 1
    assert memory.max_num_seqs == int(role.engine_args["max-num-seqs"])


@relaxed
@given(specs())
@example(FITS)
@example(SPLIT)
def test_arguments_are_ones_vllm_starts_with(spec: InferenceServiceSpec) -> None:
    plan = make_plan(spec, DEVICES)
    if isinstance(plan, Infeasible):
        return
    model = next(e for e in models().values() if e.name == plan.model)
    assert 1 <= plan.max_model_length <= model.shape.max_position_embeddings
    for role in plan.roles:
        args = role.engine_args
        assert int(args["max-num-batched-tokens"]) >= int(args["max-num-seqs"]) >= 1
        assert model.shape.num_attention_heads % role.tensor_parallel == 0
        assert role.gpus_per_node <= DEVICES[role.accelerator].devices_per_node
        assert role.gpus_per_node * role.nodes == role.gpus_per_replica
        assert role.role == "serve" or role.pipeline_parallel == 1, "NixlConnector has no pipeline stages"
        if "no-enable-chunked-prefill" in args:
            assert int(args["max-num-batched-tokens"]) >= plan.max_model_length
    assert plan.settings.decode_cap >= 1
    assert plan.settings.token_budget <= int(plan.roles[0].engine_args["max-num-batched-tokens"])


@relaxed
@given(specs())
def test_same_input_same_plan_byte_for_byte(spec: InferenceServiceSpec) -> None:
    again = InferenceServiceSpec.model_validate(json.loads(json.dumps(spec.wire())))
    reversed_devices = dict(reversed(DEVICES.items()))
    one, two = (json.dumps(plan_to_json(p)) for p in (make_plan(spec, DEVICES), make_plan(again, reversed_devices)))
    assert one == two


@relaxed
@given(specs(), specs())
@example(FITS, SMALLER)
@example(SPLIT, SMALLER)
def test_replicas_never_exceed_the_budget(spec: InferenceServiceSpec, other: InferenceServiceSpec) -> None:
    """Also when the budget and scaling change under a plan that was pinned before."""
    plan = make_plan(spec, DEVICES)
    if isinstance(plan, Infeasible):
        return
    assert spec.accelerator.max_count is None or plan.gpus <= spec.accelerator.max_count
    changed = with_replicas(plan, other)
    if isinstance(changed, Plan):
        assert other.accelerator.max_count is None or changed.gpus <= other.accelerator.max_count


@relaxed
@given(specs())
@example(TOO_LARGE)
def test_every_alternative_offered_is_feasible(spec: InferenceServiceSpec) -> None:
    """S13: a relaxed request that is promised must work."""
    refusal = make_plan(spec, DEVICES)
    if isinstance(refusal, Plan):
        return
    assert refusal.nearest or spec != TOO_LARGE
    for path, value in refusal.nearest.items():
        assert isinstance(make_plan(with_value(spec, path, value), DEVICES), Plan), path


@relaxed
@given(specs())
@example(FITS)
@example(TOO_LARGE)
def test_a_plan_survives_json(spec: InferenceServiceSpec) -> None:
    plan = make_plan(spec, DEVICES)
    wire = json.loads(json.dumps(plan_to_json(plan)))
    if isinstance(plan, Plan):
        assert plan_from_json(wire) == plan
    else:
        assert wire["infeasible"]["constraint"] == plan.constraint


@few
@given(services(), rates, st.floats(1, 4))
def test_a_growing_rate_never_brings_less_nor_a_refusal(spec: InferenceServiceSpec, rate: float, factor: float) -> None:
    """Whole plans: shape, token budget, replicas. The shape that is taken for more may carry a little less than it
    might, since a start with an earlier first token is taken while it keeps the promises: never less than asked for.
    """
    path = "spec.workload.requestsPerSecond"
    less, more = (make_plan(with_value(spec, path, r), DEVICES) for r in (rate, rate * factor))
    assert isinstance(less, Plan) == isinstance(more, Plan)
    if isinstance(less, Plan) and isinstance(more, Plan):
        assert min(carried(more), rate * factor) >= min(carried(less), rate) * (1 - ROUNDED)


@few
@given(services(), rates)
def test_what_the_budget_carries_is_carried_with_the_margin(spec: InferenceServiceSpec, rate: float) -> None:
    plan = planned_if_any(with_value(spec, "spec.workload.requestsPerSecond", rate))
    if plan is None or plan.prediction is None:
        return
    wanted = rate * (1 + margin(plan.prediction.relative_interval))
    limit = spec.accelerator.max_count or 0
    assert plan.gpus <= limit
    if carried(plan) < wanted * (1 - ROUNDED):
        weakest = min(plan.roles, key=lambda r: r.replicas * (r.capacity or 0.0))
        assert limit - plan.gpus < weakest.gpus_per_replica, "a replica more would fit"


@few
@given(services(slos=[]), st.integers(20, 5000), st.floats(1, 3), st.sampled_from(["TTFT", "TPOT"]))
def test_a_tighter_promise_never_carries_more(
    spec: InferenceServiceSpec, milliseconds: int, factor: float, metric: str
) -> None:
    """On the same GPUs; where even an idle replica misses it, what is left is all that can be served."""
    loose, tight = (
        planned_if_any(with_value(spec, "spec.slos", [{"metric": metric, "percentile": 95, "target": f"{t}ms"}]))
        for t in (round(milliseconds * factor), milliseconds)
    )
    if loose is None or tight is None or not all(r.keeps_slos for p in (loose, tight) for r in p.roles):
        return
    if shape_of(loose) == shape_of(tight):
        for a, b in zip(loose.roles, tight.roles, strict=True):
            assert (b.capacity or 0.0) <= (a.capacity or 0.0) * (1 + ROUNDED)
    if spec.workload.requests_per_second is None and len(loose.roles) == 1:
        assert carried(tight) <= carried(loose) * ALIKE, "shapes that carry so much alike count as equal"
