"""Replicas per role under the hard budget: the part of a plan that changes without a new revision.

With a rate there are as many as carry it within the SLOs, by the capacity that each role was planned with; without one,
the budget is used.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.load.layouts import RoleGoodput, best_split
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible, Plan, Reason, RolePlan
from firsttoken.planning.words import count, device_noun, number

MOST_MARGIN = 0.25
ROUTER_MISSING = "RouterMissing"
NO_RATE = "name spec.workload.requestsPerSecond to have replicas follow the rate"


def with_replicas(plan: Plan, spec: InferenceServiceSpec, interval: float | None = None) -> Plan | Infeasible:
    """`plan` with each role's replicas as `spec.scaling` and `spec.accelerator.maxCount` say; nothing else changes.

    `interval`: how far the plan's capacities may be off, relative, where it carries no prediction yet.
    """
    if plan.prediction is not None:
        interval = plan.prediction.relative_interval
    try:
        counts, reason = _counts(plan.roles, spec, MOST_MARGIN if interval is None else interval)
    except InfeasibleError as refused:
        return refused.infeasible
    roles = tuple(replace(role, replicas=n) for role, n in zip(plan.roles, counts, strict=True))
    said = [r for r in plan.reasons if r.code != ROUTER_MISSING]
    at = next((i for i, r in enumerate(said) if r.code == reason.code), len(said))
    said[at : at + 1] = [reason]
    return replace(plan, roles=roles, reasons=(*said, *_router_missing(plan, roles)))


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


def counts_without_rate(each: Sequence[RoleGoodput], spec: InferenceServiceSpec) -> tuple[int, ...]:
    """Replicas a role where no rate says how many: those asked for, else what the budget holds of what each carries."""
    scaling, limit = spec.scaling, spec.accelerator.max_count
    if scaling.mode == "Planned" and scaling.replicas is not None:
        return (scaling.replicas,) * len(each)
    if scaling.mode == "External" and scaling.replicas is not None:
        return (_allowed(spec, sum(r.gpus for r in each)),) * len(each)
    return (_least(spec, None),) * len(each) if limit is None else _most(each, spec, limit)


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


def _counts(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec, interval: float) -> tuple[tuple[int, ...], Reason]:
    limit, per_set = spec.accelerator.max_count, sum(r.gpus_per_replica for r in roles)
    scaling = spec.scaling
    wanted = scaling.replicas if scaling.mode == "Planned" else None
    _check_budget(roles, spec, wanted)
    if wanted is not None:
        text = f"{_each(wanted, roles)}, as spec.scaling.replicas says{_short(roles, spec, wanted)}"
        return (wanted,) * len(roles), Reason("Replicas", text)
    if scaling.mode == "External" and scaling.replicas is not None:
        return _external(roles, spec, per_set)
    if _sizable(roles, spec):
        return _by_rate(roles, spec, interval)
    if limit is None:
        return _without_budget(roles, spec)
    counts = counts_without_rate(_goodputs(roles), spec)
    return counts, Reason("Replicas", _explain(roles, counts, limit))


def replicas_for(rate: float, capacity: float, interval: float) -> int:
    """Replicas that carry `rate`, with as much room as the prediction may be wrong by (`interval`, relative)."""
    return max(1, math.ceil(rate * (1 + margin(interval)) / capacity - 1e-9)) if capacity > 0 else 1


def margin(interval: float) -> float:
    """How much more than the rate is provided for, relative: what a prediction may be off, a quarter at most."""
    return min(MOST_MARGIN, interval)


def _room(interval: float) -> str:
    """The margin in words, and where it is less than what predictions may be off."""
    text = f"{margin(interval) * 100:.0f} % more, since predictions may be off"
    return text if interval <= MOST_MARGIN else f"{text} (here by {interval * 100:.0f} %: measure before relying on it)"


def _beyond(roles: tuple[RolePlan, ...]) -> str:
    missing = [r.role for r in roles if not r.keeps_slos]
    if not missing:
        return ""
    return f"; no rate worth having keeps all SLOs ({' and '.join(missing)}), so it is all that a replica serves"


def _sizable(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec) -> bool:
    """Whether a rate is named and each role is known to carry something."""
    return spec.workload.requests_per_second is not None and all(r.capacity for r in roles)


def _by_rate(
    roles: tuple[RolePlan, ...], spec: InferenceServiceSpec, interval: float
) -> tuple[tuple[int, ...], Reason]:
    """As many as carry the rate; within the budget as many as it allows, in the proportion that carries most."""
    rate, scaling, limit = spec.workload.requests_per_second or 0.0, spec.scaling, spec.accelerator.max_count
    needed = [replicas_for(rate, r.capacity or 0.0, interval) for r in roles]
    wanted = [max(n, scaling.min_replicas or 0) for n in needed]
    wanted = [min(n, scaling.max_replicas) if scaling.max_replicas is not None else n for n in wanted]
    each = ", ".join(
        f"{n} x {number(r.capacity or 0.0)} requests/s for {r.role}" for n, r in zip(wanted, roles, strict=True)
    )
    said = f"{each}: {number(rate)} requests/s and {_room(interval)}{_beyond(roles)}"
    gpus = sum(n * r.gpus_per_replica for n, r in zip(wanted, roles, strict=True))
    if limit is None or gpus <= limit:
        return tuple(wanted), Reason("Replicas", f"{said}{_cut_short(roles, rate, wanted)}")
    counts = _most(_goodputs(roles), spec, limit)
    carried = min(n * (r.capacity or 0.0) for n, r in zip(counts, roles, strict=True))
    have = ", ".join(f"{n} for {r.role}" for n, r in zip(counts, roles, strict=True))
    short = "raise spec.accelerator.maxCount, or expect a queue"
    if carried >= rate:
        short = "enough, with less room than that: raise spec.accelerator.maxCount to have it"
    text = (
        f"{have}: {number(rate)} requests/s and {_room(interval)}, would take {_devices(gpus, roles)}; maxCount "
        f"{limit} carries about {number(carried)}: {short}{_beyond(roles)}"
    )
    return counts, Reason("Replicas", text)


def _short(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec, replicas: int) -> str:
    """What to say where the rate is more than so many replicas carry."""
    rate, carried = spec.workload.requests_per_second, replicas * min(r.capacity or math.inf for r in roles)
    if not replicas or rate is None or rate <= carried:
        return ""
    return f", which carry about {number(carried)} of the {number(rate)} requests/s: expect a queue, or raise it"


def _cut_short(roles: tuple[RolePlan, ...], rate: float, counts: Sequence[int]) -> str:
    """What to say where maxReplicas leaves less than the rate takes."""
    carried = min(n * (r.capacity or 0.0) for n, r in zip(counts, roles, strict=True))
    if carried >= rate:
        return ""
    return f"; maxReplicas leaves about {number(carried)} of them: raise spec.scaling.maxReplicas, or expect a queue"


def _goodputs(roles: Sequence[RolePlan]) -> tuple[RoleGoodput, ...]:
    return tuple(RoleGoodput(r.capacity or 0.0, r.gpus_per_replica) for r in roles)


def _most(each: Sequence[RoleGoodput], spec: InferenceServiceSpec, limit: int) -> tuple[int, ...]:
    """What the budget holds: all of it for one role, the split that carries most for two."""
    least, most = max(1, spec.scaling.min_replicas or 0), spec.scaling.max_replicas
    if len(each) == 2:
        split = best_split(each[0], each[1], limit)
        if split is not None and min(split.prefill, split.decode) >= least:
            counts = (split.prefill, split.decode)
            return counts if most is None else _cut(counts, each, least, most)
    return _share(each, limit, least, most)


def _cut(counts: tuple[int, int], each: Sequence[RoleGoodput], least: int, most: int) -> tuple[int, ...]:
    """No more than `most` of a role, and of the other no more than that carries."""
    kept = [min(n, most) for n in counts]
    carried = min(n * r.rate for n, r in zip(kept, each, strict=True))
    return tuple(max(least, math.ceil(carried / r.rate - 1e-9)) if r.rate else least for r in each)


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
        f"{count(least, 'replica')} of {_devices(per_set, roles)} take {least * per_set}, "
        f"spec.accelerator.maxCount allows {limit}: "
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
    wished, allowed = spec.scaling.replicas or 0, _allowed(spec, per_set)
    cut = "" if allowed == wished else f" (the autoscaler asks for {wished}; bounds and maxCount allow {allowed})"
    return (allowed,) * len(roles), Reason("Replicas", f"{_each(allowed, roles)}, set through /scale{cut}")


def _allowed(spec: InferenceServiceSpec, per_set: int) -> int:
    """What an autoscaler asks for, within the bounds and the budget."""
    scaling, limit = spec.scaling, spec.accelerator.max_count
    allowed = max(scaling.replicas or 0, scaling.min_replicas or 0)
    for bound in (scaling.max_replicas, limit // per_set if limit is not None else None):
        allowed = min(allowed, bound) if bound is not None else allowed
    return allowed


def _without_budget(roles: tuple[RolePlan, ...], spec: InferenceServiceSpec) -> tuple[tuple[int, ...], Reason]:
    least = spec.scaling.min_replicas if spec.scaling.min_replicas is not None else 1
    text = f"{_each(least, roles)}: no spec.accelerator.maxCount is set, so no more than asked for; {NO_RATE}"
    return (least,) * len(roles), Reason("Replicas", text)


def _share(roles: Sequence[RoleGoodput], limit: int, least: int, most: int | None) -> tuple[int, ...]:
    """Replicas per role within `limit` GPUs: all for one role, an even split of the GPUs between two."""
    counts: list[int] = []
    left = limit
    for index, role in enumerate(roles):
        rest = roles[index + 1 :]
        reserved = least * sum(r.gpus for r in rest)
        even = max(least, left // (1 + len(rest)) // role.gpus)
        share = min(even, (left - reserved) // role.gpus)
        share = min(share, most) if most is not None else share
        counts.append(share)
        left -= share * role.gpus
    return tuple(counts)


def _each(replicas: int, roles: tuple[RolePlan, ...]) -> str:
    return f"{replicas} for each role" if len(roles) > 1 else count(replicas, "replica")


def _devices(devices: int, roles: tuple[RolePlan, ...]) -> str:
    return count(devices, device_noun(r.accelerator for r in roles))


def _how_split(roles: tuple[RolePlan, ...]) -> str:
    if not all(r.capacity for r in roles):
        return "GPUs split evenly"
    return "split as carries most: " + ", ".join(
        f"a {r.role} replica {number(r.capacity or 0.0)} requests/s" for r in roles
    )


def _explain(roles: tuple[RolePlan, ...], counts: tuple[int, ...], limit: int) -> str:
    each = ", ".join(
        f"{n} x {_devices(r.gpus_per_replica, roles)} for {r.role}" for r, n in zip(roles, counts, strict=True)
    )
    how = "the budget filled" if len(roles) == 1 else _how_split(roles)
    return f"{each} within maxCount {limit} ({how}); {NO_RATE}"
