"""The KV hand-over from prefill to decode, and the deadlines it imposes.

The prefill side frees a prompt's KV when its lease runs out, and a pull after that returned *wrong text* with HTTP 200
(reproduced). Once decode has taken a request in, it renews the lease by heartbeats; until then nobody does. So whatever
can lie between the end of prefill and decode's acceptance must be over before the lease is:

- vllm-router's connection to decode: 10 s, fixed in its code;
- vllm-router's retries: switched off, since a retried decode would carry the old hand-over;
- vllm-router's own queue: before prefill, so it does not count;
- a terminating prefill pod: lingers for one lease after its last request (preStop).
"""

import json

from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.planning.types import Plan, RolePlan

ROUTER_CONNECT_SECONDS = 10
_MARGIN_SECONDS = 5  # decode's HTTP parsing and tokenisation before the scheduler sees the request
_DEFAULT_LEASE_SECONDS = 30


def lease_seconds(role: RolePlan) -> int:
    """Lease of a prompt's KV on this role, from `kv-transfer-config`. Raises UnsupportedPlan when there is none."""
    try:
        config = json.loads(role.engine_args["kv-transfer-config"])
        return int(config.get("kv_connector_extra_config", {}).get("kv_lease_duration", _DEFAULT_LEASE_SECONDS))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnsupportedPlan(f"role {role.role} has no usable kv-transfer-config: {error}") from error


def check_hand_over(plan: Plan) -> None:
    """Refuse a disaggregated plan whose KV could be freed under a decode that is still on its way."""
    roles = {role.role: role for role in plan.roles}
    if set(roles) != {"prefill", "decode"} or not plan.router:
        raise UnsupportedPlan("a disaggregated plan needs the roles prefill and decode, and a router between them")
    lowest = ROUTER_CONNECT_SECONDS + _MARGIN_SECONDS
    for role in plan.roles:
        if lease_seconds(role) <= lowest:
            raise UnsupportedPlan(
                f"kv_lease_duration of {role.role} is {lease_seconds(role)} s: it must be above {lowest} s, the time "
                "a request may take from prefill to decode"
            )
