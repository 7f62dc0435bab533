"""Where the memory of a replica goes: vLLM's own accounting, computed before a GPU is touched (M4.4).

KV bytes = device memory x gpu-memory-utilization - weights - activation peak - CUDA graphs - what is not torch's.
What can't be computed from the shape is one of the few constants below, each with its source.
"""

import math
from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, device_bytes, is_cpu
from firsttoken.planning.cuda_graphs import captured_graphs
from firsttoken.planning.kv_formats import kv_format
from firsttoken.planning.kv_groups import KVGroups, kv_groups
from firsttoken.planning.types import MemoryBudget, ModelFacts

GIB = 2**30
MIB = 2**20
BLOCK_TOKENS = 16  # vLLM's KV block on a GPU
# Elsewhere its platforms set another default: CPU (seen in the engine's log, and asserted in e2e/real) and Gaudi
# (platform.py of vllm-gaudi: "default block size for Gaudi should be 128").
OTHER_BLOCKS = {"CPU": 128, "Intel": 128}

DEFAULT_UTILIZATION = 0.92  # vLLM 0.32's default

# The driver's share of nvidia-smi's total (H100: 79.65 GiB shown, 79.22 GiB seen by CUDA, vLLM PR 10511) and the CUDA
# context with the kernels' modules (0.2 to 0.4 GiB in the logs of vLLM PR 12126 and issue 14452).
DEVICE_OVERHEAD = 1 * GIB
# NCCL channels and the custom all-reduce buffers of a rank; an estimate, on the high side.
COMMUNICATION_OVERHEAD = GIB // 2
# One captured CUDA graph: 24 to 28 MiB each in vLLM PR 22897, 0.36 GiB for 16 of them in gpustack/runner PR 251.
GRAPH_BYTES = 24 * MIB
# The allocator keeps more than the live tensors of a step: 1.10 GiB (vLLM PR 9003, one request) for what counts as
# 0.91 GiB here (Llama 3 8B, 8192 tokens).
ACTIVATION_SLACK = 1.2
# A logit in the sampler (copies in FP32, sorted values, 64-bit indices): 1.26 GiB for 256 requests with 128,256
# entries, the same with one and two GPUs (vLLM PR 10511), so it is the sampler's peak. Later samplers take less.
SAMPLER_BYTES = 41
# A process of vLLM on CPU without weights and KV: 2.9 GB measured with 1 GiB of KV and a model of a few MB.
CPU_OVERHEAD = 2 * GIB
MXFP4_BLOCK = 32  # weights that share a scale of one byte
MXFP4_BYTES = 0.5 + 1 / MXFP4_BLOCK
# vLLM's default for VLLM_CPU_KVCACHE_SPACE.
CPU_KV_SPACE = 4 * GIB


@dataclass(frozen=True)
class EngineLoad:
    """What decides memory beside model and device. Lengths in tokens."""

    token_budget: int  # most tokens of one step (max-num-batched-tokens)
    max_num_seqs: int  # most running requests (where they are chosen, running.py: the most that may be)
    max_model_length: int
    request_tokens: int  # what one request of the workload takes (P95)
    utilization: float = DEFAULT_UTILIZATION
    kv_cache_dtype: str = "auto"


def element_bytes(profile: AcceleratorProfileSpec) -> int:
    """Bytes of an unquantised weight, activation or KV element: 2 (BF16, FP16), on CPU 4 (float32 runs anywhere)."""
    return 4 if is_cpu(profile) else 2


def block_tokens(profile: AcceleratorProfileSpec) -> int:
    """Tokens of one KV block on this device: KV is taken in whole ones."""
    return OTHER_BLOCKS.get(profile.vendor, BLOCK_TOKENS)


def groups_of(facts: ModelFacts, profile: AcceleratorProfileSpec) -> KVGroups:
    """How the layers of a model keep KV on this device."""
    return kv_groups(facts, profile.vendor, block_tokens(profile))


def weights_bytes(facts: ModelFacts, element: int = 2) -> int:
    """All weights as they are stored, bytes. Quantisation touches the layers; embeddings and head keep 16 bits."""
    layers = facts.parameters - facts.embedding_parameters
    per_parameter = facts.weight_bytes_per_parameter if facts.quantization else element
    return int(layers * per_parameter) + facts.embedding_parameters * element


def kv_bytes_per_token_and_layer(facts: ModelFacts, tensor_parallel: int, element: float, scale: int = 0) -> float:
    """KV of one token in one layer on one rank, bytes; `scale` is of a token's key or value in one head.

    GQA and MQA: a rank has its share of the KV heads but at least one, so heads are replicated when there are more
    ranks than heads. MLA: the latent vector and the rotary key, replicated on every rank.
    """
    if facts.kv_lora_rank:
        return (facts.kv_lora_rank + (facts.qk_rope_head_dim or 0)) * element + scale
    heads = max(1, facts.num_key_value_heads // tensor_parallel)
    return heads * 2 * (facts.head_dim * element + scale)


def memory_budget(
    facts: ModelFacts, profile: AcceleratorProfileSpec, tensor_parallel: int, pipeline_parallel: int, load: EngineLoad
) -> MemoryBudget:
    """The budget of one replica. `kv_cache_tokens` is 0 when the weights leave no room.

    A KV block is of one group of layers (kv_groups.py), and each stage has its share of each group.
    """
    element, ranks = element_bytes(profile), tensor_parallel * pipeline_parallel
    layers = -(-facts.num_hidden_layers // pipeline_parallel)  # of the fullest stage
    groups = groups_of(facts, profile)
    usable = int(device_bytes(profile) * load.utilization)
    overhead = _overhead(profile, ranks, load.max_num_seqs)
    activation = _activation_bytes(facts, tensor_parallel, load, element)
    weights = weights_bytes(facts, element) + padding_bytes(facts, profile, tensor_parallel)
    stage = weights if pipeline_parallel == 1 else _stage_weights(facts, weights, layers, element)
    free = usable - overhead - activation - -(-stage // tensor_parallel)
    kv = kv_format(load.kv_cache_dtype, element)
    token_bytes = kv_bytes_per_token_and_layer(facts, tensor_parallel, kv.element, kv.scale)
    page = token_bytes * groups.block * -(-groups.width // pipeline_parallel)
    request, longest = groups.running(load.request_tokens), _longest(groups, load, pipeline_parallel)
    if is_cpu(profile):
        free = min(free // GIB * GIB, _cpu_kv_space(page, load.max_num_seqs * request, longest))
    blocks = max(0, int(free // page))
    tokens = groups.tokens(blocks)
    per_token = int(token_bytes * facts.num_hidden_layers * tensor_parallel)
    return MemoryBudget(
        weights_bytes=weights,
        kv_bytes_per_token=per_token,
        kv_cache_tokens=tokens,
        max_concurrent_requests=blocks // request,
        max_concurrent_at_maximum_length=blocks // longest,
        kv_cache_bytes=tokens * per_token,
        activation_bytes=activation * ranks,
        overhead_bytes=overhead * ranks,
        usable_bytes=usable * ranks,
        max_num_seqs=load.max_num_seqs,
    )


def _longest(groups: KVGroups, load: EngineLoad, stages: int) -> int:
    """Blocks that vLLM demands for one request of the maximum length. With asynchronous scheduling a step more than
    there are stages is in flight (`max_concurrent_batches`).
    """
    return groups.reserved(load.max_model_length, (stages + 1) * load.token_budget)


def _cpu_kv_space(bytes_per_block: float, running: int, longest: int) -> int:
    """What that many blocks of running requests can fill, or one of the maximum length, up to vLLM's default; in the
    whole GiB that vLLM takes.
    """
    need = bytes_per_block * max(running, longest)
    return min(CPU_KV_SPACE, math.ceil(need / GIB) * GIB)


def padding_bytes(facts: ModelFacts, profile: AcceleratorProfileSpec, tensor_parallel: int) -> int:
    """Zeros that vLLM adds to MXFP4 experts, bytes over all ranks of a replica: its kernels take whole tiles.

    A rank has whole blocks of 32 columns of each expert, then both widths grow to the kernel's tile
    (`mxfp4_round_up_hidden_size_and_intermediate_size`). gpt-oss-20b in Marlin is 2944 x 3072 instead of 2880 x 2880.
    """
    if facts.quantization != "mxfp4" or not facts.expert_parameters:
        return 0
    width, hidden = facts.moe_intermediate_size or facts.intermediate_size, facts.hidden_size
    column_tile, hidden_tile = _mxfp4_tiles(profile)
    columns = _round_up(_round_up(-(-width // tensor_parallel), MXFP4_BLOCK), column_tile) * tensor_parallel
    padded = columns * _round_up(hidden, hidden_tile) / (width * hidden)
    return int(facts.expert_parameters * MXFP4_BYTES * (padded - 1))


def _mxfp4_tiles(profile: AcceleratorProfileSpec) -> tuple[int, int]:
    """What an expert's columns and the hidden size are rounded up to by the kernel that vLLM takes by itself."""
    cuda = capability(profile)
    if cuda is None or cuda[0] == 10:
        return 256, 256  # FlashInfer's TRT-LLM kernel on SM100, and ROCm
    return (64, 1) if cuda[0] == 9 else (128, 256)  # Triton on SM90, Marlin elsewhere


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _stage_weights(facts: ModelFacts, total: int, layers: int, element: int) -> int:
    """Bytes of the fullest pipeline stage, with `layers`, out of `total`. The first and the last hold one embedding
    matrix each, and the first an image encoder.
    """
    embedding = facts.embedding_parameters * element
    one_matrix = (facts.vocab_size * facts.hidden_size + facts.other_parameters) * element
    return (total - embedding) * layers // facts.num_hidden_layers + one_matrix


def _activation_bytes(facts: ModelFacts, tensor_parallel: int, load: EngineLoad, element: int) -> int:
    """Peak on a rank: a step at the token budget (residuals and the widest layer), or the sampler after it."""
    hidden, expert = facts.hidden_size, facts.moe_intermediate_size or facts.intermediate_size
    attention = 3 * facts.num_attention_heads * facts.head_dim // tensor_parallel
    if facts.num_experts_per_tok:
        feed_forward = facts.num_experts_per_tok * (3 * expert // tensor_parallel + hidden)
    else:
        feed_forward = 3 * facts.intermediate_size // tensor_parallel
    step = load.token_budget * (4 * hidden + max(attention, feed_forward)) * element
    sampler = load.max_num_seqs * facts.vocab_size * SAMPLER_BYTES
    return max(int(step * ACTIVATION_SLACK), sampler)


def _overhead(profile: AcceleratorProfileSpec, ranks: int, max_num_seqs: int) -> int:
    if is_cpu(profile):
        return CPU_OVERHEAD
    communication = COMMUNICATION_OVERHEAD if ranks > 1 else 0
    return DEVICE_OVERHEAD + communication + GRAPH_BYTES * captured_graphs(profile, max_num_seqs)
