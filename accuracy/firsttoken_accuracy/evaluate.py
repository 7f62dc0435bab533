"""Predictions against measurements, by source: what the report prints and the intervals rest on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from firsttoken_accuracy import kernels
from firsttoken_accuracy.errors import quantile
from firsttoken_accuracy.one_by_one import play
from firsttoken_accuracy.records import recorded
from firsttoken_accuracy.served import served
from firsttoken_accuracy.tables import FOLDS, MEASURED, all_reduces, attentions, device, gemms
from firsttoken_accuracy.whole import Run, distserve, published, splitwise

Table = Mapping[str, Any]
Pair = tuple[float, float]  # predicted, measured
# No kernel of theirs or of a GPU that resembles them is in a fit (the RTX 4090 is a consumer card on the L40S's chip).
NEVER_MEASURED = ("rtx_pro_6000_server", "rtx4090")
# GPUs with kernels in the fit of which no whole step of an engine of today was published.
KERNELS_ONLY = tuple(system for system in MEASURED if not device(system).steps_measured)
PHASES = ("prefill", "decode")
KERNELS = ("gemm bf16", "gemm fp8", "gemm fp8_block", "prefill bf16", "prefill fp8", "decode bf16", "decode fp8")


def kernel_pairs(name: str, system: str, sets: Table, *, out: bool | None = None) -> list[Pair]:
    """Rows of one kernel on one GPU with the parameters in `sets`; `out`: only rows kept out of the fit, or in it."""
    kernel, kind = name.split()
    if kernel == "gemm":
        values = sets["gemm"].get(kind)
        rows: Sequence[Any] = [r for r in gemms() if r.system == system and r.kind == kind]
        predict: Callable[..., float] = kernels.gemm_predicted
    else:
        values = sets["attention"].get(kind)
        phase = "context" if kernel == "prefill" else "generation"
        rows = [r for r in attentions(phase) if r.system == system and r.kind == kind]
        predict = kernels.prefill_predicted if kernel == "prefill" else kernels.decode_predicted
    if values is None:
        return []
    return [(predict(values, r), r.seconds) for r in rows if out is None or r.out == out]


def own_sets(system: str, table: Table, benchmark: Table) -> Table:
    """Parameters of a GPU's generation, those of the benchmark beside them."""
    generation = device(system).generation
    merged: dict[str, dict[str, Any]] = {}
    for section in ("gemm", "attention"):
        merged[section] = {
            kind: {**values, **benchmark[generation][section][kind]}
            for kind, values in table["generations"][generation][section].items()
        }
    return merged


def all_reduce_pairs(table: Table, *, out: bool) -> list[Pair]:
    """All GPUs of the table with the set that the product takes for them."""
    pairs = []
    for row in all_reduces():
        if row.out == out:
            gpu = device(row.system)
            kind = "nvlink" if gpu.link else "pcie"
            sets = table["generations"]
            values = sets[gpu.generation].get(kind, sets["other"][kind])
            pairs.append((kernels.all_reduce_predicted(values, row), row.seconds))
    return pairs


def whole_runs() -> list[Run]:
    """Every whole prefill and decode step."""
    return list(chain(served(), published(), recorded(), distserve(), splitwise()))


def pairs_of(runs: Iterable[Run], table: Table) -> list[Pair]:
    """Predicted and measured seconds."""
    return [(run.predict(table), run.seconds) for run in runs]


def folds(table: Table, fit: Callable[[Table, Sequence[Run]], Table]) -> Iterator[tuple[Run, Pair]]:
    """Each end-to-end run predicted by a fit that never saw its group: the four parts kept out in turn."""
    runs = list(served())
    for part in range(FOLDS):
        refitted = fit(table, [r for r in runs if r.fold != part])
        for run in runs:
            if run.fold == part:
                yield run, (run.predict(refitted), run.seconds)


def without(system: str, table: Table, left_out: Mapping[str, Table]) -> Table:
    """The table as it would be had `system` never been measured: its kernels from the fit without it.

    Links, too, are those of the other generations. Experts stay: they are known from whole steps only.
    """
    generation = device(system).generation
    kept = {k: v for k, v in table["generations"][generation].items() if k == "experts" or _has_peer(system)}
    product = {
        section: {
            kind: {n: v for n, v in values.items() if n not in kernels.BENCHMARK} for kind, values in kinds.items()
        }
        for section, kinds in left_out[system].items()
    }
    return {**table, "generations": {**table["generations"], generation: {**kept, **product}}}


def unseen(table: Table, left_out: Mapping[str, Table], *, peer: bool) -> dict[str, list[tuple[Run, Pair]]]:
    """Whole steps by GPU, predicted without its kernels. `peer`: GPUs of whose generation another was measured."""
    found: dict[str, list[tuple[Run, Pair]]] = {}
    runs = whole_runs()
    for system in MEASURED:
        mine = [r for r in runs if r.system == system and not r.note]
        if mine and _has_peer(system) == peer:
            found[system] = _predicted(mine, without(system, table, left_out))
    for system in ("b300_sxm",) if peer else NEVER_MEASURED:
        found[system] = _predicted([r for r in runs if r.system == system], table)
    return found


def intervals(
    table: Table, in_turn: Iterable[tuple[Run, Pair]], left_out: Mapping[str, Table], benchmark: Table
) -> dict[str, dict[str, float]]:
    """Half-widths for each phase that hold 9 in 10 times that a fit never saw, never narrower for what is known less.

    measured: groups kept out, on GPUs whose kernels are in the fit. kernels: the same, times `kernel_excess`. familiar:
    each GPU of Hopper predicted from the other, and B300; the widest counts. unmeasured: B200 predicted from other
    generations, or the RTX cards together, with the TPOT of their requests one by one; the widest counts. rough: an
    assumed data sheet may be off by a factor of two.
    """
    turned = [(run, pair) for run, pair in in_turn if run.system in MEASURED]
    turned += _predicted([r for r in published() if not r.note], table)
    peers, strange = (unseen(table, left_out, peer=p) for p in (True, False))
    cards = [one for system in NEVER_MEASURED for one in strange[system]]
    found: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        known = _p90(turned, phase)
        kernel = known * max(kernel_excess(system, phase, table, benchmark) for system in KERNELS_ONLY)
        familiar = max(known, *(_p90(one, phase) for one in peers.values()))
        requests = [p.tpot for system in NEVER_MEASURED for p in play(system, table)] if phase == "decode" else []
        far = max(kernel, familiar, _p90(strange["b200_sxm"], phase), _p90(cards, phase, requests))
        widths = {"measured": known, "kernels": kernel, "familiar": familiar, "unmeasured": far, "rough": 1.0}
        for level, width in widths.items():
            found.setdefault(level, {})[phase] = round(width, 3)
    return found


def kernel_excess(system: str, phase: str, table: Table, benchmark: Table) -> float:
    """How many times wider the errors of a GPU's kernels are than those of GPUs with whole steps; 1 at least.

    By the P90 of products, or of the phase's attention if that is more, on shapes kept out, in BF16.
    """
    found = [1.0]
    for kernel in ("gemm bf16", f"{phase} bf16"):
        own, others = (
            [p for s in systems for p in kernel_pairs(kernel, s, own_sets(s, table, benchmark), out=True)]
            for systems in ((system,), [s for s in MEASURED if s not in KERNELS_ONLY])
        )
        found.append(_p90_of(own) / _p90_of(others))
    return max(found)


def _has_peer(system: str) -> bool:
    return any(device(s).generation == device(system).generation for s in MEASURED if s != system)


def _predicted(runs: Iterable[Run], table: Table) -> list[tuple[Run, Pair]]:
    return [(run, (run.predict(table), run.seconds)) for run in runs]


def _p90(found: Iterable[tuple[Run, Pair]], phase: str, more: Sequence[Pair] = ()) -> float:
    """Of one phase, and of what else belongs to it; 0 where there is nothing."""
    pairs = [pair for run, pair in found if run.phase == phase]
    return _p90_of([*pairs, *more]) if pairs or more else 0.0


def _p90_of(pairs: Sequence[Pair]) -> float:
    return quantile(sorted(abs(p / m - 1) for p, m in pairs), 0.9)
