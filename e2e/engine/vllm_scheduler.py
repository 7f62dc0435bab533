"""vLLM's own scheduler, stepped without a model. Run as a program, in an environment with the runtime-cpu packages.

`vllm_scheduler.py MODEL CASES RESULT`: the folder of a model, a JSON file of scheduler_cases, and the file for one list
a case: of each step the tokens that each request gets, by its number.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

BLOCK, LONGEST, MOST_STEPS = 16, 1024, 5000


def scheduler(model: str, case: dict[str, Any]) -> Scheduler:
    """As the engine core makes it. KV blocks are those that can be used: one more is vLLM's placeholder."""
    blocks = case["kv_blocks"] + 1
    cache = CacheConfig(block_size=BLOCK, gpu_memory_utilization=0.9, enable_prefix_caching=case["caching"])
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="float32", max_model_len=LONGEST, skip_tokenizer_init=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=case["max_num_seqs"],
            max_num_batched_tokens=case["token_budget"],
            max_model_len=LONGEST,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            long_prefill_token_threshold=case["threshold"],
            policy="priority" if case["priorities"] else "fcfs",
            scheduler_reserve_full_isl=case["full_prompt_fits"],
            watermark=case["watermark"],
            async_scheduling=case["ahead"],
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    cache.num_gpu_blocks = blocks
    layer = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return (AsyncScheduler if case["ahead"] else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], layer)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )


def request(case: dict[str, Any], number: int, hasher: Any) -> Request:
    """With tokens that nobody else has, but for what its family shares."""
    prompt, family = case["prompt"][number], case["family"][number]
    shared = min(case["shared"][number], prompt)
    tokens = [10_000 * (family + 1) + j for j in range(shared)]
    tokens += [1_000_000 + number * 2000 + j for j in range(prompt - shared)]
    return Request(
        request_id=str(number),
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=case["output"][number], ignore_eos=True),
        pooling_params=None,
        arrival_time=case["arrival"][number] + number * 1e-6,
        priority=case["priority"][number],
        block_hasher=hasher,
    )


def sampled(engine: Scheduler, step: Any) -> ModelRunnerOutput:
    """What a model would return of a step: one token, of its own, for each request that is not amid its prompt."""
    ids = list(step.num_scheduled_tokens)
    requests = [engine.requests[one] for one in ids]
    tokens = [
        [] if r.is_prefill_chunk else [7_000_000 + int(one) * 5000 + r.num_output_tokens]
        for one, r in zip(ids, requests, strict=True)
    ]
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={one: place for place, one in enumerate(ids)},
        sampled_token_ids=tokens,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def run(model: str, case: dict[str, Any]) -> list[dict[str, int]]:
    """Tokens of each step that has any. With asynchronous scheduling the step before it has not returned yet."""
    engine, hasher = scheduler(model, case), get_request_block_hasher(BLOCK, sha256)
    count, sent, steps, flying = len(case["prompt"]), 0, [], []
    for now in range(MOST_STEPS):
        while sent < count and case["arrival"][sent] <= now:
            engine.add_request(request(case, sent, hasher))
            sent += 1
        step = engine.schedule()
        flying.append((step, sampled(engine, step)))
        if step.total_num_scheduled_tokens:
            steps.append(dict(step.num_scheduled_tokens))
        if len(flying) > case["ahead"]:
            ended, output = flying.pop(0)
            if ended.total_num_scheduled_tokens:
                engine.update_from_output(ended, output)
        under_way = any(one.total_num_scheduled_tokens for one, _ in flying)
        if sent == count and not engine.has_unfinished_requests() and not under_way:
            return steps
    raise RuntimeError(f"requests are left after {MOST_STEPS} steps")


def main() -> None:
    """See the module."""
    model, given, result = sys.argv[1:]
    init_none_hash(sha256)
    Path(result).write_text(json.dumps([run(model, case) for case in json.loads(Path(given).read_text())]))


main()
