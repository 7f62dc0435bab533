"""Replicas per role under the hard budget: the part of a plan that changes without a new revision.

There is no time model yet, so nothing here pretends to know how many replicas a request rate needs.
"""

from dataclasses import replace

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible, Plan, Reason, RolePlan

ROUTER_MISSING = "RouterMissing"
UNSIZED = "sizing by request rate needs the time model, which isn't there yet"


def with_replicas(plan: Plan, spec: InferenceServiceSpec) -> Plan | Infeasible:
    """`plan` with each role's replicas as `spec.scaling` and `spec.accelerator.maxCount` say; nothing else changes."""
    try:
        counts, reason = _counts(plan.roles, spec)
    except InfeasibleError as refused:
        return refused.infeasible
    roles = tuple(replace(role, replicas=n) for role, n in zip(plan.roles, counts, strict=True))
    kept = tuple(r for r in plan.reasons if r.code not in (reason.code, ROUTER_MISSING))
    return replace(plan, roles=roles, reasons=(*kept, reason, *_router_missing(plan, roles)))


def _router_missing(plan: Plan, roles: tuple[RolePlan, ...]) -> tuple[Reason, ...]:
    """A revision planned for one replica has no router, and scaling does not make a new revision."""
    most = max(role.replicas for role in roles)
    if plan.router or most < 2 or not any("enable-prefix-caching" in role.engine_args for role in roles):
        return ()
    text = (
        f"{most} replicas have a prefix cache each, and this revision was planned without vllm-router: Envoy spreads "
        f"requests by load, so a prefix is computed up to {most} times; the next revision gets a router"
    )
    return (Reason(ROUTER_MISSING, text),)


def least_replicas(spec: InferenceServiceSpec) -> int:
    """Replicas that must fit whatever else is decided. With mode External, `replicas` is somebody else's wish."""
    scaling = spec.scaling
    fixed = scaling.replicas if scaling.mode == "Planned" else None
    return max(1, fixed or 0, scaling.min_replicas or 0)


def may_run_several(spec: InferenceServiceSpec, gpus: int) -> bool:
    """Whether the budget allows a second replica of `gpus` GPUs, now or after a change of `spec.scaling`."""
    if spec.accelerator.max_count is not None:
        return spec.accelerator.max_count >= 2 * gpus
    scaling = spec.scaling
    wanted = (scaling.replicas, scaling.min_replicas, scaling.max_replicas)
    return scaling.mode == "External" or max(n or 0 for n in wanted) > 1


def _counts(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec) -> tuple[tuple[int, ...], Reason]:
    limit, per_set = spec.accelerator.max_count, sum(r.gpus_per_replica for r in roles)
    scaling = spec.scaling
    wanted = scaling.replicas if scaling.mode == "Planned" else None
    _check_budget(roles, spec, wanted)
    if wanted is not None:
        return (wanted,) * len(roles), Reason("Replicas", f"{wanted} for each role, as spec.scaling.replicas says")
    if scaling.mode == "External" and scaling.replicas is not None:
        return _external(roles, spec, per_set)
    if limit is None:
        return _without_budget(roles, spec)
    counts = _share(roles, limit, max(1, scaling.min_replicas or 0), scaling.max_replicas)
    return counts, Reason("Replicas", _explain(roles, counts, limit))


def _check_budget(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec, wanted: int | None) -> None:
    """The hard budget: what must run has to fit into maxCount."""
    limit, per_set = spec.accelerator.max_count, sum(r.gpus_per_replica for r in roles)
    least = _least(spec, wanted)
    if limit is None or least * per_set <= limit:
        return
    field = "replicas" if wanted is not None else "minReplicas"
    holds = limit // per_set
    nearest = {"spec.accelerator.maxCount": least * per_set}
    if holds:
        nearest[f"spec.scaling.{field}"] = holds
    remedy = f", or lower spec.scaling.{field} to {holds}" if holds else ""
    raise InfeasibleError(
        "MaxCount",
        f"{least} replica(s) of {per_set} GPU(s) take {least * per_set}, spec.accelerator.maxCount allows {limit}: "
        f"raise it to {least * per_set}{remedy}",
        nearest,
    )


def _least(spec: InferenceServiceSpec, wanted: int | None) -> int:
    """Replicas that must run: those asked for (0 is 0), or at least one where nobody said a number."""
    scaling = spec.scaling
    if wanted is not None:
        return wanted
    if scaling.replicas is not None:
        return scaling.min_replicas or 0
    return max(1, scaling.min_replicas or 0)


def _external(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec, per_set: int) -> tuple[tuple[int, ...], Reason]:
    """An autoscaler does not know the budget, so its wish is cut rather than refused, and that is said."""
    scaling, limit = spec.scaling, spec.accelerator.max_count
    wished = scaling.replicas or 0
    allowed = max(wished, scaling.min_replicas or 0)
    for bound in (scaling.max_replicas, limit // per_set if limit is not None else None):
        allowed = min(allowed, bound) if bound is not None else allowed
    cut = "" if allowed == wished else f" (the autoscaler asks for {wished}; bounds and maxCount allow {allowed})"
    return (allowed,) * len(roles), Reason("Replicas", f"{allowed} for each role, set through /scale{cut}")


def _without_budget(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec) -> tuple[tuple[int, ...], Reason]:
    count = spec.scaling.min_replicas if spec.scaling.min_replicas is not None else 1
    text = f"{count} for each role: no spec.accelerator.maxCount is set, so no more than asked for; {UNSIZED}"
    return (count,) * len(roles), Reason("Replicas", text)


def _share(roles: tuple[RolePlan, ...], limit: int, least: int, most: int | None) -> tuple[int, ...]:
    """Replicas per role within `limit` GPUs: all for one role, an even split of the GPUs between two."""
    counts: list[int] = []
    left = limit
    for index, role in enumerate(roles):
        rest = roles[index + 1 :]
        reserved = least * sum(r.gpus_per_replica for r in rest)
        even = max(least, left // (1 + len(rest)) // role.gpus_per_replica)
        count = min(even, (left - reserved) // role.gpus_per_replica)
        count = min(count, most) if most is not None else count
        counts.append(count)
        left -= count * role.gpus_per_replica
    return tuple(counts)


def _explain(roles: tuple[RolePlan, ...], counts: tuple[int, ...], limit: int) -> str:
    each = ", ".join(f"{n} x {r.gpus_per_replica} GPU(s) for {r.role}" for r, n in zip(roles, counts, strict=True))
    how = "the budget filled" if len(roles) == 1 else "GPUs split evenly, a start until measured"
    return f"{each} within maxCount {limit} ({how}); {UNSIZED}"
