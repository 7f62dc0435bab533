"""What `decide` is given and what it answers: frozen values, no clock, no client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from firsttoken.manifests.images import Images
from firsttoken.measurement.blocks import Measurements, Part
from firsttoken.reconcile.envoy_views import Envoys
from firsttoken.reconcile.objects import Object, Ref
from firsttoken.reconcile.ratios import Ratios


@dataclass(frozen=True)
class Observation:
    """One service as it was seen at `now` (UTC), everything read after its spec.

    `rejected` holds what the API server refused in this very pass (reference -> its message), so that the status says
    it. `children` are the objects that carry the service's label and are ours; `pods` are read only while something is
    not ready; `foreign` are names we want that belong to somebody else; `envoys` is what came of asking the Envoys,
    None if they were not asked: then what was written counts as arrived, and `Decision.ask` says whether asking could
    matter; `profiles` holds the AcceleratorProfiles that exist among those the spec names; `gateway_api` says whether
    the cluster knows HTTPRoutes, `groups_api` whether LeaderWorkerSets. `model_config` is the config.json of a model
    that neither spec nor catalogue nor a record knows, `model_fault` why the hub did not give it. `measurements`: what
    Prometheus has of the service, None if nobody is to be asked; `ratios` what came of it (ratios.ratios_of).
    """

    now: datetime
    service: Object
    revisions: tuple[Object, ...] = ()
    children: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    envoys: Envoys | None = None
    profiles: Mapping[str, Object] = field(default_factory=dict)
    foreign: frozenset[Ref] = frozenset()
    rejected: Mapping[Ref, str] = field(default_factory=dict)
    gateway_api: bool = True
    groups_api: bool = True
    model_config: Mapping[str, Any] | None = None
    model_fault: str = ""
    measurements: Measurements | None = None
    ratios: Mapping[Part, Ratios] = field(default_factory=dict)
    images: Images = field(default_factory=Images)


@dataclass(frozen=True)
class Event:
    """A Kubernetes event: on transitions only."""

    type: str  # Normal | Warning
    reason: str
    message: str


@dataclass(frozen=True)
class Sync:
    """Pods (by label) that mount a ConfigMap which changed: annotating them makes the kubelet look at once."""

    pods: Mapping[str, str]
    content: str  # hash of the data, so that repeating it changes nothing


@dataclass(frozen=True)
class Decision:
    """What to do, in this order: apply, sync, calibrate, tell events, write status, delete.

    `calibrate`: what is applied to the status of InferenceRevisions. `status` is None when it would not change.
    `requeue_after` (seconds) asks for a look without an event. `ask`: this was decided without the Envoys, and what
    they say could change it.
    """

    apply: tuple[dict[str, Any], ...] = ()
    sync: tuple[Sync, ...] = ()
    calibrate: tuple[dict[str, Any], ...] = ()
    status: dict[str, Any] | None = None
    events: tuple[Event, ...] = ()
    delete: tuple[Object, ...] = ()
    requeue_after: float | None = None
    ask: bool = False

    @property
    def writes(self) -> bool:
        """Whether anything would be written."""
        written = self.apply or self.sync or self.calibrate or self.events or self.delete
        return bool(written) or self.status is not None
