"""Live settings in virtual time: what each engine's runtime has read from its revision's ConfigMap (DESIGN §4)."""

import math
from collections.abc import Callable

from firsttoken.manifests.environment import SETTINGS_KEY
from firsttoken.manifests.names import REVISION_LABEL, live_name
from firsttoken.planning.types import LiveSettings
from firsttoken.reconcile import Sync
from firsttoken.reconcile.objects import Ref
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.gateway import FOLLOW_SECONDS, KUBELET_SECONDS
from firsttoken.rehearsal.pods import Pod
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.live_settings import read_live


class Live:
    """The settings files of all engines. A garbled or missing one changes nothing."""

    def __init__(self, cluster: Cluster, pods: Callable[[], list[Pod]]) -> None:
        self._cluster, self._pods = cluster, pods
        self._read: dict[str, str] = {}  # by pod
        self._due: dict[str, float] = {}
        self._now = 0.0

    def settle(self, now: float) -> None:
        """Engines take up what has reached them by `now`: at their start, a second after a touch, or in a minute."""
        self._now, there = now, {p.name: p for p in self._pods() if p.is_engine}
        self._read = {name: text for name, text in self._read.items() if name in there}
        self._due = {name: due for name, due in self._due.items() if name in there}
        for name, pod in there.items():
            stored = self._stored(pod.revision)
            if stored is None or stored == self._read.get(name):
                self._due.pop(name, None)
            elif not pod.ready or now >= self._due.setdefault(name, now + KUBELET_SECONDS):
                self._read[name] = stored
                self._due.pop(name, None)

    def next(self, now: float) -> float:
        """When the next of them takes something up, seconds."""
        return min((due for due in self._due.values() if due > now), default=math.inf)

    def touch(self, sync: Sync) -> None:
        """The operator touched pods: the engines among them get what changed at once."""
        for pod in self._pods():
            if pod.is_engine and sync.pods.get(REVISION_LABEL) == pod.revision:
                self._due[pod.name] = min(self._due.get(pod.name, math.inf), self._now + FOLLOW_SECONDS)

    def of(self, pod: Pod) -> LiveSettings | None:
        """What an engine runs with, None: what its plan says."""
        return _settings(self._read.get(pod.name, ""), pod.uid)

    def _stored(self, revision: str) -> str | None:
        stored = self._cluster.store.get(Ref("v1", "ConfigMap", live_name(revision)))
        text = ((stored or {}).get("data") or {}).get(SETTINGS_KEY)
        return text if isinstance(text, str) and _settings(text, "") is not None else None


def _settings(text: str, uid: str) -> LiveSettings | None:
    """Of the pod with this uid, which may be on trial."""
    try:
        told = read_live(text, uid)
    except SimulationInputError:
        return None
    return LiveSettings(told.token_budget, told.decode_cap, told.long_prefill_threshold)
