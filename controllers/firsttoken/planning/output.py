"""A plan as JSON, for `firsttoken plan -o json` and InferenceRevision.spec.plan, and back. Only what is computed."""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.typed import check_types
from firsttoken.planning.types import (
    Alternative,
    CalibratedStage,
    Infeasible,
    LiveSettings,
    MemoryBudget,
    Percentiles,
    Plan,
    Prediction,
    Reason,
    RolePlan,
    Routing,
)

ROLES = (["serve"], ["prefill", "decode"])
_MEMORY = {
    "weightsBytes": "weights_bytes",
    "kvBytesPerToken": "kv_bytes_per_token",
    "kvCacheTokens": "kv_cache_tokens",
    "kvCacheBytes": "kv_cache_bytes",
    "activationBytes": "activation_bytes",
    "overheadBytes": "overhead_bytes",
    "usableBytes": "usable_bytes",
    "maxNumSeqs": "max_num_seqs",
    "maxConcurrentRequests": "max_concurrent_requests",
    "maxConcurrentAtMaximumLength": "max_concurrent_at_maximum_length",
}
_ROUTING = {"policy": "policy", "cacheThreshold": "cache_threshold"}
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
        **({"routing": _named(plan.routing, _ROUTING)} if plan.router else {}),
        "roles": [_role_to_json(role) for role in plan.roles],
        "memory": _named(plan.memory, _MEMORY),
        "settings": {key: getattr(plan.settings, name) for key, name in _SETTINGS.items()},
        "reasons": [{"code": r.code, "message": r.message} for r in plan.reasons],
        **({"predicted": _prediction_to_json(plan.prediction)} if plan.prediction is not None else {}),
        "alternatives": [_alternative_to_json(a) for a in plan.alternatives],
    }


def plan_from_json(value: Mapping[str, Any]) -> Plan:
    """The plan that `plan_to_json` wrote. Raises ValueError when `value` is not a feasible plan, lacks a key or has
    a value of another type.
    """
    try:
        if not value["feasible"]:
            raise ValueError(f"not a feasible plan: {value['infeasible']['message']}")
        found = Plan(
            layout=value["layout"],
            model=value["model"],
            max_model_length=value["maxModelLength"],
            roles=tuple(_role_from_json(role) for role in value["roles"]),
            memory=_memory_from_json(value["memory"]),
            settings=LiveSettings(**{n: value["settings"][k] for k, n in _SETTINGS.items() if k in value["settings"]}),
            router=value["router"],
            routing=Routing(**{n: value["routing"][k] for k, n in _ROUTING.items()})
            if "routing" in value
            else Routing(),
            reasons=tuple(Reason(r["code"], r["message"]) for r in value["reasons"]),
            prediction=_prediction_from_json(value.get("predicted")),
            alternatives=tuple(_alternative_from_json(a) for a in value.get("alternatives", ())),
        )
        check_types(found, Plan, "plan")
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"not a plan: {fault!r}") from fault
    if [r.role for r in found.roles] not in ROLES:
        raise ValueError(f"not a plan: it has the roles {', '.join(r.role for r in found.roles) or '(none)'}")
    return found


def _role_to_json(role: RolePlan) -> dict[str, Any]:
    return {
        "role": role.role,
        "accelerator": role.accelerator,
        "replicas": role.replicas,
        # Data parallelism inside a replica is not used: replicas behind a router do the same and fail apart.
        "parallelism": {"tensor": role.tensor_parallel, "pipeline": role.pipeline_parallel, "data": 1},
        "engineArgs": dict(role.engine_args),
        "environment": dict(role.environment),
        **({"capacity": role.capacity} if role.capacity is not None else {}),
        **({} if role.keeps_slos else {"keepsSLOs": False}),
        **({"memory": _named(role.memory, _MEMORY)} if role.memory is not None else {}),
        **({} if role.nodes == 1 else {"nodes": role.nodes}),
    }


def _memory_from_json(value: Mapping[str, Any]) -> MemoryBudget:
    """Later versions may add keys: what is missing has a default in MemoryBudget, what is new is ignored."""
    return MemoryBudget(**{name: value[key] for key, name in _MEMORY.items() if key in value})


def _role_from_json(value: Mapping[str, Any]) -> RolePlan:
    return RolePlan(
        role=value["role"],
        accelerator=value["accelerator"],
        replicas=value["replicas"],
        tensor_parallel=value["parallelism"]["tensor"],
        pipeline_parallel=value["parallelism"]["pipeline"],
        engine_args=dict(value["engineArgs"]),
        environment=dict(value.get("environment", {})),
        capacity=value.get("capacity"),
        keeps_slos=value.get("keepsSLOs", True),
        memory=_memory_from_json(value["memory"]) if "memory" in value else None,
        nodes=value.get("nodes", 1),
    )


def _percentiles_to_json(percentiles: Percentiles) -> dict[str, float]:
    return {name: getattr(percentiles, name) for name in ("p50", "p95", "p99")}


def _named(value: object, names: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of `value` under their names in JSON."""
    return {key: getattr(value, name) for key, name in names.items()}


def _prediction_to_json(prediction: Prediction) -> dict[str, Any]:
    buckets = {name: {"ttftSeconds": _percentiles_to_json(p)} for name, p in prediction.by_prompt_tokens.items()}
    return {
        "requestsPerSecond": prediction.requests_per_second,
        "assumedRate": prediction.assumed_rate,
        "ttftSeconds": _percentiles_to_json(prediction.ttft),
        "tpotSeconds": _percentiles_to_json(prediction.tpot),
        "byPromptTokens": buckets,
        "utilization": prediction.utilization,
        "binds": prediction.binds,
        "relativeInterval": prediction.relative_interval,
        "ttftInterval": prediction.ttft_interval,
        "tpotInterval": prediction.tpot_interval,
        "calibrated": [_named(stage, _CALIBRATED) for stage in prediction.calibrated],
        "promises": list(prediction.promises),
    }


def _prediction_from_json(value: Any) -> Prediction | None:
    """None where another version wrote it otherwise: it informs, and nothing runs by it."""
    try:
        found = _prediction(value)
        check_types(found, Prediction, "predicted")
        return found
    except (KeyError, TypeError, AttributeError):
        return None


def _prediction(value: Mapping[str, Any]) -> Prediction:
    buckets = {name: Percentiles(**found["ttftSeconds"]) for name, found in value["byPromptTokens"].items()}
    return Prediction(
        requests_per_second=value["requestsPerSecond"],
        assumed_rate=value["assumedRate"],
        ttft=Percentiles(**value["ttftSeconds"]),
        tpot=Percentiles(**value["tpotSeconds"]),
        by_prompt_tokens=buckets,
        utilization=value["utilization"],
        binds=value["binds"],
        # Earlier versions had one for both.
        ttft_interval=value.get("ttftInterval", value["relativeInterval"]),
        tpot_interval=value.get("tpotInterval", value["relativeInterval"]),
        calibrated=tuple(
            CalibratedStage(**{name: stage[key] for key, name in _CALIBRATED.items()})
            for stage in value.get("calibrated", ())
        ),
        promises=tuple(value.get("promises", ())),
    )


_CALIBRATED = {
    "stage": "stage",
    "ratio": "ratio",
    "band": "band",
    "requests": "requests",
    "tensor": "tensor_parallel",
}
_ALTERNATIVE = {
    "layout": "layout",
    "tensor": "tensor_parallel",
    "pipeline": "pipeline_parallel",
    "replicas": "replicas",
    "gpus": "gpus",
    "requestsPerSecond": "requests_per_second",
    "message": "message",
}


def _alternative_to_json(alternative: Alternative) -> dict[str, Any]:
    keeps = {} if alternative.keeps_slos else {"keepsSLOs": False}
    return {
        **_named(alternative, _ALTERNATIVE),
        **keeps,
        **({} if alternative.nodes == 1 else {"nodes": alternative.nodes}),
    }


def _alternative_from_json(value: Mapping[str, Any]) -> Alternative:
    keeps, nodes = value.get("keepsSLOs", True), value.get("nodes", 1)
    return Alternative(**{name: value[key] for key, name in _ALTERNATIVE.items()}, keeps_slos=keeps, nodes=nodes)
