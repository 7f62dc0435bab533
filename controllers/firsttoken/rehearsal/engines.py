"""What a revision's engines are in the simulation: by its record, as the operator wrote it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from firsttoken.api.base import API_VERSION
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.memory import block_tokens
from firsttoken.planning.models import model_facts
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.types import Infeasible, LiveSettings, ModelFacts, Plan
from firsttoken.reconcile.objects import Ref
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.errors import NotRehearsedError
from firsttoken.rehearsal.serving import Served
from firsttoken.rehearsal.storing import Object
from firsttoken.rehearsal.world import BadVersion
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet_shape import Pool, Replica
from firsttoken.simulation.from_plan import revision_of_plan


class Engines:
    """Revisions of one cluster as engines."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, AcceleratorProfileSpec],
        config: Mapping[str, Any] | None,
        bad: Callable[[Object], Sequence[BadVersion]],
        hash_tokens: int,
    ) -> None:
        """`bad`: what is wrong with the revision of a record. `hash_tokens`: of the requests."""
        self._cluster, self._profiles, self._config = cluster, profiles, config
        self._bad, self._hash_tokens = bad, hash_tokens
        self._records: dict[str, Object] = {}
        self._facts: dict[str, ModelFacts] = {}
        self._replicas: dict[tuple[str, LiveSettings | None], Replica] = {}

    def hardware(self, revision: str, role: str) -> tuple[str, bool]:
        """Type of GPU of a role, and whether vllm-router is in front of it."""
        plan = self._plan(revision)
        return next(r.accelerator for r in plan.roles if r.role == role), plan.router

    def served(self, revision: str) -> Served:
        """How a revision serves. Raises NotRehearsedError."""
        record, plan = self._record(revision), self._plan(revision)
        if len(plan.roles) > 1:
            raise NotRehearsedError(
                f"revision {revision} splits prefill and decode, whose pods are not rehearsed one by one yet: set "
                "spec.layout.mode to Colocated, or look at it with `simulate`"
            )
        model = ModelSpec.model_validate(record["spec"]["inputs"]["model"])
        facts = model_facts(model, record["spec"]["plan"].get("modelConfig") or self._config)
        assert not isinstance(facts, Infeasible)  # noqa: S101 - it was planned
        (role,) = plan.roles
        block = block_tokens(self._profiles[role.accelerator])
        if self._hash_tokens % block:
            raise NotRehearsedError(
                f"revision {revision} has KV blocks of {block} tokens and the requests are hashed in blocks of "
                f"{self._hash_tokens}: start with the accelerator that has the larger blocks"
            )
        self._facts[revision] = facts
        pool = self._pool(revision, plan)
        wrong = self._bad(record)
        prefill, errors = math.prod(b.prefill for b in wrong), max((b.errors for b in wrong), default=0.0)
        return Served(pool.policy, plan.max_model_length, prefill, errors)

    def replica(self, revision: str, settings: LiveSettings | None) -> Replica:
        """An engine of a revision that was asked for, with these live settings, or else with its plan's."""
        key = (revision, settings)
        if key not in self._replicas:
            plan = self._plan(revision)
            pool = self._pool(revision, replace(plan, settings=settings or plan.settings))
            self._replicas[key] = pool.replicas[0]
        return self._replicas[key]

    def _pool(self, revision: str, plan: Plan) -> Pool:
        (role,) = plan.roles
        try:
            one = replace(plan, roles=(replace(role, replicas=1),))
            return revision_of_plan(one, self._facts[revision], self._profiles).pool
        except SimulationInputError as error:
            raise NotRehearsedError(f"revision {revision}: {error}") from error

    def _record(self, revision: str) -> Object:
        """As it is stored, or was: somebody may have deleted it while its pods run."""
        stored = self._cluster.store.get(Ref(API_VERSION, "InferenceRevision", revision))
        if stored is not None:
            self._records[revision] = stored
        return self._records[revision]

    def _plan(self, revision: str) -> Plan:
        return plan_from_json(self._record(revision)["spec"]["plan"])
