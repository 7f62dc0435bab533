"""`firsttoken simulate`: the replicas of a plan under drawn or traced requests, in virtual time."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken.api.documents import read as read_documents
from firsttoken.api.quantities import duration_seconds
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceSpec
from firsttoken.planning.lengths import choose_lengths
from firsttoken.planning.models import model_facts
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible, ModelFacts, Plan
from firsttoken.planning.workload import resolve
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.service_run import ServiceRun, Traffic, drawn_traffic, run_service, traced_traffic
from firsttoken.simulation.traces import EXCERPTS, excerpt, read_trace
from firsttoken.simulation.workload_file import AS_PLANNED, WorkloadFile, read_workload
from firsttoken_operator.cli import files, model_config, simulate_html, simulate_view
from firsttoken_operator.cli.console import echo, show
from firsttoken_operator.cli.errors import AnswerIsNo, BadInput, ExitCode
from firsttoken_operator.cli.files import STDIN, STDIN_NAME, Unreadable, large
from firsttoken_operator.cli.offline import planned, services_of
from firsttoken_operator.cli.simulate_json import document
from firsttoken_operator.cli.simulator import compiled

DEFAULT_SECONDS = 600.0
MOST_RATE = 1_000_000  # requests a second
MAX_TRACE_BYTES = 2**30


@dataclass(frozen=True)
class Question:
    """What was asked, as typed. `rate` in requests a second."""

    paths: Sequence[str]
    compare: str | None
    trace: str | None
    workload: str | None
    duration: str | None
    rate: float | None
    seed: int
    profiles: Sequence[str]
    config: str | None


@dataclass(frozen=True)
class Service:
    """One service, planned."""

    name: str
    spec: InferenceServiceSpec
    plan: Plan
    facts: ModelFacts
    profiles: Mapping[str, AcceleratorProfileSpec]


def simulate(question: Question, *, output: str) -> ExitCode:
    """Simulate one service, or two under the same requests, and show what users saw."""
    seconds = _seconds(question.duration)
    _check(question)
    services = [_service(question.paths, question)]
    if question.compare is not None:
        services.append(_service([question.compare], question))
    try:
        given = _workload(question.workload)
        traffic = _traffic(services[0], question, seconds, given)
        compiled()
        bounds = tuple(services[0].spec.measurement.prompt_token_buckets)  # side by side, so the same for both
        runs = [
            run_service(name, s.plan, s.facts, s.profiles, traffic, bounds=bounds, seed=question.seed, given=given)
            for name, s in zip(_names(services), services, strict=True)
        ]
    except SimulationInputError as error:
        raise BadInput(str(error)) from error
    _emit(runs, question, output)
    return ExitCode.DONE


def _emit(runs: Sequence[ServiceRun], question: Question, output: str) -> None:
    if output == "json":
        documents = [document(run, question.seed) for run in runs]
        value = documents[0] if len(documents) == 1 else {"services": documents}
        echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
    elif output == "html":
        echo(simulate_html.page(runs, question.seed))
    else:
        show(*simulate_view.view(runs, question.seed))


def _seconds(duration: str | None) -> float | None:
    if duration is None:
        return None
    try:
        found = duration_seconds(duration)
    except ValueError as error:
        raise BadInput(f"--duration: {error}") from error
    if not found > 0:
        raise BadInput("--duration is 0: give some time, such as 10m")
    return found


def _check(question: Question) -> None:
    if question.rate is not None and not 0 < question.rate <= MOST_RATE:
        raise BadInput(f"--rate is {question.rate:g}: give requests a second, above 0 and at most {MOST_RATE:,}")
    if question.seed < 0:
        raise BadInput(f"--seed is {question.seed}: give a whole number from 0 on")


def _service(paths: Sequence[str], question: Question) -> Service:
    """The one service in `paths`. Raises BadInput: there are several; AnswerIsNo: it can't be planned."""
    services, manifests = services_of(paths, question.profiles, recursive=False)
    if len(services) > 1:
        names = ", ".join(s["metadata"]["name"] for s in services)
        raise BadInput(f"{', '.join(paths)}: holds {len(services)} services ({names}): give a file with one of them")
    profiles = {name: AcceleratorProfileSpec.model_validate(p["spec"]) for name, p in manifests.items()}
    spec = InferenceService.model_validate(services[0]).spec
    configs = model_config.find([spec.model], question.config)
    plan, facts = planned(spec, profiles, configs), model_facts(spec.model, configs.of(spec.model))
    name = services[0]["metadata"]["name"]
    if isinstance(plan, Infeasible) or isinstance(facts, Infeasible):
        refused = plan if isinstance(plan, Infeasible) else facts
        assert isinstance(refused, Infeasible)  # noqa: S101 - as just found
        raise AnswerIsNo(f"{name}: infeasible ({refused.constraint}): {refused.message}")
    return Service(name, spec, plan, facts, profiles)


def _names(services: Sequence[Service]) -> list[str]:
    """Two of one name are told apart by their order."""
    names = [service.name for service in services]
    return names if len(set(names)) == len(names) else [f"{name} ({n})" for n, name in enumerate(names, start=1)]


def _workload(path: str | None) -> WorkloadFile:
    """Raises BadInput: the file can't be read, or what it holds is wrong; SimulationInputError: the same of a field."""
    if path is None:
        return AS_PLANNED
    (source,) = files.read([path])
    if isinstance(source, files.Unreadable):
        raise BadInput(f"--workload {path}: {source.why}")
    documents = list(read_documents(source.text))
    if len(documents) != 1:
        raise BadInput(f"--workload {path}: holds {len(documents)} documents: give one workload a file")
    (document,) = documents
    for cause in document.causes[:1]:
        raise BadInput(f"{path}:{cause.line or document.line_of(cause.at)}: {cause.message}")
    return read_workload(document.value, path)


def _traffic(service: Service, question: Question, seconds: float | None, given: WorkloadFile) -> Traffic:
    if question.trace is not None:
        if given.draws:
            raise BadInput(f"--trace and {', '.join(given.draws)} of --workload both say what arrives: leave one out")
        name = STDIN_NAME if question.trace == STDIN else question.trace
        shipped = name in EXCERPTS and not Path(name).exists()
        found = excerpt(name) if shipped else _trace(question, question.trace)
        return traced_traffic(found, name, seconds=seconds, rate=question.rate)
    try:
        work = choose_lengths(service.spec, service.facts, resolve(service.spec.workload)).workload
    except InfeasibleError as error:  # planned already, so this is not expected
        raise AnswerIsNo(error.infeasible.message) from error
    return drawn_traffic(
        service.plan, work, seconds=DEFAULT_SECONDS if seconds is None else seconds, rate=question.rate,
        seed=question.seed, given=given,
    )  # fmt: skip


def _trace(question: Question, path: str) -> Requests:
    """The requests of --trace."""
    if path == STDIN and STDIN in (*question.paths, question.compare, *question.profiles, question.config):
        raise BadInput("--trace -: standard input can be read only once: give one of them as a file")
    found = large(path, MAX_TRACE_BYTES)
    if isinstance(found, Unreadable):
        raise BadInput(f"--trace {found.name}: {found.why}")
    return read_trace(io.StringIO(found.text, newline=None), found.name)


def _run(service: Service, first: Service, traffic: Traffic, seed: int) -> ServiceRun:
    bounds = tuple(first.spec.measurement.prompt_token_buckets)  # side by side, so the same for both
    return run_service(service.name, service.plan, service.facts, service.profiles, traffic, bounds=bounds, seed=seed)
