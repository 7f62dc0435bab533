"""The command `profile`: what is known of a GPU type, or of one of its MIG slices."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from firsttoken.api.base import API_VERSION
from firsttoken.api.quantities import quantity
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import near_names
from firsttoken.planning.mig import Strategy, slice_profile
from firsttoken_operator.cli import offline
from firsttoken_operator.cli.console import echo
from firsttoken_operator.cli.errors import AnswerIsNo, BadInput, ExitCode


@dataclass(frozen=True)
class Slice:
    """A MIG slice as it was asked for. `memory`: what it really has, None: the figure known or estimated."""

    name: str
    strategy: Strategy
    memory: str | None = None


def names(paths: Sequence[str]) -> ExitCode:
    """One profile a line: its name and its product."""
    found = offline.profiles_of(paths)
    width = max(map(len, found))
    for name in sorted(found):
        echo(f"{name:{width}}  {found[name]['spec']['product']}")
    return ExitCode.DONE


def show(paths: Sequence[str], name: str, piece: Slice | None, *, as_json: bool) -> ExitCode:
    """The profile, or that of one of its slices."""
    known = offline.profiles_of(paths)
    if name not in known:
        specs = {n: AcceleratorProfileSpec.model_validate(p["spec"]) for n, p in known.items()}
        near = near_names(name, specs)
        meant = f": did you mean {' or '.join(near)}?" if near else ""
        raise AnswerIsNo(f"no AcceleratorProfile is named {name!r}{meant}")
    spec: Mapping[str, Any] = known[name]["spec"]
    if piece is not None:
        spec, name = _of_slice(spec, piece), f"{name}-mig-{piece.name}"
    document = {"apiVersion": API_VERSION, "kind": "AcceleratorProfile", "metadata": {"name": name}, "spec": dict(spec)}
    if as_json:
        echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10**6).rstrip("\n"))
    return ExitCode.DONE


def _of_slice(spec: Mapping[str, Any], piece: Slice) -> dict[str, Any]:
    if piece.memory is not None:
        try:
            enough = quantity(piece.memory) > 0
        except ValueError:
            enough = False
        if not enough:
            raise BadInput(f"--memory is {piece.memory!r}: write a size above 0 as Kubernetes does, such as 4864Mi")
    whole = AcceleratorProfileSpec.model_validate(spec)
    try:
        return slice_profile(whole, piece.name, memory=piece.memory, strategy=piece.strategy).wire()
    except ValueError as error:
        raise AnswerIsNo(str(error)) from error
