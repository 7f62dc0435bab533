"""Prefill and decode apart: KV that decode still needs must not be freed (it would answer with wrong text)."""

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.manifests import names
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import Images
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.types import Plan
from manifests import cases


def _objects(plan: Plan) -> tuple[dict[str, Any], ...]:
    return revision_objects(cases.service(), "kb-assistant-1a2b3c4d", plan, cases.PROFILES, Images())


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(cases.disaggregated(), router=False), "a router between them"),
        (cases.plan(cases.transfer_role("prefill"), router=True), "the roles prefill and decode"),
        (
            cases.plan(cases.transfer_role("prefill", lease=15), cases.transfer_role("decode"), router=True),
            "above 15 s",
        ),
        (cases.plan(cases.role("prefill"), cases.transfer_role("decode"), router=True), "no usable kv-transfer-config"),
    ],
    ids=["no-router", "one-role", "short-lease", "no-transfer"],
)
def test_disaggregation_that_could_read_freed_kv_is_refused(plan: Plan, message: str) -> None:
    with pytest.raises(UnsupportedPlan, match=message):
        _objects(plan)


def test_terminating_prefill_waits_for_decode_to_fetch() -> None:
    plan = cases.plan(cases.transfer_role("prefill", lease=45), cases.transfer_role("decode"), router=True)
    hooks = {
        o["metadata"]["labels"][names.ROLE_LABEL]: o["spec"]["template"]["spec"]
        for o in _objects(plan)
        if o["kind"] == "Deployment" and "-router" not in o["metadata"]["name"]
    }
    lingers = {
        role: spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][5] for role, spec in hooks.items()
    }
    assert lingers == {"prefill": "45", "decode": "0"}
    graces = {role: spec["terminationGracePeriodSeconds"] for role, spec in hooks.items()}
    assert graces["prefill"] == graces["decode"] + 45
