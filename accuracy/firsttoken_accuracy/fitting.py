"""The fit: a table of efficiencies for each generation out of the rows that are not kept out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firsttoken_accuracy import kernels
from firsttoken_accuracy.least_squares import STEPS, Parameter, Values, fit
from firsttoken_accuracy.served import served
from firsttoken_accuracy.tables import MEASURED, all_reduces, attentions, device, gemms
from firsttoken_accuracy.whole import Run

GENERATIONS: dict[str, tuple[str, ...]] = {
    "ampere": ("a100_sxm",),
    "ada": ("l40s",),
    "hopper": ("h100_sxm", "h200_sxm"),
    "blackwell": ("b200_sxm",),
    "other": MEASURED,
}
LINKS: dict[str, dict[str, tuple[str, ...]]] = {
    "ampere": {"nvlink": ("a100_sxm",)},
    "ada": {"pcie": ("l40s",)},
    "hopper": {"nvlink": ("h100_sxm", "h200_sxm")},
    "blackwell": {"nvlink": ("b200_sxm",)},
    "other": {
        "nvlink": ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"),
        "pcie": ("l40s", "rtx_pro_6000_server"),
    },
}
# Not fitted. The scheduler and launch: ENGINE.md (BLIS fitted 4 us a request). A layer has about five small kernels
# beside products and attention, 2 us each in a CUDA graph; from Python a kernel costs about 5 us to launch, and a layer
# has about ten. Both of the latter are estimates.
HOST = {"step_us": 130, "request_us": 4, "layer_us": 10, "eager_layer_us": 50}
# Qwen3-8B over 8x200 Gb/s (Mooncake docs): 0.54 ms for 128 tokens, 8.84 for 8,192.
TRANSFER = {"set_up_us": 410, "share": 0.735}
TILE_ROWS = 64  # of an expert's grouped product
Table = dict[str, Any]


def fit_table(intervals: Mapping[str, Any]) -> tuple[Table, Table]:
    """The product's whole file, intervals as given; and what belongs to the benchmark alone, for the report."""
    generations: Table = {}
    benchmark: Table = {}
    for name, systems in GENERATIONS.items():
        generations[name], benchmark[name] = apart_from_benchmark(kernel_sets(systems))
    for name, kinds in LINKS.items():
        for kind, systems in kinds.items():
            generations[name][kind] = link_set(systems)
    table: Table = {
        "generations": {**generations, "cpu": {}},
        "transfer": TRANSFER,
        "intervals": dict(intervals),
    }
    table["generations"]["other"]["host"] = {**HOST, "api_request_us": 15000.0, "api_token_us": 1.0}
    return fit_experts(table), benchmark


def link_set(systems: Iterable[str]) -> dict[str, float]:
    """All-reduces over one kind of link."""
    known = frozenset(systems)
    return _rounded(kernels.fit_link([r for r in all_reduces() if r.system in known and not r.out]))


def apart_from_benchmark(sets: Table) -> tuple[Table, Table]:
    """The product's parameters, and those that describe the benchmark (see kernels.py)."""
    product: Table = {}
    benchmark: Table = {}
    for section, kinds in sets.items():
        for kind, values in kinds.items():
            own = {n: v for n, v in values.items() if n in kernels.BENCHMARK}
            benchmark.setdefault(section, {})[kind] = own
            product.setdefault(section, {})[kind] = {n: v for n, v in values.items() if n not in own}
    return product, benchmark


def kernel_sets(
    systems: Iterable[str], *, every_row: bool = False, begin: Table | None = None, steps: int = STEPS
) -> Table:
    """Products and attention fitted on `systems`. `every_row`: kept-out shapes too, where a whole GPU is kept out.

    `begin`: sets to start from, benchmark's parameters included.
    """
    known, start = frozenset(systems), begin or {"gemm": {}, "attention": {}}
    gemm: dict[str, dict[str, float]] = {}
    for kind in ("bf16", "fp8", "fp8_block"):
        rows = [r for r in gemms() if r.system in known and r.kind == kind and (every_row or not r.out)]
        if rows:
            fixed = {n: gemm["fp8"][n] for n in kernels.LAUNCH_BOUND} if kind == "fp8_block" else {}
            gemm[kind] = _rounded(kernels.fit_gemm(rows, fixed, start["gemm"].get(kind, {}), steps))
    attention: dict[str, dict[str, float]] = {}
    for kind in ("bf16", "fp8"):
        both = [
            [r for r in attentions(phase) if r.system in known and r.kind == kind and (every_row or not r.out)]
            for phase in ("context", "generation")
        ]
        if both[0]:
            attention[kind] = _rounded(kernels.fit_attention(both[0], both[1], start["attention"].get(kind, {}), steps))
    return {"gemm": gemm, "attention": attention}


EXPERTS = ("floor_us", "mfu", "mbu")
BOUNDS = {"floor_us": (30.0, 0.0, 150.0), "mfu": (0.3, 0.02, 1.0), "mbu": (0.6, 0.1, 1.0)}
FORMATS = ("fp8", "mxfp4")


def fit_experts(table: Mapping[str, Any], runs: Sequence[Run] | None = None) -> Table:
    """Experts and API cost, on end-to-end runs. Twice: for Hopper and Blackwell apart, and over both for the others."""
    runs = [run for run in served() if not run.out] if runs is None else runs
    apart = _fit_experts(table, runs, ("hopper", "blackwell"))
    together = _fit_experts(table, runs, ("other",))
    host = table["generations"]["other"]["host"]
    result = {**table, "generations": {name: dict(g) for name, g in table["generations"].items()}}
    result["generations"]["other"]["host"] = {**host, **_api(apart)}
    for generation in ("hopper", "blackwell"):
        result["generations"][generation]["experts"] = _experts(apart, generation)
    result["generations"]["other"]["experts"] = _experts(together, "other")
    return result


def _fit_experts(table: Mapping[str, Any], runs: Sequence[Run], generations: Sequence[str]) -> dict[str, float]:
    parameters = [Parameter("request", 15000, 0, 60000), Parameter("token", 1, 0, 20)]
    for kind in FORMATS:
        parameters.append(Parameter(f"{kind}.spread", 0.85, 0.4, 1))
        parameters += [Parameter(f"{g}.{kind}.{name}", *BOUNDS[name]) for g in generations for name in EXPERTS]
    last: list[Any] = [None, None]
    known: dict[Run, dict[tuple[float, ...], float]] = {}

    def predict(values: Values, run: Run) -> float:
        """A run depends on few of the parameters: where another one moved, its time is known already."""
        if last[0] is not values:
            last[:] = [values, _with_experts(table, values, generations)]
        times = known.setdefault(run, {})
        key = tuple(values[name] for name in _matter(run, generations))
        if key not in times:
            times[key] = run.predict(last[1])
        return times[key]

    # Prefills and decodes count alike, though there are three times as many of the latter.
    weights = {phase: 1.0 / sum(r.phase == phase for r in runs) for phase in ("prefill", "decode")}
    return _rounded(fit(parameters, runs, predict, lambda r: r.seconds, lambda r: 100 * weights[r.phase]))


def _matter(run: Run, generations: Sequence[str]) -> tuple[str, ...]:
    """The parameters that the time of a run depends on."""
    own = device(run.system).generation
    experts = f"{own if own in generations else generations[0]}.{run.experts}"
    return ("request", "token", f"{run.experts}.spread", *(f"{experts}.{name}" for name in EXPERTS))


def _with_experts(table: Mapping[str, Any], values: Values, generations: Sequence[str]) -> Table:
    changed = {name: dict(g) for name, g in table["generations"].items()}
    changed["other"]["host"] = {**changed["other"]["host"], **_api(values)}
    for name in ("hopper", "blackwell"):
        changed[name]["experts"] = _experts(values, name if name in generations else "other")
    return {**table, "generations": changed}


def _api(values: Values) -> dict[str, float]:
    return {"api_request_us": values["request"], "api_token_us": values["token"]}


def _experts(values: Values, generation: str) -> dict[str, dict[str, float]]:
    """No run has experts in 16 bits. MXFP4 on Hopper is multiplied in 16 bits: those kernels are the nearest."""
    found = {
        kind: {
            **{name: values[f"{generation}.{kind}.{name}"] for name in EXPERTS},
            "spread": values[f"{kind}.spread"],
            "tile_rows": TILE_ROWS,
        }
        for kind in FORMATS
    }
    nearest = "hopper" if "hopper.mxfp4.mfu" in values else generation
    sixteen = {name: values[f"{nearest}.mxfp4.{name}"] for name in EXPERTS}
    return {"bf16": {**found["mxfp4"], **sixteen}, **found}


def leave_one_out() -> dict[str, Table]:
    """Kernel sets for each GPU, fitted without it: on its generation if that has another GPU, else on all others."""
    found = {}
    for system in MEASURED:
        others = [s for s in MEASURED if s != system]
        peers = [s for s in others if device(s).generation == device(system).generation]
        found[system] = kernel_sets(peers or others, every_row=True)
    return found


def _rounded(values: Values) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}
