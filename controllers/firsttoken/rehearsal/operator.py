"""The operator's passes over a cluster in memory: what gather, look-up and act of firsttoken_operator do, in order.

One write after the other, so that it can die between any two.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from firsttoken.manifests.images import Images
from firsttoken.manifests.names import ROLE_LABEL, SERVICE_LABEL
from firsttoken.measurement.blocks import Measurements
from firsttoken.reconcile import Decision, Event, Observation, Sync, decide
from firsttoken.reconcile.envoy_views import Envoys
from firsttoken.reconcile.objects import is_owned, label, progress, ref
from firsttoken.reconcile.ratios import ratios_of
from firsttoken.rehearsal.cluster import Cluster, RefusedError
from firsttoken.rehearsal.storing import Object


class Operator:
    """Reconciles the service of a cluster. It keeps nothing of a pass that decides anything in the next."""

    def __init__(self, cluster: Cluster, images: Images | None = None) -> None:
        self.cluster = cluster
        self.images = images or Images()
        self.envoys: Callable[[], Envoys] | None = None  # None: there is no way to them
        self.model_config: Object | None = None  # what the hub says
        self.model_fault = ""
        self.measured: Callable[[], Measurements | None] = lambda: None  # what Prometheus has; None: nobody is asked
        self.asked = 0  # how often the Envoys were
        self.events: list[Event] = []
        self.written: list[tuple[str, Any]] = []  # in the last pass: apply, event, status or delete, and of what
        self.killed = False  # in the last pass
        self.touch: Callable[[Sync], None] = lambda _: None  # pods that a changed ConfigMap is to reach at once

    def clock(self) -> datetime:
        """What time this process believes it is."""
        return self.cluster.now

    def observe(self) -> Observation:
        """The objects with the service's label, as values of their own."""
        cluster = self.cluster
        name = cluster.service["metadata"]["name"]
        labelled = [copy.deepcopy(o) for o in cluster.objects() if label(o, SERVICE_LABEL) == name]
        deployments = [o for o in labelled if o["kind"] == "Deployment" and label(o, ROLE_LABEL) is not None]
        revisions, measurements = tuple(o for o in labelled if o["kind"] == "InferenceRevision"), self.measured()
        return Observation(
            now=self.clock(),
            service=copy.deepcopy(cluster.service),
            revisions=revisions,
            children=tuple(o for o in labelled if o["kind"] != "InferenceRevision"),
            pods=() if all(progress(d).complete for d in deployments) else tuple(copy.deepcopy(cluster.pods)),
            profiles=cluster.profiles,
            gateway_api=cluster.gateway_api,
            model_config=copy.deepcopy(self.model_config),
            model_fault=self.model_fault,
            measurements=measurements,
            ratios=ratios_of(measurements, name, revisions, cluster.profiles),
            images=self.images,
        )

    def look(self) -> tuple[Observation, Decision]:
        """What would be decided now: names not among the labelled children are looked up, as 0006 has it."""
        store, uid = self.cluster.store, self.cluster.service["metadata"]["uid"]
        observation, decision = self._decide(self.observe())
        there = [store[ref(o)] for o in decision.apply if ref(o) in store]
        seen = {ref(o) for o in (*observation.children, *observation.revisions) if is_owned(o, uid)}
        foreign = frozenset(ref(o) for o in there if not is_owned(o, uid))
        ours = tuple(copy.deepcopy(o) for o in there if is_owned(o, uid) and ref(o) not in seen)
        if foreign or ours:
            records = tuple(o for o in ours if o["kind"] == "InferenceRevision")
            others = tuple(o for o in ours if o["kind"] != "InferenceRevision")
            observation = replace(
                observation,
                foreign=foreign,
                children=(*observation.children, *others),
                revisions=(*observation.revisions, *records),
            )
            observation, decision = self._decide(observation)
        return observation, decision

    def _decide(self, observation: Observation) -> tuple[Observation, Decision]:
        """Envoys are asked only if that could matter, as the operator does."""
        decision = decide(observation)
        if self.envoys is None or not decision.ask:
            return observation, decision
        self.asked += 1
        observation = replace(observation, envoys=self.envoys())
        return observation, decide(observation)

    def reconcile(self, steps: int | None = None) -> Decision:
        """One pass; with `steps` it is killed after that many writes."""
        observation, decision = self.look()
        self.written, self.killed = [], False
        for number, write in enumerate(self.act(observation, decision)):
            if number == steps:
                self.killed = True
                break
            self.written.append(write)
        return decision

    def act(self, observation: Observation, decision: Decision) -> Iterator[tuple[str, Any]]:
        """As the operator acts: a step is yielded before each write."""
        rejected = {}
        for obj in decision.apply:
            yield "apply", obj
            try:
                self.cluster.apply(obj)
            except RefusedError as error:
                rejected[ref(obj)] = str(error)
                if obj["kind"] == "InferenceRevision":
                    break
        for sync in decision.sync:
            self.touch(sync)
        if rejected:
            decision = decide(replace(observation, rejected=rejected))
        for measured in decision.calibrate:
            yield "calibration", measured
            with contextlib.suppress(RefusedError):
                self.cluster.apply_status(measured)
        for event in decision.events:
            yield "event", event
            self.cluster.writes += 1
            self.events.append(event)
        if decision.status is not None:
            yield "status", decision.status
            self.cluster.put_status(decision.status)
        for gone in decision.delete:
            yield "delete", gone
            self.cluster.delete(ref(gone))
