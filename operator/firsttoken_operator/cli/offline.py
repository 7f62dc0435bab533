"""The commands that work on files: validate, plan, render."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml
from rich.console import RenderableType

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceSpec
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.planning.accelerators import catalogue_manifests
from firsttoken.planning.calibration import Calibration
from firsttoken.planning.output import plan_to_json
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.reconcile.inactive import inactive_reason
from firsttoken_operator.cli import inputs, model_config, plan_view, rendering
from firsttoken_operator.cli.console import complain, echo, painter, show
from firsttoken_operator.cli.errors import AnswerIsNo, BadInput, Ended, ExitCode
from firsttoken_operator.cli.inputs import Inputs
from firsttoken_operator.cli.measured import calibration_of
from firsttoken_operator.cli.model_config import Configs

Object = Mapping[str, Any]


def validate(paths: Sequence[str], *, recursive: bool, as_json: bool) -> ExitCode:
    """Say what is wrong with each object, and which are good."""
    loaded = inputs.load(paths, recursive=recursive)
    if as_json:
        good = [{"file": o.file, "line": o.line, "kind": o.kind, "name": o.name} for o in loaded.objects if o.good]
        result = {
            "valid": not loaded.faults,
            "faults": [f.wire() for f in loaded.faults],
            "ok": good,
            "skipped": [n.wire() for n in loaded.notes],
        }
        echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        paint = painter()
        for note in loaded.notes:
            echo(paint(str(note), "dim"))
        for found in loaded.objects:
            if found.good:
                echo(paint(str(found.finding("ok")), "green"))
        for fault in loaded.faults:  # last, where a terminal still shows them
            echo(paint(str(fault), "red"))
    return ExitCode.BAD_INPUT if loaded.faults else ExitCode.DONE


def plan(
    paths: Sequence[str],
    profile_paths: Sequence[str],
    config_path: str | None,
    *,
    recursive: bool,
    output: str,
    simulate: bool = False,
    calibration_paths: Sequence[str] = (),
) -> ExitCode:
    """Plan each service and show it; with `simulate`, also what its candidates do in virtual time."""
    if simulate and calibration_paths:
        raise BadInput("--simulate has the model's own step times: leave out --calibration, or --simulate")
    services, profiles = services_of(paths, profile_paths, recursive)
    known = calibration_of(calibration_paths, recursive=recursive)
    specs = {name: AcceleratorProfileSpec.model_validate(p["spec"]) for name, p in profiles.items()}
    wanted = [InferenceService.model_validate(s).spec for s in services]
    configs = model_config.find([spec.model for spec in wanted], config_path)
    outcomes = [(s, planned(spec, specs, configs, known)) for s, spec in zip(services, wanted, strict=True)]
    more = [_Simulated((), {})] * len(outcomes)
    if simulate:
        more = [_simulated(spec, outcome, specs, configs) for spec, (_, outcome) in zip(wanted, outcomes, strict=True)]
    if output == "table":
        _show_plans(outcomes, [extra.shown for extra in more])
    else:
        documents = [{**_plan_document(s, o), **extra.keys} for (s, o), extra in zip(outcomes, more, strict=True)]
        _emit(documents[0] if len(documents) == 1 else documents, output)
    return ExitCode.NO if any(isinstance(outcome, Infeasible) for _, outcome in outcomes) else ExitCode.DONE


def planned(
    spec: InferenceServiceSpec,
    profiles: Mapping[str, AcceleratorProfileSpec],
    configs: Configs,
    calibration: Calibration | None = None,
) -> Plan | Infeasible:
    """The plan with everything that the status would tell about it, fields without effect included."""
    outcome = make_plan(spec, profiles, calibration or Calibration(), configs.of(spec.model))
    inactive = inactive_reason(spec)
    outcome = configs.told(outcome, spec.model)
    if isinstance(outcome, Infeasible) or inactive is None:
        return outcome
    return replace(outcome, reasons=(*outcome.reasons, inactive))


class _Simulated(NamedTuple):
    """What simulating adds to one plan, for people and for machines."""

    shown: Sequence[RenderableType]
    keys: Mapping[str, Any]


def _simulated(
    spec: InferenceServiceSpec,
    outcome: Plan | Infeasible,
    profiles: Mapping[str, AcceleratorProfileSpec],
    configs: Configs,
) -> _Simulated:
    from firsttoken_operator.cli import candidates  # noqa: PLC0415 - numpy and numba are an extra

    if isinstance(outcome, Infeasible):
        return _Simulated((), {})
    found = candidates.compared(spec, outcome, profiles, configs)
    return _Simulated(candidates.view(found), {"simulated": candidates.document(found)})


def _show_plans(outcomes: Sequence[tuple[Object, Plan | Infeasible]], more: Sequence[Sequence[RenderableType]]) -> None:
    for index, (service, outcome) in enumerate(outcomes):
        if index:
            echo("")
        name = service["metadata"]["name"]
        show(
            plan_view.infeasible(name, outcome)
            if isinstance(outcome, Infeasible)
            else plan_view.feasible(name, outcome),
            *more[index],
        )


def _plan_document(service: Object, outcome: Plan | Infeasible) -> dict[str, Any]:
    meta = service["metadata"]
    place = {"namespace": meta["namespace"]} if meta.get("namespace") else {}
    return {**place, "name": meta["name"], **plan_to_json(outcome)}


def _emit(value: Any, output: str) -> None:
    if output == "json":
        echo(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6).rstrip("\n"))


def render(
    paths: Sequence[str],
    profile_paths: Sequence[str],
    namespace: str,
    config_path: str | None,
    *,
    recursive: bool,
    serving: bool,
    as_json: bool,
) -> ExitCode:
    """Print the objects of each service. Nothing is printed unless every service can be rendered."""
    services, profiles = services_of(paths, profile_paths, recursive)
    models = [InferenceService.model_validate(s).spec.model for s in services]
    configs = model_config.find(models, config_path)
    objects: list[dict[str, Any]] = []
    for service, model in zip(services, models, strict=True):
        placed = {**service, "metadata": {"namespace": namespace, **service["metadata"]}}
        try:
            objects += rendering.objects_of(placed, profiles, configs.seen(model), serving=serving)
        except (AnswerIsNo, UnsupportedPlan) as error:
            raise AnswerIsNo(f"{service['metadata']['name']}: {error}") from error
    if as_json:
        echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False))
    else:
        echo(rendering.to_yaml(objects).rstrip("\n"))
    return ExitCode.DONE


def services_of(
    paths: Sequence[str], profile_paths: Sequence[str], recursive: bool
) -> tuple[list[Object], dict[str, Object]]:
    """The services of `paths`, and the profiles they may name. Ends the command when something is wrong with either."""
    loaded = _faultless(inputs.load(paths, recursive=recursive))
    given = _given_profiles(profile_paths, recursive=recursive)
    services = loaded.of("InferenceService")
    nameless = next((s for s in services if not s.name), None)
    if nameless is not None:
        raise BadInput(str(nameless.finding("metadata.name: give it a name, objects are named after it")))
    if not services:
        raise BadInput(f"no InferenceService in {', '.join(paths)}")
    beside = [found.value for found in loaded.of("AcceleratorProfile")]
    return [found.value for found in services], _by_name([*catalogue_manifests(), *beside, *given])


def profiles_of(paths: Sequence[str]) -> dict[str, Object]:
    """The built-in profiles and those of `paths`, by name. Ends the command when something is wrong with one."""
    return _by_name([*catalogue_manifests(), *_given_profiles(paths, recursive=False)])


def _given_profiles(paths: Sequence[str], *, recursive: bool) -> list[Object]:
    if not paths:
        return []
    found = _faultless(inputs.load(paths, recursive=recursive)).of("AcceleratorProfile")
    if not found:
        raise BadInput(f"no AcceleratorProfile in {', '.join(paths)}")
    return [profile.value for profile in found]


def _by_name(profiles: Sequence[Object]) -> dict[str, Object]:
    """The later one of a name counts."""
    return {p["metadata"]["name"]: p for p in profiles}


def _faultless(loaded: Inputs) -> Inputs:
    for fault in loaded.faults:
        complain(str(fault))
    if loaded.faults:
        raise Ended(ExitCode.BAD_INPUT)
    return loaded
