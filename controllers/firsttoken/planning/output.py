"""A plan as JSON, for `firsttoken plan -o json` and InferenceRevision.spec.plan, and back. Only what is computed."""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.types import Infeasible, LiveSettings, MemoryBudget, Plan, Reason, RolePlan

_MEMORY = {
    "weightsBytes": "weights_bytes",
    "kvBytesPerToken": "kv_bytes_per_token",
    "kvCacheTokens": "kv_cache_tokens",
    "kvCacheBytes": "kv_cache_bytes",
    "activationBytes": "activation_bytes",
    "overheadBytes": "overhead_bytes",
    "usableBytes": "usable_bytes",
    "maxConcurrentRequests": "max_concurrent_requests",
    "maxConcurrentAtMaximumLength": "max_concurrent_at_maximum_length",
}
_SETTINGS = {
    "tokenBudget": "token_budget",
    "decodeCap": "decode_cap",
    "longPrefillThreshold": "long_prefill_threshold",
}


def plan_to_json(plan: Plan | Infeasible) -> dict[str, Any]:
    """Plain values in a fixed order of keys."""
    if isinstance(plan, Infeasible):
        refusal = {"constraint": plan.constraint, "message": plan.message, "nearest": dict(plan.nearest)}
        return {"feasible": False, "infeasible": refusal}
    return {
        "feasible": True,
        "layout": plan.layout,
        "model": plan.model,
        "maxModelLength": plan.max_model_length,
        "gpus": plan.gpus,
        "router": plan.router,
        "roles": [_role_to_json(role) for role in plan.roles],
        "memory": {key: getattr(plan.memory, name) for key, name in _MEMORY.items()},
        "settings": {key: getattr(plan.settings, name) for key, name in _SETTINGS.items()},
        "reasons": [{"code": r.code, "message": r.message} for r in plan.reasons],
    }


def plan_from_json(value: Mapping[str, Any]) -> Plan:
    """The plan that `plan_to_json` wrote. Raises ValueError when `value` is not a feasible plan or lacks a key."""
    try:
        if not value["feasible"]:
            raise ValueError(f"not a feasible plan: {value['infeasible']['message']}")
        return Plan(
            layout=value["layout"],
            model=value["model"],
            max_model_length=value["maxModelLength"],
            roles=tuple(_role_from_json(role) for role in value["roles"]),
            # Later versions may add keys: what is missing has a default in MemoryBudget, what is new is ignored.
            memory=MemoryBudget(**{n: value["memory"][k] for k, n in _MEMORY.items() if k in value["memory"]}),
            settings=LiveSettings(**{n: value["settings"][k] for k, n in _SETTINGS.items() if k in value["settings"]}),
            router=value["router"],
            reasons=tuple(Reason(r["code"], r["message"]) for r in value["reasons"]),
        )
    except (KeyError, TypeError) as fault:
        raise ValueError(f"not a plan: {fault!r}") from fault


def _role_to_json(role: RolePlan) -> dict[str, Any]:
    return {
        "role": role.role,
        "accelerator": role.accelerator,
        "replicas": role.replicas,
        # Data parallelism inside a replica is not used: replicas behind a router do the same and fail apart.
        "parallelism": {"tensor": role.tensor_parallel, "pipeline": role.pipeline_parallel, "data": 1},
        "engineArgs": dict(role.engine_args),
        "environment": dict(role.environment),
    }


def _role_from_json(value: Mapping[str, Any]) -> RolePlan:
    return RolePlan(
        role=value["role"],
        accelerator=value["accelerator"],
        replicas=value["replicas"],
        tensor_parallel=value["parallelism"]["tensor"],
        pipeline_parallel=value["parallelism"]["pipeline"],
        engine_args=dict(value["engineArgs"]),
        environment=dict(value.get("environment", {})),
    )
