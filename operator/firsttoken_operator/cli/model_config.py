"""config.json for models that neither the spec nor the catalogue know: from --model-config, or asked from the hub."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.hf_config import essentials, is_config
from firsttoken.planning.hf_quantization import quantization_of
from firsttoken.planning.models import wants_config
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible
from firsttoken_operator.cli.errors import BadInput
from firsttoken_operator.cli.files import why
from firsttoken_operator.config_json import MAX_BYTES, QUANTIZATION, NotConfigError, json_object

OPTION = "--model-config"

_FILE = (
    f"{OPTION} FILE plans from its config.json without that (the operator can't read it there: in the cluster it takes "
    "the fields inline)"
)

Key = tuple[str, str | None]  # uri, revision
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Configs:
    """What was found, and why something was not."""

    found: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    faults: Mapping[Key, str] = field(default_factory=dict)

    def of(self, model: ModelSpec) -> Mapping[str, Any] | None:
        """The config.json of a model."""
        return self.found.get(_key(model))

    def seen(self, model: ModelSpec) -> tuple[Mapping[str, Any] | None, str]:
        """The config.json, and why there is none: as an Observation has them."""
        return self.of(model), self.faults.get(_key(model), "")

    def told(self, outcome: Outcome, model: ModelSpec) -> Outcome | Infeasible:
        """`outcome`, and where the model is unknown, why the hub did not help, or what would help here."""
        if not isinstance(outcome, Infeasible) or outcome.constraint != "UnknownModel" or self.of(model) is not None:
            return outcome
        fault = self.faults.get(_key(model), "" if model.uri.startswith("hf://") or not wants_config(model) else _FILE)
        # Before the alternatives in words, which end the message.
        text, mark, offers = outcome.message.partition(". Feasible instead:")
        return replace(outcome, message=f"{text}; {fault}{mark}{offers}") if fault else outcome


def find(models: Iterable[ModelSpec], path: str | None) -> Configs:
    """The configs of those `models` that want one. Raises BadInput for a file that can't be it, or that none wants."""
    wanted = {_key(m): m for m in models if wants_config(m)}
    if path is not None:
        return Configs({key: _from_file(path) for key in _only(wanted, path)})
    answers = {key: _from_hub(m) for key, m in wanted.items() if m.uri.startswith("hf://")}
    return Configs(
        {key: a for key, a in answers.items() if not isinstance(a, str)},
        {key: a for key, a in answers.items() if isinstance(a, str)},
    )


def _key(model: ModelSpec) -> Key:
    return model.uri, model.revision


def _only(wanted: Mapping[Key, ModelSpec], path: str) -> list[Key]:
    """The one model that the file can be about."""
    if not wanted:
        raise BadInput(
            f"{OPTION} {path}: every model here is known, by the catalogue or by spec.model.architecture: leave it out"
        )
    if len({uri for uri, _ in wanted}) > 1:
        names = ", ".join(sorted(uri for uri, _ in wanted))
        raise BadInput(f"{OPTION} {path}: which model is it of? {names} have no other facts: plan them one by one")
    return list(wanted)


def _from_file(path: str) -> dict[str, Any]:
    config = _parsed(path)
    if not is_config(config):
        raise BadInput(f"{OPTION} {path}: has neither model_type nor architectures: this is no model's config.json")
    beside = Path(path).with_name(QUANTIZATION)  # where ModelOpt says how the weights are stored
    if quantization_of(config) is None and beside.is_file():
        config["quantization_config"] = _parsed(str(beside))
    try:
        return essentials(config)
    except InfeasibleError as error:
        raise BadInput(f"{OPTION} {path}: {error}: correct it, or give spec.model.architecture.inline") from error


def _parsed(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadInput(f"{OPTION} {path}: {why(error)}") from error
    try:
        return json_object(data)
    except NotConfigError as error:
        raise BadInput(f"{OPTION} {path}: {error}: this is no model's config.json") from error


def _from_hub(model: ModelSpec) -> Mapping[str, Any] | str:
    """The config.json, or why there is none."""
    try:
        from firsttoken_operator.hub import HubError, fetch_config  # noqa: PLC0415 - aiohttp comes with the operator
    except ImportError:
        return "the hub can't be asked without aiohttp: install firsttoken[operator]"
    try:
        return asyncio.run(fetch_config(model))
    except HubError as error:
        return str(error)
