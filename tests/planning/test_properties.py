"""What must hold for any spec: budgets, memory, determinism, honest alternatives, JSON and back."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue, device_bytes
from firsttoken.planning.models import CatalogueEntry
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.nearest import with_value
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.plan import make_plan, with_replicas
from firsttoken.planning.types import Infeasible, Plan
from planning.specs import LLAMA_70B, QWEN_7B, service

DEVICES = catalogue()
relaxed = settings(deadline=None)  # refusals try alternatives, and machines are shared
lengths = st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)).map(lambda x: {"p50": min(x), "p95": max(x)})


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


scaling = st.one_of(
    optional(replicas=st.integers(0, 5)),
    st.tuples(st.integers(0, 5), st.integers(1, 5)).map(lambda x: {"minReplicas": min(x), "maxReplicas": max(x)}),
    st.fixed_dictionaries({"mode": st.just("External"), "replicas": st.integers(0, 20)}),
)
pins = optional(
    tokenBudget=st.integers(16, 32_768),
    maxNumSeqs=st.integers(1, 2048),
    tensorParallel=st.integers(1, 16),
    pipelineParallel=st.integers(1, 4),
    gpuMemoryUtilization=st.sampled_from([0.3, 0.8, 0.95]),
    kvCacheDtype=st.sampled_from(["auto", "fp8"]),
    attentionBackend=st.sampled_from(["FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TRITON_MLA"]),
    prefixCaching=st.booleans(),
    chunkedPrefill=st.booleans(),
)


initial = optional(tokenBudget=st.integers(16, 32_768), decodeCap=st.integers(1, 2048))
tuning = optional(
    mode=st.sampled_from(["Off", "Recommend", "Auto"]),
    tokenBudget=st.tuples(st.integers(16, 9000), st.integers(16, 9000)).map(lambda x: {"min": min(x), "max": max(x)}),
)


def _source(entry: CatalogueEntry, own: bool) -> dict[str, Any]:
    """The publisher's repository, or a checkpoint of one's own of the same shape (which may be quantised offline)."""
    if not own:
        return {"uri": f"hf://{entry.uris[0]}"}
    return {"uri": "pvc://models/mine", "architecture": {"preset": entry.name}}


@st.composite
def specs(draw: st.DrawFn) -> InferenceServiceSpec:
    entry = draw(st.sampled_from(sorted(models().values(), key=lambda e: e.name)))
    accelerator: dict[str, Any] = {"type": draw(st.sampled_from(sorted(DEVICES)))}
    mode = draw(st.sampled_from(["Auto", "Colocated", "Disaggregated"]))
    if mode == "Disaggregated" and draw(st.booleans()):
        accelerator["decode"] = {"type": draw(st.sampled_from(sorted(DEVICES)))}
    if draw(st.booleans()):
        accelerator["maxCount"] = draw(st.integers(1, 40))
    model = draw(
        optional(
            maxModelLength=st.integers(1, 40_000), quantization=st.sampled_from(["fp8", "awq", "compressed-tensors"])
        )
    )
    workload = draw(
        optional(
            promptTokens=lengths,
            outputTokens=lengths,
            profile=st.sampled_from(["Chat", "Summarization", "KnowledgeQA", "CodeCompletion", "OfflineBatch"]),
        )
    )
    return InferenceServiceSpec.model_validate(
        {
            "model": {**_source(entry, draw(st.booleans())), **model},
            "accelerator": accelerator,
            "workload": workload,
            "layout": {"mode": mode},
            "engine": {"pins": draw(st.one_of(st.just({}), pins)), "initial": draw(initial)},
            "tuning": draw(tuning),
            "scaling": draw(scaling),
        }
    )


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
    assert memory.kv_cache_tokens >= plan.max_model_length
    assert memory.max_concurrent_requests >= max(1, memory.max_concurrent_at_maximum_length)


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
        assert role.gpus_per_replica <= DEVICES[role.accelerator].devices_per_node
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
