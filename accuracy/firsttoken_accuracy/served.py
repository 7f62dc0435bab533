"""End-to-end runs of vLLM under a fixed number of clients: mean TTFT and TPOT at low concurrency (e2e_vllm.csv).

Which rows count is decided by rules (docs/accuracy.md says which of them came after a look at errors):
- models and formats that Firsttoken plans: MiniMax-M2.5 in FP8 and gpt-oss-120b in MXFP4. NVFP4 and INT4 experts are
  formats it does not plan;
- tensor parallelism only: neither data-parallel attention nor expert parallelism, which Firsttoken does not render;
- splits that vLLM accepts: MiniMax-M2.5 on 8 ranks would cut the 128x128 blocks of its scales ("not divisible by weight
  quantization block_n"), so rows that say so have some other split;
- of each GPU, model and format the newest release of vLLM in the table (no nightlies): the product pins 0.32;
- at most 4 clients for TTFT and 16 for TPOT: beyond, TTFT is queueing and a matter of the simulator.
Equal configurations from several sources count once, by their median.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from statistics import median

from firsttoken.planning.parallelism import why_not_divisible
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.measured_models import measured_facts
from firsttoken.simulation.measured_runs import (
    MEAN_LENGTH,
    REQUESTS_A_CLIENT,
    TOKEN_BUDGET,
    MeasuredEngine,
    MeasuredRun,
    engine_of,
    read_runs,
)
from firsttoken_accuracy.tables import DATA, fold
from firsttoken_accuracy.whole import Run, Table, model

TTFT_CLIENTS = 4
TPOT_CLIENTS = 16
SOURCE = "AIConfigurator e2e_vllm, at most {} clients"

FORMATS = {"MiniMaxAI/MiniMax-M2.5": "fp8", "openai/gpt-oss-120b": "fp4"}
EXPERTS = {"MiniMaxAI/MiniMax-M2.5": "fp8", "openai/gpt-oss-120b": "mxfp4"}  # as the table of efficiencies has it


def served() -> Iterator[Run]:
    """TTFT rows are whole prefills, TPOT rows decode steps. Kept out: whole (GPU, model, ranks, prompt length)."""
    runs = [
        run for run in read_runs((DATA / "e2e_vllm.csv").read_text().splitlines(), "e2e_vllm.csv")[0] if _counts(run)
    ]
    newest = _newest(runs)
    groups: dict[tuple[str | int, ...], list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        if run.version == newest[run.system, run.model]:
            key = (run.system, run.model, f"{run.tensor_parallel:.1f}", run.prompt, run.output, run.clients)
            groups[key].append(run)
    for _, equal in sorted(groups.items(), key=lambda group: tuple(map(str, group[0]))):
        run, engine = equal[0], engine_of(equal[0])
        label = f"{engine.facts.name} TP{run.tensor_parallel} {run.prompt}+{run.output}, {run.clients} clients"
        for phase, most, formula in (("prefill", TTFT_CLIENTS, ttft), ("decode", TPOT_CLIENTS, tpot)):
            if run.clients <= most:
                seconds = median(r.ttft if phase == "prefill" else r.tpot for r in equal)
                predict = _with(formula, engine)
                kind = EXPERTS[run.model]
                yield Run(SOURCE.format(most), phase, run.system, label, seconds, predict, part(run), kind)


def part(run: MeasuredRun) -> int:
    """Which of the four parts a row belongs to, in every fit: they are kept out together."""
    return fold("served", run.system, run.model, f"{run.tensor_parallel:.1f}", run.prompt)


def ttft(found: StepModel, prompt: int, output: int, clients: int) -> float:
    """Mean TTFT of a closed loop: the API, half a running step, the prefill beside the others, and meeting another one.

    All clients start at once, so the first of the `REQUESTS_A_CLIENT` requests of each waits for half of the others.
    """
    others, context = clients - 1, prompt + output // 2
    running = (context,) * others
    prefill = found.prefill_seconds(prompt, 0, TOKEN_BUDGET, running)
    decode = found.decode_seconds(clients, context)
    # A client prefills this part of its time; who arrives meanwhile waits for half of the prefill on average.
    busy = prefill / (prefill + output * decode)
    wait = decode / 2 * (others > 0) + others * busy * prefill / 2
    start = others / 2 * prefill / REQUESTS_A_CLIENT
    return found.api_seconds(prompt) + wait + start + prefill


def tpot(found: StepModel, prompt: int, output: int, clients: int) -> float:
    """Mean TPOT of a closed loop: a decode step, and one prefill of each other client while `output` tokens come."""
    context = prompt + output // 2
    decode = found.decode_seconds(clients, context)
    others = (context,) * (clients - 1)
    steps = -(-prompt // (TOKEN_BUDGET - clients + 1))
    delay = max(0.0, found.prefill_seconds(prompt, 0, TOKEN_BUDGET, others) - steps * decode)
    return decode + (clients - 1) * delay / output


def _with(formula: Callable[[StepModel, int, int, int], float], engine: MeasuredEngine) -> Callable[[Table], float]:
    """Lengths are the mean of what the benchmark draws, which the simulator draws one by one."""
    run = engine.run
    lengths = (round(MEAN_LENGTH * run.prompt), round(MEAN_LENGTH * run.output))

    def predict(table: Table) -> float:
        return formula(model(engine.facts, run.system, table, **engine.options), *lengths, run.clients)

    return predict


def _counts(run: MeasuredRun) -> bool:
    one = run.pipeline_parallel == run.attention_ranks == run.expert_ranks == 1
    released = run.version and "nightly" not in run.version
    if FORMATS.get(run.model) != run.precision or not one or not released or run.clients > TPOT_CLIENTS:
        return False
    facts = measured_facts(run.model, run.precision)
    return isinstance(facts, ModelFacts) and why_not_divisible(facts, run.tensor_parallel) is None


def _newest(runs: Iterable[MeasuredRun]) -> dict[tuple[str, str], str]:
    newest: dict[tuple[str, str], str] = {}
    for run in runs:
        key = (run.system, run.model)
        newest[key] = max(newest.get(key, "0.0.0"), run.version, key=_version)
    return newest


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
