"""Every object the operator would create, by asking `decide` about a cluster that has nothing yet. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml

from firsttoken.reconcile import Decision, Observation, decide
from firsttoken_operator.cli.errors import AnswerIsNo

Object = dict[str, Any]

# Stands for what only an API server gives: it must be there for `decide`, and is taken out of what is shown.
_UID = "00000000-0000-0000-0000-000000000000"
_NOW = datetime(1970, 1, 1, tzinfo=UTC)


def objects_of(service: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]], *, serving: bool) -> list[Object]:
    """Objects in the order of creation, without owner references (there is no owner yet).

    With `serving` the revision has taken over and the gateway leads to it, as it is once pods are ready; without, the
    gateway has no backend yet. Raises AnswerIsNo when nothing would be created.
    """
    observation = Observation(now=_NOW, service=_as_stored(service), profiles=profiles)
    first = decide(observation)
    if not first.apply:
        raise AnswerIsNo(_why_not(first))
    if not serving:
        return [_detached(obj) for obj in first.apply]
    record, *others = first.apply
    settled = decide(_settled(observation, first, record)).apply
    assert len(settled) == len(others)  # noqa: S101 - the same objects, the gateway's routes filled in
    return [_detached(obj) for obj in (record, *settled)]


def _as_stored(service: Mapping[str, Any]) -> Object:
    meta = dict(service["metadata"])
    meta = {"namespace": "default", **meta, "uid": _UID, "generation": 1}
    return {k: v for k, v in service.items() if k != "status"} | {"metadata": meta}


def _settled(observation: Observation, first: Decision, record: Object) -> Observation:
    """The same service when its revision serves and nothing else is known to exist."""
    status = first.status or {}
    revision = {**status.get("revision", {}), "stable": record["metadata"]["name"]}
    return replace(
        observation, service={**observation.service, "status": {**status, "revision": revision}}, revisions=(record,)
    )


def _detached(obj: Mapping[str, Any]) -> Object:
    meta = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"}
    return {**obj, "metadata": meta}


def _why_not(decision: Decision) -> str:
    conditions = (decision.status or {}).get("conditions", ())
    ready: Mapping[str, str] = next((c for c in conditions if c["type"] == "Ready"), {})
    return f"{ready.get('reason', 'Infeasible')}: {ready.get('message', 'nothing would be created')}"


class _Dumper(yaml.SafeDumper):
    """Repeats what occurs twice (kubectl reads anchors, people don't), and keeps texts of several lines readable."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Documents divided by `---`; equal objects give equal bytes."""
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 10**6}
    return "---\n".join(yaml.dump(obj, Dumper=_Dumper, **options) for obj in objects)
