"""What a plan would start, as a fleet: its roles' engines with the live settings that they begin with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.memory import DEFAULT_UTILIZATION, EngineLoad, block_tokens, memory_budget
from firsttoken.planning.routing import CACHE_AWARE
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.links import link_between
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts, Plan, RolePlan
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision, link_of
from firsttoken.simulation.live_settings import LiveValues, applied
from firsttoken.simulation.policies import CacheAware, Policy, PowerOfTwo
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import NULL_BLOCKS, EngineSettings
from firsttoken.simulation.step_table import step_table

Profiles = Mapping[str, AcceleratorProfileSpec]


@dataclass(frozen=True)
class RoleEngine:
    """One role's engine: what it is started with, and its clock."""

    role: str
    replica: Replica
    model: StepModel


def revision_of_plan(plan: Plan, facts: ModelFacts, profiles: Profiles) -> Revision:
    """The plan's replicas behind the router that would be rendered for them. `facts` are those it was planned with.

    Raises SimulationInputError: a role without replicas, or pipeline stages, which overlap batches.
    """
    engines = [_engine(plan, role, facts, profiles[role.accelerator]) for role in plan.roles]
    pools = [_pool(plan, role, engine) for role, engine in zip(plan.roles, engines, strict=True)]
    if len(pools) == 1:
        return Revision(pools[0])
    sides = [(e.model.device, role.tensor_parallel) for e, role in zip(engines, plan.roles, strict=True)]
    return Revision(pools[0], pools[1], link_of(engines[0].model, link_between(sides[0], sides[1])))


def engine_at_start(plan: Plan, role: RolePlan, facts: ModelFacts, profile: AcceleratorProfileSpec) -> RoleEngine:
    """One replica of `role` with the budget that its engine is started with: live settings may be anything below it.

    Raises SimulationInputError: several nodes; pipeline stages, which overlap batches.
    """
    if role.nodes > 1:
        raise SimulationInputError(
            f"a replica of the {role.role} role lies on {role.nodes} nodes: that is not simulated; choose GPUs of "
            "which one node holds it"
        )
    if role.pipeline_parallel > 1:
        raise SimulationInputError(
            f"the {role.role} role has {role.pipeline_parallel} pipeline stages, which overlap batches: that is not "
            "simulated; set spec.engine.pins.pipelineParallel to 1"
        )
    model = StepModel(
        facts,
        device_from_profile(profile),
        tensor_parallel=role.tensor_parallel,
        kv_cache_dtype=role.engine_args.get("kv-cache-dtype", "auto"),
        max_num_seqs=int(role.engine_args["max-num-seqs"]),
    )
    start = _started(role, _kv_tokens(plan, role, facts, profile), block_tokens(profile))
    table = step_table(model, start.token_budget, start.max_num_seqs)
    return RoleEngine(role.role, Replica(replace(start, stages=table.stages()), table), model)


def whole_blocks_of(given: Requests, block: int) -> Requests:
    """The same requests with hashes of the engine's KV blocks of `block` tokens, where theirs are shorter.

    A hash stands for its block and all before it, so every n-th does. Raises SimulationInputError: `block` is no
    multiple of what is hashed.
    """
    own = given.hash_tokens
    if not len(given.hashes) or own % block == 0:
        return given
    if block % own:
        raise SimulationInputError(
            f"the trace hashes blocks of {own} tokens and the engine has KV blocks of {block}: one must be a multiple "
            "of the other; leave the hashes out"
        )
    every = block // own
    counts = np.diff(given.hash_offsets) // every
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    kept = given.hashes[np.repeat(given.hash_offsets[:-1], counts) + (inside + 1) * every - 1]
    return replace(given, hash_offsets=offsets, hashes=kept, hash_tokens=block)


def _pool(plan: Plan, role: RolePlan, engine: RoleEngine) -> Pool:
    if role.replicas < 1:
        raise SimulationInputError(
            f"the plan has 0 {role.role} replicas: set spec.scaling.minReplicas or replicas to 1 or more"
        )
    return Pool((engine.replica,) * role.replicas, _policy(plan, role))


def _policy(plan: Plan, role: RolePlan) -> Policy:
    """As rendered (manifests/router.py); Envoy alone takes the smaller load of two drawn at random."""
    if not plan.router or role.role == "decode" or plan.routing.policy != CACHE_AWARE:
        return PowerOfTwo()
    return CacheAware(plan.routing.cache_threshold, plan.routing.most_ahead, plan.routing.most_times)


def _engine(plan: Plan, role: RolePlan, facts: ModelFacts, profile: AcceleratorProfileSpec) -> RoleEngine:
    found = engine_at_start(plan, role, facts, profile)
    settings, table = found.replica
    return replace(found, replica=Replica(_live(plan, role, settings), table))


def _started(role: RolePlan, kv_tokens: int, block: int) -> EngineSettings:
    """As started: live settings may be anything below it."""
    args = role.engine_args
    budget = int(args["max-num-batched-tokens"])
    return EngineSettings(
        token_budget=budget,
        max_num_seqs=min(int(args["max-num-seqs"]), budget),
        kv_blocks=max(1, kv_tokens // block - NULL_BLOCKS),
        block_tokens=block,
        chunked_prefill="no-enable-chunked-prefill" not in args,
        prefix_caching="no-enable-prefix-caching" not in args,
        priorities=args.get("scheduling-policy") == "priority",
    )


def _live(plan: Plan, role: RolePlan, start: EngineSettings) -> EngineSettings:
    """With the plan's live settings: the budget is the one of prompts, the cap that of decodes (planning/plan.py)."""
    live = plan.settings
    cap = live.decode_cap if role.role != "prefill" else 0
    values = LiveValues(0, live.token_budget, cap, live.long_prefill_threshold)
    return applied(values, start, computes=role.role != "decode")


def _kv_tokens(plan: Plan, role: RolePlan, facts: ModelFacts, profile: AcceleratorProfileSpec) -> int:
    """Tokens of KV of one replica; an older plan keeps those of its last role only."""
    if role.memory is not None:
        return role.memory.kv_cache_tokens
    if role is plan.roles[-1]:
        return plan.memory.kv_cache_tokens
    args = role.engine_args
    load = EngineLoad(
        token_budget=int(args["max-num-batched-tokens"]),
        max_num_seqs=int(args["max-num-seqs"]),
        max_model_length=plan.max_model_length,
        request_tokens=plan.max_model_length,
        utilization=float(args.get("gpu-memory-utilization", DEFAULT_UTILIZATION)),
        kv_cache_dtype=args.get("kv-cache-dtype", "auto"),
    )
    return memory_budget(facts, profile, role.tensor_parallel, role.pipeline_parallel, load).kv_cache_tokens
