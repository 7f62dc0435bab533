"""A rehearsal: from the first apply of a service to the end of the world's time, event by event."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService
from firsttoken.manifests.names import gateway_routes_name
from firsttoken.planning import words
from firsttoken.planning.memory import block_tokens
from firsttoken.planning.workload import bucket_names
from firsttoken.reconcile import Sync
from firsttoken.reconcile.objects import Ref, time_or
from firsttoken.reconcile.routes import observed_weights
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.engines import Engines
from firsttoken.rehearsal.gateway import Gateway
from firsttoken.rehearsal.kubelet import Kubelet
from firsttoken.rehearsal.live import Live
from firsttoken.rehearsal.measuring import Prometheus
from firsttoken.rehearsal.nodes import nodes_of
from firsttoken.rehearsal.operator import Operator
from firsttoken.rehearsal.pods import Pod
from firsttoken.rehearsal.result import Rehearsal
from firsttoken.rehearsal.script import Doing, Place, Script, holds
from firsttoken.rehearsal.serving import Fate, Served, Serving, counted
from firsttoken.rehearsal.storing import Object
from firsttoken.rehearsal.timeline import Entry
from firsttoken.rehearsal.told import told
from firsttoken.rehearsal.traffic import demand_of, draw
from firsttoken.rehearsal.windows import cells
from firsttoken.rehearsal.world import BadVersion, World
from firsttoken.simulation.fleet_shape import Replica
from firsttoken.simulation.from_plan import whole_blocks_of

START = datetime(2026, 1, 1, tzinfo=UTC)  # of the virtual clock; nothing depends on the day
WATCH_SECONDS = 0.05  # from a write to the watch event that wakes the operator
RESYNC_SECONDS = 600.0  # as the operator's, without its jitter


def rehearse(
    service: Mapping[str, Any],
    profiles: Mapping[str, Mapping[str, Any]],
    world: World,
    *,
    config: Mapping[str, Any] | None = None,
) -> Rehearsal:
    """The whole of it. `service` and `profiles` are manifests, `config` the config.json of a model nobody knows.

    Raises WorldError: an event can't happen; NotRehearsedError, SimulationInputError; InfeasibleError: there is no
    plan to begin with.
    """
    return _Stage(dict(service), {n: dict(p) for n, p in profiles.items()}, world, config).play()


class _Stage:
    """Everything that has a part in one rehearsal, and the clock."""

    def __init__(
        self, service: Object, profiles: Mapping[str, Object], world: World, config: Mapping[str, Any] | None
    ) -> None:
        self.seconds, self.now = duration_seconds(world.duration), 0.0
        self.world, self.entries = world, list[Entry]()
        self.spec = InferenceService.model_validate(service).spec
        specs = {n: AcceleratorProfileSpec.model_validate(p["spec"]) for n, p in profiles.items()}
        self.demand = demand_of(self.spec, specs, config, world.requests_per_second)
        block = block_tokens(specs[self.spec.accelerator.type])
        requests = whole_blocks_of(draw(self.demand, world.events, self.seconds, world.seed), block)
        self.cluster = Cluster(service, START, profiles)
        self.doing = Doing()
        self.engines = Engines(self.cluster, specs, config, self._bad, requests.hash_tokens)
        nodes = nodes_of(world, self.spec.accelerator.type, specs)
        self.kubelet = Kubelet(
            self.cluster, nodes, self.tell, startup=duration_seconds(world.startup),
            hardware=self.engines.hardware, idle=self._idle,
        )  # fmt: skip
        self.gateway = Gateway(self.cluster, lambda: self.kubelet.pods)
        self.live = Live(self.cluster, lambda: self.kubelet.pods)
        self.serving = Serving(requests, self.gateway, self, seed=world.seed)
        buckets = tuple(self.spec.measurement.prompt_token_buckets)
        self.prometheus = Prometheus(self.serving, buckets, self.replica)
        place = Place(self.cluster, self.kubelet, self.serving)
        self.script = Script(world.events, self.seconds, place, self.doing, self.tell)
        self.operator = _Clocked(self.cluster)
        self.config = dict(config) if config is not None else None
        self.operator.measured = lambda: self.prometheus.found
        self.operator.envoys, self.operator.touch = self.gateway.views, self._touch
        self.wake, self.seen, self.passes, self.unserved = 0.0, self.cluster.watched, 0, 0

    def tell(self, who: str, reason: str, message: str) -> None:
        """An entry of the timeline."""
        self.entries.append(Entry(round(self.now, 3), who, reason, message))

    def served(self, revision: str) -> Served:
        """See serving.Engines."""
        return self.engines.served(revision)

    def replica(self, pod: Pod) -> Replica:
        """See serving.Engines."""
        return self.engines.replica(pod.revision, self.live.of(pod))

    def _touch(self, sync: Sync) -> None:
        self.gateway.touch(sync)
        self.live.touch(sync)

    def _idle(self, pod: Pod) -> bool:
        return self.serving.idle(pod)

    def _bad(self, record: Object) -> list[BadVersion]:
        """What is wrong with the revision of a record."""
        made = (time_or(record["metadata"]["creationTimestamp"], START) - START).total_seconds()
        inputs = record["spec"]["inputs"]  # the stamp is of whole seconds
        return [b for since, b in self.doing.bad if made >= math.floor(since) and holds(inputs, b.where or {})]

    def play(self) -> Rehearsal:
        """To the end, and what is under way then to its end."""
        self.tell("world", "Applied", f"InferenceService/{self.cluster.service['metadata']['name']}")
        self._happen()
        while True:
            timed = (self.kubelet.next(self.now), self.gateway.next(self.now), self.live.next(self.now))
            soon = min(*timed, self.script.next(), self.prometheus.next(), self.wake, self.seconds)
            self._serve(soon)
            self.now = soon
            if soon >= self.seconds:
                break
            self.cluster.now = START + timedelta(seconds=self.now)
            self._happen()
        self._tell_unserved()
        self.serving.fleet.serve(len(self.serving.requests), np.zeros(0, np.int64), math.inf)
        return self._result()

    def _happen(self) -> None:
        """Everything that is due at this moment; the operator last, on what has come of it."""
        self.script.happen(self.now)
        self._settle()
        self.prometheus.down_until = self.doing.metrics_down_until
        if self.prometheus.settle(self.now, self.kubelet.pods):
            self.wake = max(self.doing.down_until, min(self.wake, self.now))
        if self.wake <= self.now:
            self._reconcile()
            self._settle()
        if self.cluster.watched != self.seen:
            self.seen = self.cluster.watched
            self.wake = max(self.doing.down_until, min(self.wake, self.now + WATCH_SECONDS))

    def _settle(self) -> None:
        self.kubelet.settle(self.now)
        self.gateway.settle(self.now)
        self.live.settle(self.now)
        lost = self.doing.lost
        gone = self.serving.sync(self.kubelet.pods, self.now, lambda pod: Fate.BROKEN if pod in lost else Fate.CUT_OFF)
        for pod, count in gone.items():
            how = "lost with" if pod in lost else "cut off, their time to drain was up:"
            self.tell("traffic", "RequestsLost", f"{words.count(count, 'request')} {how} {pod}")

    def _reconcile(self) -> None:
        """One pass, or the part of it until the operator is killed."""
        doing = self.doing
        same = self.cluster.service["spec"].get("model", {}).get("uri") == self.spec.model.uri
        self.operator.model_config = self.config if same else None
        self.operator.model_fault = "" if same else "a rehearsal asks no model hub"
        self.operator.offset = timedelta(seconds=doing.clock_offset)
        existing = set(self.cluster.store)
        name = self.cluster.service["metadata"]["name"]
        weights = observed_weights(self.cluster.store.get(Ref("v1", "ConfigMap", gateway_routes_name(name))))
        kill = doing.kills[0] if doing.kills else None
        before = self.cluster.writes
        decision = self.operator.reconcile(kill.left if kill is not None else None)
        wrote = self.cluster.writes - before
        self.passes += 1
        for reason, message in told(name, self.operator.written, weights, existing):
            self.tell("operator", reason, message)
        again = RESYNC_SECONDS if decision.requeue_after is None else decision.requeue_after
        self.wake = self.now + min(RESYNC_SECONDS, max(WATCH_SECONDS, again))
        if kill is not None and self.operator.killed:
            doing.kills.pop(0)
            self.tell("world", "OperatorKilled", f"after {wrote} writes of a pass, back in {kill.down:g} s")
            self.wake = doing.down_until = self.now + kill.down
        elif kill is not None:
            kill.left -= wrote
        self._open()

    def _open(self) -> None:
        """Requests come from when the service is Ready for the first time."""
        ready = self.cluster.condition("Ready")
        if self.serving.open_at == math.inf and ready is not None and ready["status"] == "True":
            self.serving.open_at = self.now
            self.tell("traffic", "Opened", f"requests come from now on, {self.demand.rate:.3g} a second")

    def _serve(self, until: float) -> None:
        found = self.serving.run(until)
        self.unserved += found[Fate.UNSERVED]
        if found[Fate.SENT] and not found[Fate.UNSERVED]:
            self._tell_unserved()

    def _tell_unserved(self) -> None:
        if self.unserved:
            self.tell("traffic", "Unserved", f"{words.count(self.unserved, 'request')} answered 503: no pod to send to")
        self.unserved = 0

    def _result(self) -> Rehearsal:
        window = duration_seconds(self.world.window) if self.world.window else self.seconds / 12
        ready = self.cluster.condition("Ready")
        bounds = tuple(self.spec.measurement.prompt_token_buckets)
        return Rehearsal(
            service=self.cluster.service["metadata"]["name"],
            seconds=self.seconds,
            seed=self.world.seed,
            rate=self.demand.rate,
            assumed_rate=self.demand.assumed,
            entries=tuple(self.entries),
            cells=tuple(cells(self.serving, bounds, window, self.seconds)),
            buckets=bucket_names(bounds),
            fates=counted(self.serving.fate),
            ready=ready is not None and ready["status"] == "True",
            status=self.cluster.status,
            passes=self.passes,
            writes=self.cluster.writes,
            pods_lost=len(self.doing.lost),
            bad=tuple(self.serving.bad()),
            bad_events=len(self.doing.bad),
            kills_to_come=len(self.doing.kills),
        )


class _Clocked(Operator):
    """An operator whose clock may be off."""

    offset = timedelta(0)

    def clock(self) -> datetime:
        """See Operator."""
        return self.cluster.now + self.offset
