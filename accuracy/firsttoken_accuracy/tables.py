"""The measured kernel tables: rows with the GPU they ran on, and whether a row is kept out of the fit."""

import csv
import gzip
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.simulation.measured_models import measured_profile

DATA = Path(__file__).parents[1] / "data"
FOLDS = 4  # the first is kept out of the shipped fit

MEASURED = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "l40s")
# L2 cache, bytes (shared/data/gpus.csv). Not in the product: an engine's KV is never found there (see kernels.py).
L2 = {"a100_sxm": 40e6, "h100_sxm": 50e6, "h200_sxm": 60e6, "b200_sxm": 126e6, "l40s": 96e6}
L2 |= {"rtx_pro_6000_server": 128e6}  # NVIDIA's architecture white paper
# Not in the catalogue; data sheet.
OUTSIDE = {
    "rtx4090": ("NVIDIA RTX 4090", "8.9", "24Gi", 1008, 165, 330, 0, 32),
}


@cache
def device(system: str) -> Device:
    """The device of a table's system."""
    known = measured_profile(system)
    if known is not None:
        return device_from_profile(known)
    product, capability, memory, bandwidth, fp16, fp8, link, pcie = OUTSIDE[system]
    profile = AcceleratorProfileSpec.model_validate(
        {
            "vendor": "NVIDIA",
            "product": product,
            "computeCapability": capability,
            "resourceName": "nvidia.com/gpu",
            "memory": memory,
            "memoryBandwidthGbPerSecond": bandwidth,
            "fp16Tflops": fp16,
            "fp8Tflops": fp8,
            "linkGbPerSecond": link,
            "pcieGbPerSecond": pcie,
        }
    )
    return device_from_profile(profile)


def fold(*group: object) -> int:
    """Which of four parts a whole group (a shape, not a row) belongs to: by hash, so it never depends on a result."""
    digest = hashlib.sha256("/".join(map(str, group)).encode()).digest()
    return digest[0] % FOLDS


def kept_out(*group: object) -> bool:
    """Whether a group is kept out of the shipped fit."""
    return fold(*group) == 0


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a CSV in accuracy/data, packed or not."""
    plain = DATA / f"{name}.csv"
    text = plain.read_text() if plain.exists() else gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))


@dataclass(frozen=True)
class Gemm:
    """One matrix product."""

    system: str
    kind: str  # bf16, fp8, fp8_block
    m: int
    n: int
    k: int
    seconds: float
    out: bool


@dataclass(frozen=True)
class Attention:
    """Attention of one layer: prefill of `batch` prompts of `length`, or `batch` decodes with `length` of context."""

    system: str
    kind: str  # bf16, fp8: format of the KV cache
    heads: int
    kv_heads: int
    batch: int
    length: int
    seconds: float
    out: bool


@dataclass(frozen=True)
class AllReduce:
    """One all-reduce in a CUDA graph."""

    system: str
    ranks: int
    elements: int
    seconds: float
    out: bool

    @property
    def message_bytes(self) -> int:
        """Of one rank's message in 16 bits."""
        return 2 * self.elements


@dataclass(frozen=True)
class Beside:
    """Attention of one layer for `count` decodes of `context` tokens in a step that has a chunk of `chunk` tokens."""

    system: str
    chunk: int
    count: int
    context: int
    seconds: float
    out: bool


KINDS = {"bfloat16": "bf16"}
Row = TypeVar("Row", Gemm, Attention, AllReduce)


def _read(table: str, kind: type[Row], columns: Mapping[str, str], group: Sequence[str]) -> tuple[Row, ...]:
    """The rows of one table. `columns`: where each field of `kind` stands; `group`: the columns that together are kept
    out of the fit or are not, after the word they are hashed with.
    """
    numbers = [f.name for f in fields(kind) if f.type is int]
    word, *parts = group
    found = []
    for row in rows(table):
        values: dict[str, Any] = {name: row[column] for name, column in columns.items()}
        values |= {name: int(values[name]) for name in numbers}
        if "kind" in values:
            values["kind"] = KINDS.get(values["kind"], values["kind"])
        seconds = float(row["latency_ms"]) / 1e3
        found.append(kind(**values, seconds=seconds, out=kept_out(word, *(row[part] for part in parts))))
    return tuple(found)


@cache
def gemms() -> tuple[Gemm, ...]:
    """Kept out: whole (n, k), on every GPU alike."""
    columns = {"system": "system", "kind": "gemm_dtype", "m": "m", "n": "n", "k": "k"}
    return _read("gemm_vllm", Gemm, columns, ("gemm", "n", "k"))


@cache
def attentions(phase: str) -> tuple[Attention, ...]:
    """`phase`: context (prefill) or generation (decode). Kept out: whole (heads, KV heads, batch)."""
    columns = {
        "system": "system", "kind": "kv_cache_dtype", "heads": "num_heads", "kv_heads": "num_key_value_heads",
        "batch": "batch_size", "length": "isl" if phase == "context" else "kv_len",
    }  # fmt: skip
    group = ("attention", "num_heads", "num_key_value_heads", "batch_size")
    return _read(f"{phase}_attention_vllm", Attention, columns, group)


MIXED_SYSTEM = "rtx_pro_6000_server"


@cache
def besides() -> tuple[Beside, ...]:
    """LLMServingSim's profile of Llama-3.1-8B (32 heads, 8 KV heads). Kept out: whole (decodes, context)."""
    found = []
    for r in rows("mixed_attention_llmservingsim"):
        chunk, count, context = int(r["prefill_chunk"]), int(r["n_decode"]), int(r["kv_decode"])
        out = kept_out("mixed attention", count, context)
        found.append(Beside(MIXED_SYSTEM, chunk, count, context, float(r["time_us"]) * 1e-6, out))
    return tuple(found)


@cache
def all_reduces() -> tuple[AllReduce, ...]:
    """Kept out: whole message sizes."""
    columns = {"system": "system", "ranks": "num_gpus", "elements": "message_elements"}
    return _read("allreduce_vllm", AllReduce, columns, ("all-reduce", "message_elements"))
