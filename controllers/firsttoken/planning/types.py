"""What planning takes and gives: frozen values, in tokens, bytes and GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


def _read_only(value: object, *names: str) -> None:
    """Mappings of a frozen value can't be changed either: plans are remembered, and many share one."""
    for name in names:
        object.__setattr__(value, name, MappingProxyType(dict(getattr(value, name))))


@dataclass(frozen=True)
class ModelFacts:
    """Shape of a model, from the catalogue or given inline; names as in Hugging Face's config.json.

    Counts are of the whole model, before any split over GPUs; lengths in tokens, widths and heads a layer.
    """

    name: str
    parameters: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    windowed_layers: int | None = None  # layers with the sliding window; None: all of them
    alibi: bool = False
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    weight_bytes_per_parameter: float = 2.0  # of the layers, as `quantization` stores them
    weight_group: int | None = None  # weights along a layer's input that share a scale, where that limits a split
    source: str = ""
    quantization: str = ""  # how the weights are stored if not in 16 bits (vLLM's name); "" is 16 bits
    quantized_here: bool = False  # spec.model.quantization asks for what the publisher's own weights are not
    float16: bool = True  # False: vLLM refuses FP16 for this architecture (activations overflow)
    attention_sinks: bool = False  # a learned logit a head beside the keys (gpt-oss)
    bidirectional_images: bool = False  # tokens of an image see each other in both directions (Gemma 3 with vision)
    # What activations are quantised to before they meet weights of `quantization`: fp8, int8, fp4, or "" for not.
    activations: str = "fp8"
    other_parameters: int = 0  # image encoder, learned positions: part of `parameters`, beside embeddings and layers
    expert_parameters: int = 0  # of the routed experts, part of `parameters`
    # What catalogue and config.json say of the matrices. None: nobody said, and the time model takes the layout that
    # explains `parameters` best (timing/layout.py).
    gated: bool | None = None  # feed-forward layers with a gate: three matrices instead of two
    dense_layers: int | None = None  # with a feed-forward layer in the place of experts
    shared_experts: int | None = None  # in units of a routed one, for every token
    qk_nope_head_dim: int | None = None  # MLA; where it is known, so is q_lora_rank
    v_head_dim: int | None = None
    q_lora_rank: int | None = None  # MLA; None: queries are projected directly

    @property
    def embedding_parameters(self) -> int:
        """Input and output embedding, and what else is no layer: they stay in 16 bits under every quantisation here."""
        matrices = 1 if self.tie_word_embeddings else 2
        return self.vocab_size * self.hidden_size * matrices + self.other_parameters


@dataclass(frozen=True)
class Reason:
    """Why one choice is as it is: a constant for programs, a sentence with its numbers for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Percentiles:
    """Of a time, seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class CalibratedStage:
    """A stage whose predicted times follow the live fleet: they are the model's times `ratio`."""

    stage: str  # prefill | decode
    ratio: float  # measured over predicted seconds
    band: float  # half width of the ratio's 90 % band, relative; wider where another tensor parallelism was measured
    requests: int  # that were measured
    tensor_parallel: int  # of the replicas that were measured


@dataclass(frozen=True)
class Prediction:
    """What users of the planned replicas should see at `requests_per_second`, and how sure that is.

    True times of steps with prompts lie within `ttft_interval` of the model's, those of other steps within
    `tpot_interval`, in 9 of 10 cases that it was checked against (docs/accuracy.md); queueing beyond that is only as
    regular as Poisson arrivals are. `assumed_rate`: nobody said a rate, so it is 70 % of what the replicas carry.
    """

    requests_per_second: float
    assumed_rate: bool
    ttft: Percentiles
    tpot: Percentiles
    by_prompt_tokens: Mapping[str, Percentiles]  # TTFT by bucket
    utilization: float  # of what binds
    binds: str  # Compute | RunningRequests | KVMemory | APIServer
    ttft_interval: float
    tpot_interval: float
    calibrated: tuple[CalibratedStage, ...] = ()  # the stages that follow measurements of the live fleet
    promises: tuple[str, ...] = ()  # what was planned for, e.g. `TTFT P95 all 1.2 s`

    def __post_init__(self) -> None:
        _read_only(self, "by_prompt_tokens")

    @property
    def relative_interval(self) -> float:
        """The wider of both: how far what replicas carry may be off."""
        return max(self.ttft_interval, self.tpot_interval)


@dataclass(frozen=True)
class Alternative:
    """A shape that was not chosen, and what it would have cost."""

    layout: str
    tensor_parallel: int
    pipeline_parallel: int
    replicas: int
    gpus: int
    requests_per_second: float  # of all its replicas, as RolePlan.capacity counts
    message: str
    keeps_slos: bool = True  # False: even an idle replica misses one, and the rate is all that they can serve
    nodes: int = 1  # of one replica


@dataclass(frozen=True)
class MemoryBudget:
    """Where the memory of one replica of a role goes, bytes over all its GPUs."""

    weights_bytes: int
    kv_bytes_per_token: int  # a token in every layer; beyond a sliding window only the layers without one keep it
    kv_cache_tokens: int  # tokens of KV, each in every layer, that fit beside the weights
    max_concurrent_requests: int  # requests of the workload's P95 length that fit at once, KV taken by need
    max_concurrent_at_maximum_length: int  # the same with KV reserved at maximum model length (M4.4)
    kv_cache_bytes: int = 0  # what those tokens take
    activation_bytes: int = 0  # peak of one step at the token budget (estimate)
    overhead_bytes: int = 0  # CUDA graphs, CUDA context, NCCL, what the driver keeps (estimate)
    usable_bytes: int = 0  # device memory times gpu-memory-utilization
    max_num_seqs: int = 0  # running requests that activations, graphs and KV are counted for; 0: of an older plan


@dataclass(frozen=True)
class RolePlan:
    """How one role runs. `role` is `serve` (colocated), `prefill` or `decode`."""

    role: str
    accelerator: str
    replicas: int
    tensor_parallel: int
    pipeline_parallel: int
    engine_args: Mapping[str, str]  # vLLM's flags without dashes; "" for a bare flag
    environment: Mapping[str, str] = field(default_factory=dict)  # what vLLM reads from the environment only
    # Requests a second that one replica carries within the SLOs it was planned for; None: no prediction was made.
    capacity: float | None = None
    # False: even an idle replica misses one (or, of a profile's own SLOs, they leave next to nothing of what it can
    # serve), and `capacity` is all that it can serve.
    keeps_slos: bool = True
    memory: MemoryBudget | None = None  # None: of an older plan, which knows that of its last role only
    nodes: int = 1  # of one replica: a pod on each, with the same number of GPUs

    def __post_init__(self) -> None:
        _read_only(self, "engine_args", "environment")

    @property
    def gpus_per_replica(self) -> int:
        """GPUs one replica takes (0 never happens: `cpu` counts as one device without a resource)."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def gpus_per_node(self) -> int:
        """GPUs that one pod of a replica takes."""
        return self.gpus_per_replica // self.nodes


@dataclass(frozen=True)
class LiveSettings:
    """Start of live tuning (DESIGN §4 `settings.json`), tokens and requests."""

    token_budget: int
    decode_cap: int
    long_prefill_threshold: int = 0


@dataclass(frozen=True)
class Routing:
    """How vllm-router chooses among the replicas that serve or prefill. The defaults are those of its command line
    (0.1.17), and what plans were rendered with that don't say.

    `cache_threshold`: a known beginning is followed that is a larger part of the prompt. Loads differ too much where
    the largest exceeds the smallest by more than `most_ahead` *and* is above `most_times` of it.
    """

    policy: str = "cache_aware"  # cache_aware | power_of_two
    cache_threshold: float = 0.3
    most_ahead: int = 64  # --balance-abs-threshold, requests
    most_times: float = 1.5  # --balance-rel-threshold


@dataclass(frozen=True)
class Plan:
    """A deployment that fits, and why."""

    layout: str  # Colocated | Disaggregated
    model: str  # name of the model facts used
    max_model_length: int
    roles: tuple[RolePlan, ...]
    memory: MemoryBudget  # of one replica of the last role: the one that makes the tokens
    settings: LiveSettings
    router: bool  # cache-aware or prefill/decode routing between Envoy and the engines
    reasons: tuple[Reason, ...] = ()
    prediction: Prediction | None = None
    alternatives: tuple[Alternative, ...] = ()
    routing: Routing = Routing()  # frozen; what the router does, where there is one

    @property
    def gpus(self) -> int:
        """GPUs over all roles and replicas."""
        return sum(r.replicas * r.gpus_per_replica for r in self.roles)


@dataclass(frozen=True)
class Infeasible:
    """No deployment fits: the constraint that binds, and the nearest requests that would.

    Each entry of `nearest` is an alternative that is enough alone; `message` says so in words.
    """

    constraint: str  # e.g. MaxCount, Memory, UnknownModel
    message: str
    nearest: Mapping[str, Any] = field(default_factory=dict)  # spec path -> value that would be feasible

    def __post_init__(self) -> None:
        _read_only(self, "nearest")
