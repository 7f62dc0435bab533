"""A CPU's efficiencies from an idle run: seven named numbers of the product's time model, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.efficiency import Efficiencies, efficiencies
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken_accuracy.engine.idle import Row
from firsttoken_accuracy.least_squares import Parameter, fit
from firsttoken_local.images import tiny_model

# Start and bounds. Rates are relative to what the time model assumes of a CPU (timing/device.py), times in us.
PARAMETERS = (
    Parameter("api_request_us", 5000.0, 100.0, 100_000.0),
    Parameter("api_token_us", 1.0, 0.0, 1000.0),
    Parameter("step_us", 5000.0, 10.0, 100_000.0),
    Parameter("request_us", 100.0, 0.0, 10_000.0),
    Parameter("mfu", 0.05, 1e-4, 1.0),
    Parameter("prefill_mfu", 0.01, 1e-5, 1.0),
    Parameter("decode_mbu", 0.05, 1e-5, 1.0),
)


@dataclass(frozen=True)
class Calibrated:
    """What was fitted, and the largest and mean relative error on the idle rows themselves."""

    values: Mapping[str, float]
    mean_error: float
    worst_error: float

    def model(self) -> StepModel:
        """The clock of the tiny model on this CPU."""
        return _model(tuple(self.values[p.name] for p in PARAMETERS))


def calibrate(rows: Sequence[Row], token_budget: int) -> Calibrated:
    """The efficiencies that idle rows of an engine with that token budget say."""
    values = fit(PARAMETERS, rows, lambda v, row: predicted(v, row, token_budget), lambda row: row.seconds)
    errors = [abs(predicted(values, row, token_budget) / row.seconds - 1) for row in rows]
    return Calibrated(values, sum(errors) / len(errors), max(errors))


def predicted(values: Mapping[str, float], row: Row, token_budget: int) -> float:
    """Seconds of an idle measurement."""
    model = _model(tuple(values[p.name] for p in PARAMETERS))
    if row.first:
        return model.api_seconds(row.tokens) + model.prefill_seconds(row.tokens, token_budget=token_budget)
    return model.decode_seconds(row.requests, row.tokens)


def facts() -> ModelFacts:
    """Of the tiny model, by its config.json."""
    config = tiny_model.CONFIG
    inline = {
        "hiddenSize": "hidden_size", "numHiddenLayers": "num_hidden_layers",
        "numAttentionHeads": "num_attention_heads", "numKeyValueHeads": "num_key_value_heads", "headDim": "head_dim",
        "intermediateSize": "intermediate_size", "vocabSize": "vocab_size",
        "maxPositionEmbeddings": "max_position_embeddings",
    }  # fmt: skip
    architecture = {"inline": {ours: config[theirs] for ours, theirs in inline.items()}}
    found = model_facts(ModelSpec.model_validate({"uri": "pvc://models/tiny", "architecture": architecture}))
    if not isinstance(found, ModelFacts):
        raise TypeError(found.message)
    return found


@lru_cache(maxsize=64)
def _model(values: tuple[float, ...]) -> StepModel:
    named = {p.name: v for p, v in zip(PARAMETERS, values, strict=True)}
    device = device_from_profile(catalogue()["cpu"])
    # The engine's process computes its steps itself, so nothing of the next one is prepared meanwhile.
    return StepModel(facts(), device, found=_found(named, device), async_scheduling=False)


def _found(values: Mapping[str, float], device: Device) -> Efficiencies:
    """Terms that only a GPU has (launches, tiles, splits) are 0."""
    base = efficiencies(device)
    gemm = replace(base.gemm["bf16"], floor_us=0.0, inner_us=0.0, mfu=values["mfu"], droop=0.0, mbu=1.0, ragged=0.0)
    attention = replace(
        base.attention["bf16"], prefill_floor_us=0.0, prefill_mfu=values["prefill_mfu"], prefill_half_tokens=0.0,
        prefill_tail=0.0, prefill_mbu=1.0, decode_floor_us=0.0, decode_mbu=values["decode_mbu"],
        decode_request_us=0.0, decode_overlap=1.0, decode_split_us=0.0, decode_length_us=0.0,
    )  # fmt: skip
    host = replace(
        base.host, layer_us=0.0, eager_layer_us=0.0,
        **{name: values[name] for name in ("api_request_us", "api_token_us", "step_us", "request_us")},
    )  # fmt: skip
    return replace(base, gemm={**base.gemm, "bf16": gemm}, attention={**base.attention, "bf16": attention}, host=host)
