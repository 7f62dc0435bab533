"""Random workloads for vLLM's own scheduler and for ours. Plain values: they are handed over as JSON."""

import random
from typing import Any

CASES = 72
SEED = 20_000


def cases() -> list[dict[str, Any]]:
    """Engines short of KV (blocks of 16 tokens) and their requests; `arrival`: number of the step.

    `family` and `shared`: requests of one family begin with so many tokens alike. With a bound on chunks two
    requests would compute the same beginning at one time, and whose copy is hit then is not held equal
    (docs/simulator.md); so such engines get requests that share nothing.
    """
    return [_case(number, random.Random(SEED + number)) for number in range(CASES)]


def _case(number: int, source: random.Random) -> dict[str, Any]:
    count, prioritised, threshold = source.randint(4, 22), source.random() < 0.35, source.choice([0, 0, 20])
    shares = [0] if threshold else [0, 64, 128]
    return {
        "ahead": number % 2 == 1,
        "max_num_seqs": source.choice([3, 8, 16]),
        "token_budget": source.choice([32, 64, 256]),
        "kv_blocks": source.choice([25, 25, 40, 400]),
        "threshold": threshold,
        "priorities": prioritised,
        "full_prompt_fits": source.random() < 0.7,
        "watermark": source.choice([0.0, 0.0, 0.1]),
        "caching": source.random() < 0.8,
        "prompt": [source.randint(1, 200) for _ in range(count)],
        # One token at least beyond the first: vLLM's asynchronous scheduler is stepped without its engine core.
        "output": [80, *(source.randint(2, 80) for _ in range(count - 1))],
        "arrival": [0, 0, *sorted(source.randint(2, 25) for _ in range(count - 2))],
        "priority": [source.randint(-2, 2) if prioritised else 0 for _ in range(count)],
        "family": [source.randrange(3) for _ in range(count)],
        "shared": [source.choice(shares) for _ in range(count)],
    }
