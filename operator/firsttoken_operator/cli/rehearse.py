"""`firsttoken rehearse`: the operator and a simulated fleet in virtual time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.api.documents import Document
from firsttoken.api.documents import read as read_documents
from firsttoken.api.service import InferenceService
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.rehearsal.errors import NotRehearsedError, WorldError
from firsttoken.rehearsal.run import rehearse as play
from firsttoken.rehearsal.world import At, World, read_world
from firsttoken.simulation.errors import SimulationInputError
from firsttoken_operator.cli import files, model_config, rehearse_view
from firsttoken_operator.cli.console import complain, echo, show
from firsttoken_operator.cli.errors import AnswerIsNo, BadInput, Ended, ExitCode
from firsttoken_operator.cli.offline import services_of
from firsttoken_operator.cli.simulator import compiled_rehearsal

NAMESPACE = "default"  # of a service that names none


@dataclass(frozen=True)
class Question:
    """What was asked, as typed."""

    paths: Sequence[str]
    world: str | None
    duration: str | None
    seed: int | None
    profiles: Sequence[str]
    config: str | None


def rehearse(question: Question, *, as_json: bool) -> ExitCode:
    """Rehearse one service and show what came of it."""
    world = _world(question)
    services, profiles = services_of(question.paths, question.profiles, recursive=False)
    if len(services) > 1:
        names = ", ".join(s["metadata"]["name"] for s in services)
        raise BadInput(f"{', '.join(question.paths)}: holds {len(services)} services ({names}): give a file with one")
    service = {**services[0], "metadata": {"namespace": NAMESPACE, **services[0]["metadata"]}}
    model = InferenceService.model_validate(service).spec.model
    configs = model_config.find([model], question.config)
    compiled_rehearsal()
    try:
        found = play(service, profiles, world, config=configs.of(model))
    except InfeasibleError as error:
        told = configs.told(error.infeasible, model)
        raise AnswerIsNo(f"{service['metadata']['name']}: infeasible ({told.constraint}): {told.message}") from error
    except WorldError as error:
        raise BadInput(f"{question.world or 'world'}: {error}") from error
    except (NotRehearsedError, SimulationInputError) as error:
        raise BadInput(str(error)) from error
    if as_json:
        echo(json.dumps(rehearse_view.document(found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show(*rehearse_view.view(found))
    return ExitCode.DONE if found.passed else ExitCode.NO


def _world(question: Question) -> World:
    """The world of the file with what the options say in its place. Ends the command with its faults."""
    value, place = _read(question.world) if question.world is not None else ({}, lambda _: "world")
    try:
        found = read_world(value, place)
    except WorldError as error:
        for line in str(error).splitlines():
            complain(line)
        raise Ended(ExitCode.BAD_INPUT) from error
    asked = {"duration": question.duration, "seed": question.seed}
    changes = {name: text for name, text in asked.items() if text is not None}
    try:
        return read_world({**found.model_dump(by_alias=True, exclude_unset=True), **changes}, lambda _: "option")
    except WorldError as error:
        raise BadInput(str(error).replace("option: ", "--", 1)) from error


def _read(path: str) -> tuple[Any, Any]:
    (source,) = files.read([path])
    if isinstance(source, files.Unreadable):
        raise BadInput(f"--world {path}: {source.why}")
    documents = list(read_documents(source.text))
    if len(documents) > 1:
        raise BadInput(f"--world {path}: holds {len(documents)} documents: give one world a file")
    document = documents[0] if documents else Document(0, 1, {})
    for cause in document.causes:
        complain(f"{path}:{cause.line or document.line_of(cause.at)}: {cause.message}")
    if document.causes:
        raise Ended(ExitCode.BAD_INPUT)

    def place(at: At) -> str:
        return f"{path}:{document.line_of(tuple(at))}"

    value = document.value if document.value is not None else {}
    return (dict(value) if isinstance(value, Mapping) else value), place
