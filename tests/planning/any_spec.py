"""Any spec, for what must hold of all: what fits and what doesn't, with and without rates and promises."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import CatalogueEntry
from firsttoken.planning.models import catalogue as models
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Plan
from planning.specs import FALCON_7B, LLAMA_70B, QWEN_7B, service

DEVICES = catalogue()
relaxed = settings(deadline=None, max_examples=60)  # refusals try alternatives, and machines are shared
few = settings(deadline=None, max_examples=40)  # of what takes several plans each
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


# Capacities have four significant digits.
ROUNDED = 1e-3
short = st.tuples(st.integers(16, 4000), st.integers(16, 4000)).map(lambda x: {"p50": min(x), "p95": max(x)})
rates = st.floats(0.01, 300).map(lambda r: float(f"{r:.3g}"))
slos = st.lists(
    st.builds(
        lambda metric, milliseconds, bucket, percentile: {
            "metric": metric, "target": f"{milliseconds}ms", "promptTokens": bucket, "percentile": percentile,
        },
        st.sampled_from(["TTFT", "TPOT"]),
        st.integers(1, 4).flatmap(lambda digits: st.integers(10 ** (digits - 1), 10**digits)),
        st.sampled_from(["all", "all", "0-64", "512-1024", "16384+"]),
        st.sampled_from([50, 90, 95, 99]),
    ),
    max_size=2,
    unique_by=lambda s: (s["metric"], s["promptTokens"], s["percentile"]),
)  # fmt: skip


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
            requestsPerSecond=rates,
            sharedPrefixTokens=st.integers(0, 4000),
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
            "slos": draw(slos),
        }
    )


def planned_if_any(spec: InferenceServiceSpec) -> Plan | None:
    outcome = make_plan(spec, DEVICES)
    return outcome if isinstance(outcome, Plan) else None


def shape_of(plan: Plan) -> list[tuple[int, int]]:
    return [(r.tensor_parallel, r.pipeline_parallel) for r in plan.roles]


def carried(plan: Plan) -> float:
    """Requests a second of all replicas."""
    return min(r.replicas * (r.capacity or 0.0) for r in plan.roles)


@st.composite
def services(draw: st.DrawFn, **fixed: Any) -> InferenceServiceSpec:
    """Specs that mostly fit, so that their predictions are what is asked about."""
    uri, device = draw(
        st.sampled_from(
            [
                (QWEN_7B, "nvidia-a100-40gb"), (QWEN_7B, "nvidia-l4"), (LLAMA_70B, "nvidia-h100-80gb"),
                (LLAMA_70B, "nvidia-l40s"), (FALCON_7B, "nvidia-h100-80gb"),
            ]
        )
    )  # fmt: skip
    profile = draw(st.sampled_from(["Chat", "Summarization", "KnowledgeQA", "CodeCompletion", "OfflineBatch"]))
    work = draw(optional(promptTokens=short, outputTokens=short, sharedPrefixTokens=st.integers(0, 1000)))
    mode = draw(st.sampled_from(["Auto", "Auto", "Disaggregated"]))
    rate = {"requestsPerSecond": draw(rates)} if draw(st.booleans()) else {}
    count = draw(st.sampled_from([8, 16, 32]))
    rest = {"slos": draw(slos), "layout": {"mode": mode}, **fixed}
    return service(uri, device, count, workload={"profile": profile, **work, **rate}, **rest)
