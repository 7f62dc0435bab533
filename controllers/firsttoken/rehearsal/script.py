"""The world's events, as they happen to a rehearsal."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from firsttoken.api.quantities import duration_seconds
from firsttoken.rehearsal.admission import admitted, edited
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.errors import WorldError
from firsttoken.rehearsal.kubelet import Kubelet
from firsttoken.rehearsal.nodes import Node
from firsttoken.rehearsal.serving import Serving
from firsttoken.rehearsal.timeline import Tell
from firsttoken.rehearsal.world import (
    BadVersion,
    Burst,
    ClockJump,
    DeleteObject,
    Edit,
    EditObject,
    Event,
    KillOperator,
    LoseNode,
    LosePods,
    MetricsOutage,
    SlowNode,
    Traffic,
)


@dataclass
class Kill:
    """The operator dies before it writes once more than `left` times, and is back after `down` seconds."""

    left: int
    down: float


@dataclass
class Doing:
    """What the world does to the operator and to revisions, until it is taken up there."""

    kills: list[Kill] = field(default_factory=list)  # first come, first served
    down_until: float = 0.0  # the operator
    clock_offset: float = 0.0
    bad: list[tuple[float, BadVersion]] = field(default_factory=list)  # since when, seconds
    metrics_down_until: float = 0.0
    lost: set[str] = field(default_factory=set)  # names of pods


class Place(NamedTuple):
    """Where things happen."""

    cluster: Cluster
    kubelet: Kubelet
    serving: Serving


class Script:
    """Events in the order of their time; at one time in the order of the file."""

    def __init__(self, events: Sequence[Event], seconds: float, place: Place, doing: Doing, tell: Tell) -> None:
        """Raises WorldError: an event never comes, since everything ends after `seconds`."""
        self._cluster, self._kubelet, self._serving = place
        self.doing, self._tell = doing, tell
        self._slow: dict[str, list[float]] = {}  # factors of the events that slow a node now
        late = next((n for n, e in enumerate(events) if e.seconds >= seconds), None)
        if late is not None:
            raise WorldError(f"events[{late}].at: {events[late].at} is not before the end: give a longer duration")
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        for number, event in enumerate(events):
            self._due.append((event.seconds, number, self._bound(event, f"events[{number}].{event.name}")))
        self._due.sort(key=lambda item: item[:2])

    def next(self) -> float:
        """When the next thing happens, seconds."""
        return self._due[0][0] if self._due else math.inf

    def happen(self, now: float) -> None:
        """Everything that is due. Raises WorldError: it can't happen in this world."""
        while self._due and self._due[0][0] <= now:
            self._due.pop(0)[2]()

    def _bound(self, event: Event, place: str) -> Callable[[], None]:
        return lambda: self._happen(event, place)

    def _later(self, at: float, what: Callable[[], None]) -> None:
        self._due.append((at, -1, what))
        self._due.sort(key=lambda item: item[:2])

    def _happen(self, event: Event, place: str) -> None:
        what, now = event.what, event.seconds
        if isinstance(what, Traffic):
            self._traffic(what, now)
        elif isinstance(what, Burst):
            self._tell("world", "Burst", f"{what.requests} requests at once")
        elif isinstance(what, LosePods):
            self._lose_pods(what, place)
        elif isinstance(what, LoseNode):
            self._lose_node(what, now, place)
        elif isinstance(what, SlowNode):
            self._slow_node(what, now, place)
        elif isinstance(what, BadVersion):
            self.doing.bad.append((now, what))
            self._tell("world", "BadVersion", f"revisions made from now on{_where(what)}: {_bad(what)}")
        elif isinstance(what, Edit):
            self._cluster.set_spec(admitted(self._cluster.service, what.spec, place))
            self._tell("world", "SpecEdited", f"spec: {_short(what.spec)}")
        elif isinstance(what, EditObject | DeleteObject):
            self._object(what, place)
        elif isinstance(what, KillOperator):
            self.doing.kills.append(Kill(what.after_writes, duration_seconds(what.down_for)))
        elif isinstance(what, MetricsOutage):
            self.doing.metrics_down_until = math.inf if what.lasts is None else now + duration_seconds(what.lasts)
            self._tell("world", "MetricsOutage", f"Prometheus does not answer{_for(what.lasts)}")
        elif isinstance(what, ClockJump):
            self.doing.clock_offset += what.seconds
            self._tell("world", "ClockJumped", f"the operator's clock jumps by {what.seconds:+g} s")

    def _traffic(self, what: Traffic, now: float) -> None:
        parts = [
            f"{name} × {factor:g}"
            for name, factor in (("rate", what.rate), ("prompts", what.prompt_tokens), ("outputs", what.output_tokens))
            if factor != 1.0
        ]
        parts += [] if what.shared_prefix else ["nothing is shared between prompts"]
        self._tell("world", "TrafficChanged", f"{', '.join(parts) or 'as before'}{_for(what.lasts)}")
        if what.lasts is not None:
            end = now + duration_seconds(what.lasts)
            self._later(end, lambda: self._tell("world", "TrafficChanged", f"no more: {', '.join(parts)}"))

    def _lose_pods(self, what: LosePods, place: str) -> None:
        there = [p for p in self._kubelet.pods if p.role == what.role and p.ready and p.stays]
        if not there:
            roles = ", ".join(sorted({p.role for p in self._kubelet.pods if p.ready})) or "none"
            raise WorldError(f"{place}: no ready pod has role {what.role}; roles with ready pods: {roles}")
        # Those that have served longest, so that it is the stable revision that is hit.
        fewer = f" (all that were ready; the world asked for {what.count})" if what.count > len(there) else ""
        self._lose(sorted(there, key=lambda p: (p.created, p.name))[: what.count], fewer)

    def _lose(self, pods: Sequence[Any], more: str = "") -> None:
        self.doing.lost |= {p.name for p in pods}
        self._kubelet.lose(pods)
        self._tell("world", "PodsLost", f"gone: {', '.join(p.name for p in pods)}{more}")

    def _node(self, name: str, place: str) -> Node:
        node = self._kubelet.nodes.find(name)
        if node is None:
            known = ", ".join(n.name for n in self._kubelet.nodes.known) or "none"
            raise WorldError(f"{place}.name: there is no node {name}; known are {known}")
        return node

    def _lose_node(self, what: LoseNode, now: float, place: str) -> None:
        node = self._node(what.name, place)
        node.losses += 1
        self._tell("world", "NodeLost", f"{node.name} ({node.gpus} GPUs){_for(what.lasts)}")
        if pods := [p for p in self._kubelet.pods if p.node == node.name]:
            self._lose(pods)
        if what.lasts is not None:
            self._later(now + duration_seconds(what.lasts), lambda: self._back(node))

    def _back(self, node: Node) -> None:
        node.losses -= 1
        if not node.lost:
            self._tell("world", "NodeBack", node.name)

    def _slow_node(self, what: SlowNode, now: float, place: str) -> None:
        node = self._node(what.name, place)
        self._slow.setdefault(node.name, []).append(what.factor)
        self._serving.slow[node.name] = max(self._slow[node.name])
        self._tell("world", "NodeSlow", f"steps on {node.name} take {what.factor:g} times as long{_for(what.lasts)}")
        if what.lasts is not None:
            self._later(now + duration_seconds(what.lasts), lambda: self._faster(node.name, what.factor))

    def _faster(self, node: str, factor: float) -> None:
        """One event that slowed a node is over; the slowest of the others counts."""
        self._slow[node].remove(factor)
        if not self._slow[node]:
            self._serving.slow.pop(node, None)
            self._tell("world", "NodeFast", f"{node} is as fast as before")
            return
        before, left = self._serving.slow[node], max(self._slow[node])
        self._serving.slow[node] = left
        if left != before:
            self._tell("world", "NodeSlow", f"steps on {node} take {left:g} times as long now")

    def _object(self, what: DeleteObject, place: str) -> None:
        there = self._cluster.objects(what.kind)
        found = [o for o in there if fnmatchcase(o["metadata"]["name"], what.name)]
        if not found:
            names = ", ".join(o["metadata"]["name"] for o in there) or "none"
            raise WorldError(f"{place}: no {what.kind} is named {what.name}; there are: {names}")
        for obj in found:
            name = f"{what.kind}/{obj['metadata']['name']}"
            if isinstance(what, EditObject):
                self._cluster.put(edited(obj, what.patch, place))
                self._tell("world", "ObjectEdited", f"{name}: {_short(what.patch)}")
            else:
                self._cluster.remove(obj)
                self._tell("world", "ObjectDeleted", name)


def holds(value: Any, part: Any) -> bool:
    """Whether `value` has everything that `part` has."""
    if isinstance(part, Mapping):
        return isinstance(value, Mapping) and all(holds(value.get(k), v) for k, v in part.items())
    return bool(value == part)


def _where(what: BadVersion) -> str:
    return f" with {_short(what.where)}" if what.where else ""


def _bad(what: BadVersion) -> str:
    parts = [f"steps with prompts take {what.prefill:g} times as long"] if what.prefill != 1.0 else []
    parts += [f"{100 * what.errors:g} % of the requests are answered 500"] if what.errors else []
    return ", ".join(parts)


def _for(lasts: str | None) -> str:
    return f" for {lasts}" if lasts is not None else ""


def _short(value: Any) -> str:
    text = ", ".join(_flat(value, ""))
    return text if len(text) <= 200 else text[:199] + "…"


def _flat(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _flat(below, f"{path}.{key}" if path else str(key))
    else:
        yield f"{path}: {'(removed)' if value is None else value}"
