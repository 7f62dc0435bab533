"""Whole prefills and decode steps that were measured on real engines, each with how to predict it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import build
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken_accuracy.tables import device, rows

Table = Mapping[str, Any]  # a parsed efficiency.yaml


@dataclass(frozen=True)
class Run:
    """One measured time. `predict` gives seconds for a table of efficiencies."""

    source: str
    phase: str  # prefill, decode
    system: str
    label: str
    seconds: float
    predict: Callable[[Table], float]
    fold: int = 0  # part that is kept out together; 0 is kept out of the shipped fit
    experts: str = ""  # their number format, where they are what is fitted on it
    note: str = ""  # why it is shown but not counted

    @property
    def out(self) -> bool:
        """Whether the shipped fit never saw it."""
        return self.fold == 0


def facts(uri: str) -> ModelFacts:
    """Of a model in the product's catalogue."""
    found = model_facts(ModelSpec.model_validate({"uri": f"hf://{uri}"}))
    if not isinstance(found, ModelFacts):
        raise TypeError(found.message)
    return found


def model(shape: ModelFacts, system: str, table: Table, **options: Any) -> StepModel:
    """A StepModel with the efficiencies of `table`; kept as long as the same table is asked for."""
    if _CACHE.table is not table:
        _CACHE.table, _CACHE.models = table, {}
    key = (shape, system, tuple(sorted(options.items())))
    if key not in _CACHE.models:
        gpu: Device = device(system)
        _CACHE.models[key] = StepModel(shape, gpu, found=build(table, gpu), **options)
    return _CACHE.models[key]


class _Cache:
    """Models of the last table: a fit asks for thousands of tables, one after another."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.models: dict[object, StepModel] = {}


_CACHE = _Cache()
LLAMA_8B = "meta-llama/Llama-3.1-8B"


def dense(
    name: str, parameters: int, *, hidden: int, layers: int, heads: int, width: int, vocabulary: int
) -> ModelFacts:
    """A decoder with as many KV heads as heads and a plain feed-forward layer (OPT, BLOOM)."""
    return ModelFacts(
        name,
        parameters,
        hidden,
        layers,
        heads,
        heads,
        hidden // heads,
        width,
        vocabulary,
        2048,
        tie_word_embeddings=True,
    )


OPT_13B = dense("opt-13b", 12_853_473_280, hidden=5120, layers=40, heads=40, width=20480, vocabulary=50272)
OPT_66B = dense("opt-66b", 65_718_000_000, hidden=9216, layers=64, heads=72, width=36864, vocabulary=50272)
BLOOM = dense("bloom-176b", 176_247_271_424, hidden=14336, layers=70, heads=112, width=57344, vocabulary=250880)


def published() -> Iterator[Run]:
    """published.csv: what a paper or post says of one prefill or one decode step alone."""
    source = "vLLM blog 2026-04-22, Llama-3.1-8B, batch 1"
    shape = facts(LLAMA_8B)
    lines = (
        ("h100_sxm", "auto", 6.44, 4.37e-5),
        ("h100_sxm", "fp8", 6.58, 2.37e-5),
        ("b200_sxm", "auto", 3.93, 1.8e-5),
    )
    for system, kv, start, slope in lines:
        for context in (1024, 16384, 65536):

            def decode(table: Table, system: str = system, kv: str = kv, context: int = context) -> float:
                return model(shape, system, table, kv_cache_dtype=kv).decode_seconds(1, context)

            seconds = (start + slope * context) / 1e3
            yield Run(source, "decode", system, f"KV {kv}, context {context}", seconds, decode)
    source = "vLLM blog 2026-04-22, Llama-3.1-8B, 8 clients"
    for kv, ms in (("auto", 15.18), ("fp8", 12.93)):

        def median(table: Table, kv: str = kv) -> float:
            return model(shape, "h100_sxm", table, kv_cache_dtype=kv).decode_seconds(8, 21_000)

        yield Run(source, "decode", "h100_sxm", f"KV {kv}, 20k+2k, median ITL", ms / 1e3, median)


OLD = "an engine of 2023 or early 2024: other kernels (no FlashAttention 2 or 3, first CUDA libraries for H100)"


def distserve() -> Iterator[Run]:
    source = "DistServe repo, prefill of one prompt (C++ engine)"
    figures = (
        (OPT_13B, 1, 512, 72.15), (OPT_13B, 1, 1024, 129.93), (OPT_13B, 1, 2048, 256.69), (OPT_13B, 2, 512, 50.5),
        (OPT_13B, 2, 1024, 87.53), (OPT_13B, 2, 2048, 165.46), (OPT_13B, 4, 1024, 51.61), (OPT_66B, 4, 2048, 374.3),
        (OPT_66B, 8, 512, 80.95),
    )  # fmt: skip
    for shape, ranks, tokens, ms in figures:

        def prefill(table: Table, shape: ModelFacts = shape, ranks: int = ranks, tokens: int = tokens) -> float:
            return model(shape, "a100_sxm", table, tensor_parallel=ranks).prefill_seconds(tokens)

        yield Run(source, "prefill", "a100_sxm", f"{shape.name} TP{ranks} {tokens}", ms / 1e3, prefill, note=OLD)


# A prefill no longer than this times the shortest of its configuration is the host's time, not the GPU's.
ABOVE_HOST = 1.25


def splitwise() -> Iterator[Run]:
    """Prefills of one prompt. Decode is CPU-bound in this stack, and so are short prompts: left out by rule."""
    table = [r for r in rows("splitwise_perf_median") if r["batch_size"] == "1" and r["token_size"] == "128"]  # noqa: S105
    table = [r for r in table if not r["hardware"].endswith("-pcap")]  # GPUs with a power cap: another device
    shapes = {"llama2-70b": facts("meta-llama/Llama-2-70b-hf"), "bloom-176b": BLOOM}
    systems = {"a100-80gb": "a100_sxm", "h100-80gb": "h100_sxm"}
    shortest: dict[tuple[str, ...], float] = {}
    for r in table:
        key = (r["model"], r["hardware"], r["tensor_parallel"])
        shortest[key] = min(shortest.get(key, 1e9), float(r["prompt_time"]))
    for r in table:
        key = (r["model"], r["hardware"], r["tensor_parallel"])
        if float(r["prompt_time"]) < ABOVE_HOST * shortest[key]:
            continue
        shape, system, ranks, tokens = shapes[key[0]], systems[key[1]], int(key[2]), int(r["prompt_size"])

        def prefill(
            table: Table, shape: ModelFacts = shape, system: str = system, ranks: int = ranks, tokens: int = tokens
        ) -> float:
            return model(shape, system, table, tensor_parallel=ranks, tiled=shape is not BLOOM).prefill_seconds(
                tokens, token_budget=tokens
            )

        label = f"{shape.name} TP{ranks} {tokens}"
        yield Run(
            "splitwise-sim, one prompt", "prefill", system, label, float(r["prompt_time"]) / 1e3, prefill, note=OLD
        )
