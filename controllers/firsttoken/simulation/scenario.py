"""A plan's revision with the options of a workload file: router, engines, and a canary beside it."""

from dataclasses import replace
from typing import Any

import numpy as np

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.workload_file import ClientsPart, EnginePart, PriorityPart, WorkloadFile

ARMS = ("stable", "canary")


def revisions_of(revision: Revision, given: WorkloadFile, max_model_length: int) -> tuple[Revision, ...]:
    """The revision as the file has it, and its canary if there is one. Raises SimulationInputError."""
    stable = _with(revision, given, given.engine, max_model_length)
    if given.canary is None:
        return (stable,)
    canary = _with(revision, given, given.canary.engine, max_model_length)
    return replace(stable, weight=1 - given.canary.weight), replace(canary, weight=given.canary.weight)


def _with(revision: Revision, given: WorkloadFile, engine: EnginePart, max_model_length: int) -> Revision:
    pool = replace(revision.pool, policy=given.policy or revision.pool.policy)
    decode = revision.decode and _changed(revision.decode, engine, max_model_length)
    return replace(revision, pool=_changed(pool, engine, max_model_length), decode=decode)


def _changed(pool: Pool, engine: EnginePart, max_model_length: int) -> Pool:
    known = {id(one): _engine(one, engine, max_model_length) for one in pool.replicas}
    return replace(pool, replicas=tuple(known[id(one)] for one in pool.replicas))


def _engine(one: Replica, engine: EnginePart, max_model_length: int) -> Replica:
    options: dict[str, Any] = {
        "prefill_share": engine.prefill_share,
        "watermark": engine.watermark,
        "priorities": engine.priorities or one.settings.priorities,
    }
    if engine.reserve_full_length:
        options["reserved_tokens"] = max_model_length
    if engine.token_budget is not None:
        if engine.token_budget > one.settings.token_budget:
            raise SimulationInputError(
                f"tokenBudget is {engine.token_budget}, above the plan's {one.settings.token_budget}: lower it, or pin "
                "spec.engine.pins.tokenBudget"
            )
        options["token_budget"] = engine.token_budget
        options["max_num_seqs"] = min(one.settings.max_num_seqs, engine.token_budget)
        options["decode_cap"] = min(one.settings.decode_cap, engine.token_budget)
    return Replica(replace(one.settings, **options), one.table)


def with_priorities(given: Requests, shares: tuple[PriorityPart, ...], seed: int) -> Requests:
    """The same requests with priorities drawn by their shares."""
    if not shares:
        return given
    source = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed).spawn(5)[-1]))
    values = source.choice([one.priority for one in shares], len(given), p=[one.share for one in shares])
    return replace(given, priority=values.astype(np.int8))


def closed_loop(served: Requests, revision: Revision, clients: ClientsPart, **bins: Any) -> FleetOutcome:
    """The requests on one engine, sent by clients that wait for their answers; `bins` as of FastEngine.

    Raises SimulationInputError: the plan has several replicas, or prefill and decode apart.
    """
    if revision.decode is not None or len(revision.pool.replicas) > 1:
        raise SimulationInputError(
            "clients: a closed loop is of one replica, and the plan has more: lower spec.accelerator.maxCount, "
            "or give arrivals"
        )
    (one,) = revision.pool.replicas
    engine = FastEngine(served, one.settings, one.table, **bins)
    found = engine.run_closed(clients.count, clients.think_seconds)
    sent = replace(served, arrival=found.arrival)
    nobody = np.zeros(len(served), np.int32)
    names = ("arrival", "ready", "queued", "first", "finish", "preempted", "cached")
    return FleetOutcome(
        requests=sent,
        revision=nobody.astype(np.int64),
        replica=nobody,
        decoder=nobody,
        prefilled=found.first,
        gateway=np.full(len(served), found.stages.gateway_seconds),
        delivery=np.full(len(served), found.stages.delivery_seconds),
        replicas=(replace(found, requests=sent),),
        roles=("serve",),
        revisions=(0,),
        **{name: getattr(found, name) for name in names},
    )
