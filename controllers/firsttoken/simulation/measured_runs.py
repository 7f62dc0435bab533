"""Measured runs of a closed loop, as AIConfigurator's table e2e_vllm has them, each with the engine that ran it.

What a row does not say is taken from the benchmark that these runs are from (InferenceMAX, now InferenceX: public
scripts) where its scripts say it, else vLLM's default. Docs: docs/simulator.md.
"""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.memory import BLOCK_TOKENS, EngineLoad, memory_budget
from firsttoken.planning.numerics import choose_numerics
from firsttoken.planning.parallelism import why_not_divisible
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.efficiency import Efficiencies, efficiencies
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.measured_models import SYSTEMS, measured_facts, measured_profile
from firsttoken.simulation.settings import NULL_BLOCKS

NEEDED = (
    "system", "model_path", "precision", "isl", "osl", "concurrency", "tp_size", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
# vLLM's server default for these GPUs, and what the benchmark's scripts pass for gpt-oss.
TOKEN_BUDGET = 8192
MAX_NUM_SEQS = 1024  # vLLM's default for these GPUs; of each attention rank
MINIMAX_SEQS = {"h100_sxm": 256}  # what the script for that GPU passes; the others pass nothing
AS_CLIENTS = ("openai/gpt-oss-120b", "meta-llama/", "moonshotai/")  # --max-num-seqs $CONC
# vLLM's default of those versions, which most scripts repeat; those for MiniMax in FP8 but on H100 say 0.95.
UTILIZATION = 0.9
MINIMAX_UTILIZATION = 0.95
CONTEXT_ROOM = 200  # --max-model-len beyond prompt and output, as the scripts compute it
MOST_CLIENTS = 16_384
# The benchmark sends ten requests for each client, all clients at once, so a tenth of its mean TTFT is the queue at the
# start: a longer run would come closer to a steady state, and further from what was measured.
REQUESTS_A_CLIENT = 10
SHORTEST = 0.8  # of the row's lengths: --random-range-ratio, lengths are uniform from there to the whole
MEAN_LENGTH = (1 + SHORTEST) / 2


@dataclass(frozen=True)
class MeasuredRun:
    """One row. Times in seconds, lengths in tokens; prompts and outputs are drawn up to these lengths."""

    line: int
    system: str
    model: str
    precision: str
    version: str  # of vLLM; "" where the row does not say
    prompt: int
    output: int
    clients: int  # over all attention ranks
    tensor_parallel: int  # GPUs of the run
    attention_ranks: int
    pipeline_parallel: int
    expert_ranks: int  # ranks with whole experts; 1: each has a slice of every expert
    ttft: float
    tpot: float

    @property
    def configuration(self) -> tuple[object, ...]:
        """All that a prediction depends on: equal ones are predicted once."""
        left = ("line", "ttft", "tpot", "expert_ranks")
        return tuple(value for name, value in vars(self).items() if name not in left)

    @property
    def kv_cache_dtype(self) -> str:
        """vLLM's name. NVIDIA's own checkpoints (FP4 ones, Llama on H200) name FP8, which `auto` follows.

        The scripts pass FP8 for gpt-oss on Blackwell, and for MiniMax from vLLM 0.19 on.
        """
        blackwell = self.system in ("b200_sxm", "b300_sxm", "gb200_sxm")
        if self.model == "openai/gpt-oss-120b":
            return "fp8" if blackwell else "auto"
        if self.model.startswith("MiniMaxAI/") and self.precision == "fp8":
            return "fp8" if blackwell and self.version not in ("0.17.0", "0.18.0") else "auto"
        nvidia = self.precision in ("fp4", "nvfp4") or (
            self.model.startswith("meta-llama/") and self.system == "h200_sxm"
        )
        return "fp8" if nvidia and self.precision in ("fp4", "nvfp4", "fp8") else "auto"

    @property
    def max_num_seqs(self) -> int:
        """--max-num-seqs, of each attention rank; the sampler's memory grows with it."""
        minimax = self.model.startswith("MiniMaxAI/")
        if minimax and self.precision == "fp8":
            return MINIMAX_SEQS.get(self.system, MAX_NUM_SEQS)
        if minimax or self.model.startswith(AS_CLIENTS):
            return min(MAX_NUM_SEQS, -(-self.clients // self.attention_ranks))
        return MAX_NUM_SEQS

    @property
    def utilization(self) -> float:
        """--gpu-memory-utilization."""
        fp8 = self.model.startswith("MiniMaxAI/") and self.precision == "fp8"
        return MINIMAX_UTILIZATION if fp8 and self.system != "h100_sxm" else UTILIZATION


@dataclass(frozen=True, eq=False)
class MeasuredEngine:
    """What ran a row: its model in its weights, on its GPUs."""

    facts: ModelFacts
    profile: AcceleratorProfileSpec
    run: MeasuredRun
    found: Callable[[Device], Efficiencies] = efficiencies

    @cached_property
    def model(self) -> StepModel:
        """The planner's time model of it."""
        device = device_from_profile(self.profile)
        return StepModel(self.facts, device, found=self.found(device), **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """What the time model has to know of the engine beside model and GPU."""
        run = self.run
        return {
            "tensor_parallel": run.tensor_parallel,
            "kv_cache_dtype": run.kv_cache_dtype,
            "max_num_seqs": run.max_num_seqs,
        }

    @property
    def max_num_seqs(self) -> int:
        """Running requests at most, over all attention ranks."""
        return self.run.max_num_seqs * self.run.attention_ranks

    def kv_blocks(self) -> int:
        """KV blocks of 16 tokens. Raises SimulationInputError: model and one request do not fit."""
        run = self.run
        longest = run.prompt + run.output + CONTEXT_ROOM
        load = EngineLoad(
            TOKEN_BUDGET, run.max_num_seqs, longest, run.prompt + run.output, run.utilization, run.kv_cache_dtype
        )
        tokens = memory_budget(self.facts, self.profile, run.tensor_parallel, 1, load).kv_cache_tokens
        if tokens - NULL_BLOCKS * BLOCK_TOKENS < run.prompt + run.output:
            raise SimulationInputError(
                f"{run.tensor_parallel} x {self.profile.product} have room for {tokens} tokens of KV beside the "
                f"weights of {self.facts.name} in {run.precision}: check system, tp_size and precision"
            )
        return tokens // BLOCK_TOKENS - NULL_BLOCKS


def read_runs(lines: Iterable[str], name: str) -> tuple[list[MeasuredRun], dict[int, str]]:
    """The runs of a CSV file, and by line number why the others can't be read. `name` of the file, for messages.

    Raises SimulationInputError: no header, or one without a column that every row needs.
    """
    rows = csv.DictReader(lines)
    try:
        header = rows.fieldnames
    except csv.Error as error:
        raise SimulationInputError(f"{name}: no CSV: {error}") from error
    missing = [column for column in NEEDED if column not in (header or ())]
    if missing:
        raise SimulationInputError(
            f"{name}: no column {', '.join(missing)}: the first line must name the columns of AIConfigurator's "
            f"e2e_vllm ({', '.join(NEEDED)})"
        )
    runs: list[MeasuredRun] = []
    refused: dict[int, str] = {}
    for line, row in _numbered(rows, name):
        try:
            runs.append(_run(line, row))
        except SimulationInputError as error:
            refused[line] = str(error)
    return runs, refused


def _numbered(rows: "csv.DictReader[str]", name: str) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise SimulationInputError(f"{name}:{rows.line_num}: no CSV: {error}") from error


def engine_of(run: MeasuredRun, found: Callable[[Device], Efficiencies] = efficiencies) -> MeasuredEngine:
    """The engine of a run; `found`: efficiencies other than the shipped ones, for the fit.

    Raises SimulationInputError, one line: what of it is not known or not modelled.
    """
    profile = measured_profile(run.system)
    if profile is None:
        known = ", ".join((*SYSTEMS, "b300_sxm"))
        raise SimulationInputError(f"system {run.system!r} is not known: name one of {known} or an AcceleratorProfile")
    facts = measured_facts(run.model, run.precision)
    if isinstance(facts, str):
        raise SimulationInputError(facts)
    if run.pipeline_parallel != 1:
        raise SimulationInputError("pp_size: pipeline stages overlap batches, which the simulator does not model")
    split = why_not_divisible(facts, run.tensor_parallel)
    # MiniMax on 8 GPUs ran with whole experts on each, which has no such bound; its time is that of an even split.
    if split is not None and facts.num_attention_heads % run.tensor_parallel:
        raise SimulationInputError(f"tp_size is {run.tensor_parallel}: {split}")
    try:
        choose_numerics(facts, [profile])
    except InfeasibleError as error:
        raise SimulationInputError(error.infeasible.message) from error
    return MeasuredEngine(facts, profile, run, found)


def _run(line: int, row: Mapping[str, str | None]) -> MeasuredRun:
    ranks = _whole(row, "attention_dp_size", 1)
    clients = _whole(row, "concurrency")
    if clients * ranks > MOST_CLIENTS:
        raise SimulationInputError(f"concurrency is {clients}: more than {MOST_CLIENTS} clients are not simulated")
    return MeasuredRun(
        line=line,
        system=_text(row, "system"),
        model=_text(row, "model_path"),
        precision=_text(row, "precision").lower(),
        version=(row.get("backend_version") or "").strip(),
        prompt=_whole(row, "isl"),
        output=_whole(row, "osl"),
        # Such rows count the clients of one attention rank: those of Kimi-K2.5 on 4 ranks with 1 to 16 clients repeat,
        # to the last digit, those without ranks and 4 to 64 clients.
        clients=clients * ranks,
        tensor_parallel=_whole(row, "tp_size"),
        attention_ranks=ranks,
        pipeline_parallel=_whole(row, "pp_size", 1),
        expert_ranks=_whole(row, "moe_ep_size", 1),
        ttft=_number(row, "silicon_ttft_ms") / 1e3,
        tpot=_number(row, "silicon_tpot_ms") / 1e3,
    )


def _text(row: Mapping[str, str | None], column: str) -> str:
    found = (row.get(column) or "").strip()
    if not found:
        raise SimulationInputError(f"{column} is empty")
    return found


def _number(row: Mapping[str, str | None], column: str) -> float:
    text = _text(row, column)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise SimulationInputError(f"{column} is {text!r}: give a number above 0")
    return found


def _whole(row: Mapping[str, str | None], column: str, default: int | None = None) -> int:
    if default is not None and not (row.get(column) or "").strip():
        return default
    found = _number(row, column)
    if found != int(found) or found > 2**24:
        raise SimulationInputError(f"{column} is {found:g}: give a whole number from 1 to {2**24}")
    return int(found)
