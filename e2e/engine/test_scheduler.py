"""vLLM's own scheduler, of the release in the runtime-cpu image, against the simulated engine: who gets which tokens.

Steps last a second, so both decide at the same moments. Nothing else of either is stood in for: vLLM's scheduler with
its block pool, and the exact engine. That the compiled engine does the same is what tests/simulation holds.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e.engine.scheduler_cases import cases

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.requests import requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken_accuracy.engine.server import ensure_runtime
from firsttoken_local.images import tiny_model
from firsttoken_local.images.recipe import PYTHON
from firsttoken_local.progress import Silent

BLOCK = 16
Steps = list[dict[str, int]]


class Seconds:
    """Every step takes one."""

    def step_seconds(self, chunks: Sequence[tuple[int, int]], contexts: Sequence[int]) -> tuple[float, float]:
        """Of the step and of the GPU."""
        assert chunks or contexts
        return 1.0, 1.0


class Told(Engine):
    """Keeps what each request gets."""

    granted: Steps

    def _run(self, start: float) -> None:
        self.granted.append({str(one.row): one.granted for one in self.running if one.granted})
        super()._run(start)


def simulated(case: dict[str, Any], *, hash_all: bool) -> tuple[Steps, int]:
    """Our steps, and how often somebody was preempted. `hash_all`: prompts name what nobody shares, too."""
    settings = EngineSettings(
        token_budget=case["token_budget"],
        max_num_seqs=case["max_num_seqs"],
        kv_blocks=case["kv_blocks"],
        block_tokens=BLOCK,
        long_prefill_threshold=case["threshold"],
        prefix_caching=case["caching"],
        priorities=case["priorities"],
        full_prompt_fits=case["full_prompt_fits"],
        watermark=case["watermark"],
        schedule_ahead=case["ahead"],
    )
    # Ahead, a step is composed when the one before it begins, a second early.
    arrival = np.maximum(0.0, np.array(case["arrival"], float) - case["ahead"])
    lengths, hashes = (case["prompt"], case["output"]), [hashed(case, i, hash_all) for i in range(len(arrival))]
    engine = Told(requests(arrival, *lengths, priority=case["priority"], block_hashes=hashes), settings, Seconds())
    engine.granted = []
    engine.run()
    return engine.granted, sum(one.preempted for one in engine.rows)


def hashed(case: dict[str, Any], number: int, hash_all: bool) -> list[int]:
    """Of each full block of a prompt."""
    prompt, family = case["prompt"][number], case["family"][number]
    shared = min(case["shared"][number], prompt) // BLOCK
    own = [100_000 + number * 100 + block for block in range(shared, prompt // BLOCK)] if hash_all else []
    return [*((family + 1) * 1000 + block for block in range(shared)), *own]


@pytest.fixture(scope="module")
def theirs() -> list[Steps]:
    """vLLM's steps of all cases: one process, since it takes half a minute to start on a busy machine."""
    with tempfile.TemporaryDirectory(prefix="firsttoken-vllm-") as name:
        folder = Path(name)
        runtime = ensure_runtime(folder / "modules", Silent())
        (folder / "model").mkdir()
        for file, data in tiny_model.files().items():
            (folder / "model" / file).write_bytes(data)
        (folder / "cases.json").write_text(json.dumps(cases()))
        python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
        argv = [python, Path(__file__).with_name("vllm_scheduler.py"), folder / "model"]
        argv += [folder / "cases.json", folder / "steps.json"]
        done = subprocess.run(
            list(map(str, argv)), env=runtime.environment(folder), cwd=folder, capture_output=True, text=True,
            timeout=570.0, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        found: list[Steps] = json.loads((folder / "steps.json").read_text())
        return found


def test_cases_hold_what_matters() -> None:
    """Preemption with and without prefix caching, synchronous and ahead, by priority; bounded chunks, watermarks."""
    found = [(case, simulated(case, hash_all=False)[1]) for case in cases()]
    starved = [case for case, preempted in found if preempted]
    assert len(found) >= 60
    for ahead in (False, True):
        mine = [case for case in starved if case["ahead"] == ahead]
        assert sum(case["caching"] and not case["priorities"] for case in mine) >= 8
        assert sum(case["caching"] and case["priorities"] for case in mine) >= 4
        assert sum(not case["caching"] for case in mine) >= 2
        assert sum(case["threshold"] > 0 for case in mine) >= 4
        assert sum(case["watermark"] > 0 for case in mine) >= 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("hash_all", [False, True], ids=["shared blocks named", "all blocks named"])
def test_each_step_gives_the_same_requests_the_same_tokens(theirs: list[Steps], hash_all: bool) -> None:
    different = {}
    for number, (case, steps) in enumerate(zip(cases(), theirs, strict=True)):
        ours, _ = simulated(case, hash_all=hash_all)
        if ours != steps:
            first = next((k for k, (a, b) in enumerate(zip(ours, steps, strict=False)) if a != b), None)
            different[number] = (first, ours[first] if first is not None else len(ours), steps[first or 0])
    assert not different
