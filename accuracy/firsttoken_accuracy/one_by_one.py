"""LLMServingSim's recorded runs played again by the simulator, request by request.

Arrivals and lengths are those of the record; nothing of it is in any fit. The requests came from a script in the
engine's own process, as tokens (vLLM's AsyncLLM): neither HTTP nor tokenisation, so the stages outside the engine take
no time here. Prompts are computed whole: 7.6 % of their tokens were in the prefix cache, the record does not say whose.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import requests as arriving
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from firsttoken_accuracy.errors import Errors, quantile
from firsttoken_accuracy.records import BUDGET, requests
from firsttoken_accuracy.whole import LLAMA_8B, Table, facts, model

# max_num_seqs and KV blocks of 16 tokens, by the metadata beside the records (bench/**/meta.json of that repository).
# Of the RTX PRO 6000 those of a later release; never more than half of them are in use.
ENGINES = {"rtx_pro_6000_server": (128, 35_913), "rtx4090": (256, 2_588)}


@dataclass(frozen=True)
class Played:
    """One request. Seconds; each as (predicted, measured)."""

    ttft: tuple[float, float]
    tpot: tuple[float, float]


def play(system: str, table: Table) -> list[Played]:
    """All requests of a record in the order of their arrival, with the efficiencies of `table`."""
    given = sorted(requests(system), key=lambda r: r.arrival)
    start, (seqs, blocks) = given[0].arrival, ENGINES[system]
    settings = EngineSettings(token_budget=BUDGET, max_num_seqs=seqs, kv_blocks=blocks, prefix_caching=False)
    found: StepModel = model(facts(LLAMA_8B), system, table)
    sent = arriving([r.arrival - start for r in given], [r.prompt for r in given], [r.output for r in given])
    outcome = FastEngine(sent, settings, step_table(found, BUDGET, seqs)).run()
    return [
        Played(
            (float(outcome.ttft[i]), r.first - r.arrival),
            (float(outcome.tpot[i]), (r.last - r.first) / (r.output - 1)),
        )
        for i, r in enumerate(given)
    ]


def figures(table: Table) -> dict[str, float]:
    """Against the targets: MAPE in percent, on the GPU that is in the catalogue."""
    played = play("rtx_pro_6000_server", table)
    pairs = {"TTFT of single requests": [p.ttft for p in played], "TPOT of single requests": [p.tpot for p in played]}
    return {name: 100 * Errors.of(found).mape for name, found in pairs.items()}


def lines(table: Table) -> Iterator[str]:
    """Two Markdown tables: errors request by request, and quantiles side by side."""
    head = "rows | MAPE | median | P90 | bias |\n"
    yield f"| GPU | requests | what | {head}|---|---|---|---:|---:|---:|---:|---:|\n"
    everyone = {system: play(system, table) for system in ENGINES}
    for system, played in everyone.items():
        places = ENGINES[system][0]
        for name, part in (("all", played), (f"first {places}", played[:places]), ("later", played[places:])):
            yield f"| {system} | {name} | TTFT | {Errors.of(p.ttft for p in part).cells()} |\n"
            yield f"| {system} | {name} | TPOT | {Errors.of(p.tpot for p in part).cells()} |\n"
    yield "\n| GPU | what | predicted P50, P95, mean | measured |\n|---|---|---:|---:|\n"
    for system, played in everyone.items():
        yield f"| {system} | TTFT, s | {_spread((p.ttft for p in played), 1)} |\n"
        yield f"| {system} | TPOT, ms | {_spread((p.tpot for p in played), 1e3)} |\n"


def _spread(pairs: Iterable[tuple[float, float]], unit: float) -> str:
    columns = []
    for values in map(sorted, zip(*pairs, strict=True)):
        shown = (quantile(values, 0.5), quantile(values, 0.95), sum(values) / len(values))
        columns.append(", ".join(f"{unit * v:.2f}" for v in shown))
    return " | ".join(columns)
