"""Checked-in efficiencies of kernels and links are what the fit makes: fitted again, or a step on where that is slow.

Experts are fitted on runs that the simulator plays, which takes minutes.
"""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import pytest
import yaml

from firsttoken.planning.timing.efficiency import table
from firsttoken_accuracy.__main__ import FITS
from firsttoken_accuracy.evaluate import KERNELS, kernel_pairs, own_sets
from firsttoken_accuracy.fitting import GENERATIONS, LINKS, apart_from_benchmark, kernel_sets, link_set
from firsttoken_accuracy.tables import MEASURED, device

Sets = Mapping[str, Any]


def benchmark() -> Sets:
    found: Sets = yaml.safe_load(FITS.read_text())["benchmark"]
    return found


def shipped(generation: str) -> Sets:
    """Of a generation, with what the fit keeps apart for the benchmark."""
    own, apart = table()["generations"][generation], benchmark()[generation]
    return {s: {k: {**v, **apart[s][k]} for k, v in own[s].items()} for s in ("gemm", "attention")}


def moved(before: Sets, after: Sets, system: str) -> float:
    """How far predictions of a GPU are from each other by two sets, relative: mean over rows, of the worst kernel."""
    both = [(kernel_pairs(k, system, before), kernel_pairs(k, system, after)) for k in KERNELS]
    return max(mean(abs(a / b - 1) for (a, _), (b, _) in zip(old, new, strict=True)) for old, new in both if old)


@pytest.mark.parametrize("generation", ["ampere", "ada", "hopper", "blackwell"])
def test_another_step_of_the_kernels_fit_moves_nothing(generation: str) -> None:
    systems = GENERATIONS[generation]
    again = kernel_sets(systems, begin=shipped(generation), steps=1)
    for system in systems:
        assert moved(shipped(generation), again, system) < 0.001


def test_a_value_that_no_fit_made_would_be_moved_back() -> None:
    """The test above can fail: 3 % more of one efficiency are not a place where a fit ends."""
    good = shipped("ampere")
    bad = {**good, "gemm": {"bf16": {**good["gemm"]["bf16"], "mfu": 1.03 * good["gemm"]["bf16"]["mfu"]}}}
    again = kernel_sets(GENERATIONS["ampere"], begin=bad, steps=1)
    assert moved(bad, again, "a100_sxm") > 0.01


def test_products_of_one_generation_and_all_links_come_out_of_the_fit_digit_by_digit() -> None:
    """The smaller ones; the whole fit takes long."""
    for generation, kinds in LINKS.items():
        for kind, systems in kinds.items():
            assert table()["generations"][generation][kind] == pytest.approx(link_set(systems), rel=0.01)


def test_benchmark_parameters_are_apart_from_the_product_s() -> None:
    for generation in GENERATIONS:
        if generation != "other":
            product, _ = apart_from_benchmark(dict(shipped(generation)))
            own = table()["generations"][generation]
            assert product == {s: own[s] for s in ("gemm", "attention")}
    for system in MEASURED:
        assert own_sets(system, table(), benchmark()) == shipped(device(system).generation)
