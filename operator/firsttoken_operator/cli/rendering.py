"""Every object the operator would create, by asking `decide` about a cluster that has nothing yet. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import yaml

from firsttoken.reconcile import Decision, Observation, decide
from firsttoken.reconcile.objects import Ref, is_workload, ref
from firsttoken_operator.cli.errors import AnswerIsNo

Object = dict[str, Any]

# Stands for what only an API server gives: it must be there for `decide`, and is taken out of what is shown.
_UID = "00000000-0000-0000-0000-000000000000"
_NOW = datetime(1970, 1, 1, tzinfo=UTC)

REVISION_KIND = "InferenceRevision"
_MOST_PASSES = 8  # two are needed: requests move, then nothing is left to do


def objects_of(
    service: Mapping[str, Any],
    profiles: Mapping[str, Mapping[str, Any]],
    config: tuple[Mapping[str, Any] | None, str] = (None, ""),
    *,
    serving: bool,
) -> list[Object]:
    """Objects in the order of creation, without owner references (there is no owner yet).

    With `serving` the revision has taken over and the gateway leads to it, as it is once pods are ready; without, the
    gateway has no backend yet. Raises AnswerIsNo when nothing would be created.
    """
    found, fault = config
    observation = Observation(
        now=_NOW, service=_as_stored(service), profiles=profiles, model_config=found, model_fault=fault
    )
    first = decide(observation)
    if not first.apply:
        raise AnswerIsNo(_why_not(first))
    objects = {ref(obj): obj for obj in first.apply}
    if serving:
        objects |= _settled(observation, first.status, objects)
    return [_detached(obj) for obj in objects.values()]


def _as_stored(service: Mapping[str, Any]) -> Object:
    meta = dict(service["metadata"])
    meta = {"namespace": "default", **meta, "uid": _UID, "generation": 1}
    return {k: v for k, v in service.items() if k != "status"} | {"metadata": meta}


def _settled(observation: Observation, status: Object | None, objects: Mapping[Ref, Object]) -> dict[Ref, Object]:
    """The objects when everything runs and the operator has nothing left to change."""
    settled = dict(objects)
    for _ in range(_MOST_PASSES):
        seen = [_complete(obj) for obj in settled.values()]
        decision = decide(
            replace(
                observation,
                service={**observation.service, "status": status or {}},
                revisions=tuple(o for o in seen if o["kind"] == REVISION_KIND),
                children=tuple(o for o in seen if o["kind"] != REVISION_KIND),
            )
        )
        status = decision.status or status
        changed = {ref(o): o for o in decision.apply if settled.get(ref(o)) != o}
        if not changed:
            break
        settled |= changed
    return settled


def _complete(obj: Object) -> Object:
    """A workload as its controller reports it when every pod is ready."""
    if not is_workload(obj):
        return obj
    count = obj["spec"]["replicas"]
    said = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {**obj, "status": {"observedGeneration": 1, **dict.fromkeys(said, count)}}


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
