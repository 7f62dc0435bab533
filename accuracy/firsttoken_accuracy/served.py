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
from collections.abc import Callable, Iterator
from statistics import median

from firsttoken.planning.parallelism import why_not_divisible
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.measured_models import MINIMAX
from firsttoken_accuracy.tables import fold, rows
from firsttoken_accuracy.whole import Run, Table, model

TTFT_CLIENTS = 4
TPOT_CLIENTS = 16
SOURCE = "AIConfigurator e2e_vllm, at most {} clients"

# config.json on the hub.
MODELS = {
    "MiniMaxAI/MiniMax-M2.5": MINIMAX,
    "openai/gpt-oss-120b": ModelFacts(
        name="gpt-oss-120b", parameters=116_800_000_000, hidden_size=2880, num_hidden_layers=36,
        num_attention_heads=64, num_key_value_heads=8, head_dim=64, intermediate_size=2880, vocab_size=201088,
        max_position_embeddings=131072, sliding_window=128, num_experts=128, num_experts_per_tok=4,
        moe_intermediate_size=2880, weight_bytes_per_parameter=0.55, quantization="mxfp4",
    ),
}  # fmt: skip
WINDOWED = {"openai/gpt-oss-120b": 18}  # every other layer
FORMATS = {"MiniMaxAI/MiniMax-M2.5": "fp8", "openai/gpt-oss-120b": "fp4"}


def served() -> Iterator[Run]:
    """TTFT rows are whole prefills, TPOT rows decode steps. Kept out: whole (GPU, model, ranks, prompt length)."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    newest = _newest()
    for r in rows("e2e_vllm"):
        if _counts(r) and r["backend_version"] == newest[r["system"], r["model_path"]]:
            key = tuple(r[c] for c in ("system", "model_path", "tp_size", "isl", "osl", "concurrency"))
            groups[key].append((float(r["silicon_ttft_ms"]) / 1e3, float(r["silicon_tpot_ms"]) / 1e3))
    for (system, path, ranks, isl, osl, clients), times in sorted(groups.items()):
        part = fold("served", system, path, ranks, isl)
        label = f"{MODELS[path].name} TP{float(ranks):.0f} {isl}+{osl}, {float(clients):.0f} clients"
        numbers = (path, system, int(float(ranks)), int(isl), int(osl), int(float(clients)))
        if numbers[-1] <= TTFT_CLIENTS:
            seconds, source = median(t for t, _ in times), SOURCE.format(TTFT_CLIENTS)
            yield Run(source, "prefill", system, label, seconds, _with(ttft, numbers), part)
        if numbers[-1] <= TPOT_CLIENTS:
            seconds, source = median(t for _, t in times), SOURCE.format(TPOT_CLIENTS)
            yield Run(source, "decode", system, label, seconds, _with(tpot, numbers), part)


def ttft(found: StepModel, prompt: int, output: int, clients: int) -> float:
    """Mean TTFT of a closed loop: the API, half a running step, the prefill beside the others, and meeting another one.

    All clients start at once, so the first of the `REQUESTS_A_CLIENT` requests of each waits for half of the others.
    """
    others, context = clients - 1, prompt + output // 2
    running = (context,) * others
    prefill = found.prefill_seconds(prompt, 0, BUDGET, running)
    decode = found.decode_seconds(clients, context)
    # A client prefills this part of its time; who arrives meanwhile waits for half of the prefill on average.
    busy = prefill / (prefill + output * decode)
    wait = decode / 2 * (others > 0) + others * busy * prefill / 2
    start = others / 2 * prefill / REQUESTS_A_CLIENT
    return found.api_seconds(prompt) + wait + start + prefill


REQUESTS_A_CLIENT = 10  # of the benchmark these runs are from (InferenceMAX: ten prompts for each client)


def tpot(found: StepModel, prompt: int, output: int, clients: int) -> float:
    """Mean TPOT of a closed loop: a decode step, and one prefill of each other client while `output` tokens come."""
    context = prompt + output // 2
    decode = found.decode_seconds(clients, context)
    others = (context,) * (clients - 1)
    steps = -(-prompt // (BUDGET - clients + 1))
    delay = max(0.0, found.prefill_seconds(prompt, 0, BUDGET, others) - steps * decode)
    return decode + (clients - 1) * delay / output


BUDGET = 8192  # vLLM's default for servers on these GPUs


def _with(
    formula: Callable[[StepModel, int, int, int], float], numbers: tuple[str, str, int, int, int, int]
) -> Callable[[Table], float]:
    path, system, ranks, prompt, output, clients = numbers

    def predict(table: Table) -> float:
        found = model(MODELS[path], system, table, tensor_parallel=ranks, windowed_layers=WINDOWED.get(path))
        return formula(found, prompt, output, clients)

    return predict


def _counts(row: dict[str, str]) -> bool:
    one = all(float(row[c]) == 1 for c in ("pp_size", "attention_dp_size", "moe_ep_size"))
    known = FORMATS.get(row["model_path"]) == row["precision"]
    released = row["backend_version"] and "nightly" not in row["backend_version"]
    split = why_not_divisible(MODELS[row["model_path"]], int(float(row["tp_size"]))) is None if known else False
    return one and split and bool(released) and float(row["concurrency"]) <= TPOT_CLIENTS


def _newest() -> dict[tuple[str, str], str]:
    newest: dict[tuple[str, str], str] = {}
    for r in rows("e2e_vllm"):
        key = (r["system"], r["model_path"])
        if _counts(r):
            newest[key] = max(newest.get(key, "0.0.0"), r["backend_version"], key=_version)
    return newest


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
