"""`firsttoken status`: fetch, report, show; once or for every change."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from firsttoken_operator.cli import asking
from firsttoken_operator.cli.asking import Access
from firsttoken_operator.cli.console import complain, echo, flush, show
from firsttoken_operator.cli.errors import AnswerIsNo, BadInput, ExitCode, Unreachable
from firsttoken_operator.cli.status_report import Report, left_alone
from firsttoken_operator.cli.status_view import change, overview, view

LOOK_AGAIN_SECONDS = 2.0


def access(kubeconfig: str | None, context: str | None) -> Access:
    """Which cluster. Raises BadInput for a kubeconfig that isn't there; the library would go on without one."""
    if kubeconfig is not None and not Path(kubeconfig).expanduser().is_file():
        raise BadInput(f"--kubeconfig {kubeconfig}: no such file")
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if kubeconfig is None and named and not any(Path(path).expanduser().is_file() for path in named):
        raise BadInput(f"KUBECONFIG names {os.pathsep.join(named)}: no such file")
    return Access(kubeconfig, context)


def status_of(access: Access, namespace: str | None, name: str, *, as_json: bool, watch: bool) -> ExitCode:
    """Show one service. Raises AnswerIsNo if there is none of that name."""
    return asyncio.run(_status_of(access, namespace or asking.default_namespace(access), name, as_json, watch))


async def _status_of(access: Access, namespace: str, name: str, as_json: bool, watch: bool) -> ExitCode:
    async with asking.connected(access) as cluster:
        seen = await asking.one(cluster, namespace, name)
        if seen is None:
            raise AnswerIsNo(f"there is no InferenceService {name!r} in namespace {namespace!r}; `status -A` lists all")
        _show(seen, as_json, compact=watch)
        while watch:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            try:
                now = await asking.one(cluster, namespace, name)
            except Unreachable as error:  # an API server that restarts must not end the watch
                complain(f"{_clock()} {error}; trying again")
                continue
            if now is None:
                raise AnswerIsNo(f"InferenceService {name!r} is gone")
            _tell(seen, now, as_json)
            seen = now
    return ExitCode.DONE if seen.ready else ExitCode.NO


def _show(seen: Report, as_json: bool, *, compact: bool) -> None:
    if as_json:
        echo(json.dumps(seen.wire(), ensure_ascii=False, indent=None if compact else 2))
    else:
        show(view(seen, datetime.now(UTC)))
    flush()


def _tell(before: Report, after: Report, as_json: bool) -> None:
    if as_json and before != after:
        _show(after, as_json, compact=True)
    elif not as_json:
        for line in change(before, after):
            echo(f"{_clock()} {line}")
        flush()


def _clock() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")


def status_of_all(access: Access, namespace: str | None, *, all_namespaces: bool, as_json: bool) -> ExitCode:
    """The table of all services of a namespace, or of the cluster."""
    where = None if all_namespaces else namespace or asking.default_namespace(access)
    reports = asyncio.run(_fetch_all(access, where))
    if as_json:
        echo(json.dumps([r.wire() for r in reports], ensure_ascii=False, indent=2))
    elif not reports:
        complain("no InferenceService" + (f" in namespace {where}; -A looks in all" if where else " in this cluster"))
    else:
        for line in overview(reports, datetime.now(UTC), all_namespaces=all_namespaces):
            echo(line)
        for seen in reports:
            hint = left_alone(seen, datetime.now(UTC))
            if hint:
                complain(f"{seen.namespace}/{seen.name}: {hint}")
                break  # of one operator, and most likely of all services
    return ExitCode.DONE if all(r.ready for r in reports) else ExitCode.NO


async def _fetch_all(access: Access, namespace: str | None) -> list[Report]:
    async with asking.connected(access) as cluster:
        reports = await asking.every(cluster, namespace)
        if not reports and namespace is not None and not await asking.namespace_exists(cluster, namespace):
            raise AnswerIsNo(f"there is no namespace {namespace}; `status -A` looks in all")
        return reports
