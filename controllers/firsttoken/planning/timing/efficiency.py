"""The fitted efficiencies, a few named numbers for each generation of GPUs: read from efficiency.yaml.

`python -m firsttoken_accuracy fit` writes that file from measured tables; docs/accuracy.md says how far it is off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from firsttoken.planning.shipped import document
from firsttoken.planning.timing.attention import AttentionEfficiency
from firsttoken.planning.timing.collectives import LinkEfficiency, TransferEfficiency
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.experts import ExpertEfficiency
from firsttoken.planning.timing.gemm import GemmEfficiency

OTHER = "other"  # the set for a generation that was not measured


@dataclass(frozen=True)
class HostEfficiency:
    """The engine's process on the CPU, and what a layer costs beside products and attention."""

    step_us: float  # scheduling and launching one step
    request_us: float  # for each running request in it
    layer_us: float  # norms, rotary embedding, activation: kernels of a layer in a CUDA graph, traffic apart
    eager_layer_us: float  # launching a layer's kernels from Python where no CUDA graph was captured
    api_request_us: float  # HTTP and the way to the engine and back, once a request: in TTFT, in no step
    api_token_us: float  # the same for each prompt token: parsing, tokenising, passing it on


@dataclass(frozen=True)
class Accuracy:
    """How far the times of a phase may be off, relative: 9 in 10 measured ones kept out of the fit lie inside."""

    prefill: float  # steps with prompts in them, and so TTFT
    decode: float  # steps without, and so TPOT

    def of(self, stage: str) -> float:
        """Of one stage, prefill or decode."""
        return self.prefill if stage == "prefill" else self.decode

    def widest(self, other: "Accuracy") -> "Accuracy":
        """The wider of both in each phase."""
        return Accuracy(max(self.prefill, other.prefill), max(self.decode, other.decode))


@dataclass(frozen=True)
class Intervals:
    """Accuracy by what is known of a GPU; docs/accuracy.md has the rule of each, and the data."""

    measured: Accuracy  # kernels of this very GPU are in the fit, and whole steps of it were held against the model
    kernels: Accuracy  # its kernels are in the fit, no whole step was held against it
    familiar: Accuracy  # kernels of another GPU of its generation are
    unmeasured: Accuracy  # neither
    rough: Accuracy  # the data sheet itself is assumed


@dataclass(frozen=True)
class Efficiencies:
    """All that applies to one device."""

    gemm: Mapping[str, GemmEfficiency]  # by number format: bf16, fp8, fp8_block
    attention: Mapping[str, AttentionEfficiency]  # by format of the KV cache: bf16, fp8
    experts: Mapping[str, ExpertEfficiency]  # by number format: bf16, fp8, mxfp4; nvfp4 and int4 where measured
    nvlink: LinkEfficiency
    pcie: LinkEfficiency
    transfer: TransferEfficiency
    host: HostEfficiency
    interval: Accuracy  # of the device
    unmeasured_interval: Accuracy  # for what no table covers (MLA, weight-only kernels, untiled attention)
    borrowed: frozenset[tuple[str, str]] = frozenset()  # (section, format): of other generations, this one has none


def efficiencies(device: Device) -> Efficiencies:
    """The set of the device's generation, or the one fitted over all generations, with its wider interval."""
    return build(table(), device)


@cache
def table() -> Mapping[str, Any]:
    """The file as it is."""
    parsed: Mapping[str, Any] = document("firsttoken.planning.timing", "efficiency.yaml")
    return parsed


def build(source: Mapping[str, Any], device: Device) -> Efficiencies:
    """The efficiencies of `device` in a parsed file; the fit uses it with files of its own."""
    chosen, other = source["generations"].get(device.generation, {}), source["generations"][OTHER]

    def section(name: str) -> dict[str, Any]:
        return {**other.get(name, {}), **chosen.get(name, {})}

    borrowed = {(s, k) for s in ("gemm", "attention", "experts") for k in section(s) if k not in chosen.get(s, {})}
    intervals = Intervals(**{level: Accuracy(**widths) for level, widths in source["intervals"].items()})
    return Efficiencies(
        gemm={k: GemmEfficiency(**v) for k, v in section("gemm").items()},
        attention={k: AttentionEfficiency(**v) for k, v in section("attention").items()},
        experts={k: ExpertEfficiency(**v) for k, v in section("experts").items()},
        nvlink=LinkEfficiency(**section("nvlink")),
        pcie=LinkEfficiency(**section("pcie")),
        transfer=TransferEfficiency(**source["transfer"]),
        host=HostEfficiency(**section("host")),
        interval=_interval(intervals, device),
        unmeasured_interval=intervals.unmeasured.widest(_interval(intervals, device)),
        # Of a generation without any table all is borrowed, and its interval says so already.
        borrowed=frozenset(borrowed if chosen else ()),
    )


def _interval(intervals: Intervals, device: Device) -> Accuracy:
    if device.rough:
        return intervals.rough
    if device.measured:
        return intervals.measured if device.steps_measured else intervals.kernels
    if not device.familiar:
        return intervals.unmeasured
    return intervals.familiar if device.steps_measured else intervals.familiar.widest(intervals.kernels)
