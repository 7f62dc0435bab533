"""What must hold for every rendered revision, whatever is asked for."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.api.service import MAX_NAME_LENGTH
from firsttoken.manifests import names
from firsttoken.manifests.engine import start_seconds
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.gateway import Backend, gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.live import live_config_map
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.types import Plan
from manifests import cases

REVISION = "kb-assistant-1a2b3c4d"
PLANS = {"colocated": cases.plan(), "router": cases.plan(router=True), "disaggregated": cases.disaggregated()}


def _objects(plan: Plan, **spec: Any) -> tuple[dict[str, Any], ...]:
    return revision_objects(cases.service(**spec), REVISION, plan, cases.PROFILES, Images())


def _pod(plan: Plan | None = None, **spec: Any) -> dict[str, Any]:
    template = _objects(plan or cases.plan(), **spec)[0]["spec"]["template"]
    return {**template, **template["spec"]}


def _engine(plan: Plan | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = _pod(plan, **spec)["containers"][0]
    return container


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from _leaves(item, f"{path}[]")
    else:
        yield path, value


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_snapshot_holds_nothing_that_changes_over_a_revisions_life(plan: Plan) -> None:
    scaled = replace(plan, roles=tuple(replace(r, replicas=r.replicas + 3) for r in plan.roles))
    objects = _objects(plan)
    assert _objects(scaled) == objects
    assert _objects(replace(plan, settings=replace(plan.settings, token_budget=1024))) == objects
    for item in objects:
        assert "ownerReferences" not in item["metadata"]
        assert "status" not in item
        if item["kind"] == "Deployment" and item["metadata"]["labels"]["app.kubernetes.io/component"] == "engine":
            assert "replicas" not in item["spec"]
    assert len(objects) <= 32, "an InferenceRevision keeps at most 32 objects"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_names_and_labels_fit_at_the_longest_service_name(plan: Plan) -> None:
    service = cases.service(name="n" * MAX_NAME_LENGTH, routing={"gateway": {"name": "public"}})
    revision = f"{service.metadata.name}-1a2b3c4d"
    backend = Backend(revision, *names.entry_point(revision, plan), weight=100)
    objects = (
        *revision_objects(service, revision, plan, cases.PROFILES, Images()),
        *gateway_objects(service, (backend,), Images()),
        live_config_map(service, revision, cases.SETTINGS, 1),
    )
    for item in objects:
        assert len(item["metadata"]["name"]) <= 63, item["metadata"]["name"]
    for path, value in _leaves(list(objects)):
        if re.search(r"\.(labels|matchLabels|selector)\.", path):
            assert len(value) <= 63, (path, value)
    identities = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert len(set(identities)) == len(identities)
    services = {o["metadata"]["name"]: o["spec"]["ports"][0]["port"] for o in objects if o["kind"] == "Service"}
    assert services[backend.service] == backend.port


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_nothing_is_rendered_that_the_api_server_would_leave_out(plan: Plan) -> None:
    objects = (*_objects(plan, podTemplate=cases.POD_TEMPLATE), *gateway_objects(cases.service(), (), Images()))
    for path, value in _leaves(list(objects)):
        assert value is not None, path
        assert value != [], path
        assert value != {} or path.endswith(".emptyDir"), path
        assert value != "" or path.endswith(("apiGroups[]", ".group")), path


def test_selectors_of_roles_do_not_overlap() -> None:
    objects = _objects(cases.disaggregated())
    pods = [o["spec"]["template"]["metadata"]["labels"] for o in objects if o["kind"] == "Deployment"]
    assert len(pods) == 3
    for item in objects:
        if item["kind"] == "Service":
            chosen = item["spec"]["selector"].items()
            assert sum(chosen <= labels.items() for labels in pods) == 1


HOSTILE = {
    "metadata": {
        "labels": {names.ROLE_LABEL: "router", "app.kubernetes.io/managed-by": "me", "team": "a"},
        "annotations": {"prometheus.io/scrape": "false", "note": "mine"},
    },
    "spec": {
        "volumes": [{"name": "firsttoken-live", "emptyDir": {}}, {"name": "mine", "emptyDir": {}}],
        "hostNetwork": True,
        "securityContext": {"runAsUser": 0},
        "containers": [{"name": "other"}],
    },
    "engine": {
        "env": [
            {"name": "FIRSTTOKEN_ROLE", "value": "decode"},
            {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "1"},
            {"name": "HF_HOME", "value": "/data"},
            {"name": "VLLM_NO_USAGE_STATS", "value": "0"},
            {"name": "EMPTY", "value": ""},
        ],
        "resources": {
            "limits": {"nvidia.com/gpu": "8", "nvidia.com/hostdev": "2", "cpu": "1000m", "rdma/hca": "1"},
            "claims": [{"name": "gpu"}],
        },
        "volumeMounts": [
            {"name": "mine", "mountPath": "/etc/firsttoken/live"},
            {"name": "mine", "mountPath": "/data/../dev/shm/"},
            {"name": "mine", "mountPath": "/data", "readOnly": False},
        ],
        "securityContext": {"privileged": True},
        "command": ["sh"],
    },
}


def test_pod_template_adds_but_overrides_nothing_of_ours() -> None:
    plain, pod = _pod(cases.disaggregated()), _pod(cases.disaggregated(), podTemplate=HOSTILE)
    engine, plain_engine = pod["containers"][0], plain["containers"][0]
    assert pod["metadata"]["labels"] == {**plain["metadata"]["labels"], "team": "a"}
    assert pod["metadata"]["annotations"] == {**plain["metadata"]["annotations"], "note": "mine"}
    assert pod["volumes"] == [*plain["volumes"], {"name": "mine", "emptyDir": {}}]
    assert engine["volumeMounts"] == [*plain_engine["volumeMounts"], {"name": "mine", "mountPath": "/data"}]
    assert engine["resources"]["limits"] == {
        "nvidia.com/gpu": "2", "nvidia.com/hostdev": "2", "cpu": "1", "rdma/hca": "1",
    }, "the plan's own device stays the plan's, what else the API accepts (RDMA) is the user's"  # fmt: skip
    assert "cpu" not in engine["resources"]["requests"], "our default could lie above the user's limit"
    env = {entry["name"]: entry for entry in engine["env"]}
    assert len(env) == len(engine["env"])
    ours = {entry["name"]: entry for entry in plain_engine["env"]}
    for name in ("FIRSTTOKEN_ROLE", "VLLM_NIXL_SIDE_CHANNEL_PORT", "HF_HOME"):
        assert env[name] == ours[name]
    assert env["VLLM_NO_USAGE_STATS"]["value"] == "0", "a mere default"
    assert env["EMPTY"] == {"name": "EMPTY"}
    same = ("command", "args", "securityContext", "ports", "image", "lifecycle")
    assert {key: engine[key] for key in same} == {key: plain_engine[key] for key in same}
    assert len(pod["containers"]) == 1
    assert "hostNetwork" not in pod
    assert pod["securityContext"] == plain["securityContext"]


def test_extra_args_and_plan_cannot_change_where_the_engine_listens() -> None:
    role = replace(cases.role(), engine_args={"port": "1", "max-num-seqs": "64"})
    args = _engine(cases.plan(role), engine={"extraArgs": {"host": "h", "max-num-seqs": "1", "seed": "7"}})["args"]
    assert "--port=8000" in args
    assert "--host=0.0.0.0" in args
    assert "--max-num-seqs=64" in args
    assert "--seed=7" in args
    assert args[1:] == sorted(args[1:])


def test_secrets_are_only_referenced() -> None:
    model = {"uri": "s3://bucket/model", "credentials": {"name": "keys"}}
    env = {e["name"]: e for e in _engine(model=model)["env"]}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert env[name] == {"name": name, "valueFrom": {"secretKeyRef": {"name": "keys", "key": name}}}
    assert env["AWS_SESSION_TOKEN"]["valueFrom"]["secretKeyRef"]["optional"] is True


@pytest.mark.parametrize(
    ("uri", "path"),
    [("pvc://claim/../../etc", "/models/etc"), ("pvc://claim", "/models"), ("pvc://claim/a//b/", "/models/a/b")],
)
def test_path_of_a_claim_stays_inside_it(uri: str, path: str) -> None:
    assert _engine(model={"uri": uri})["args"][0] == path


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://Qwen/Qwen3-8B", "Qwen3-8B"),
        ("oci://registry.example.com:5000/models/llama:8b", "llama"),
        ("oci://registry.example.com/llama@sha256:00", "llama"),
        ("s3://bucket/models/8b/", "8b"),
    ],
)
def test_served_name_is_the_last_part_of_the_uri(uri: str, name: str) -> None:
    assert f"--served-model-name={name}" in _engine(model={"uri": uri})["args"]


def test_every_engine_is_hardened() -> None:
    for plan in PLANS.values():
        for item in _objects(plan):
            if item["kind"] != "Deployment":
                continue
            spec = item["spec"]["template"]["spec"]
            assert spec["enableServiceLinks"] is False
            assert spec["securityContext"]["runAsNonRoot"] is True
            for container in spec["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_cpu_asks_for_no_device() -> None:
    engine = _engine(cases.cpu_plan(), accelerator={"type": "cpu"})
    assert set(engine["resources"]) == {"requests"}
    assert set(engine["resources"]["requests"]) == {"cpu", "memory"}


def test_startup_budget_grows_with_the_weights_and_liveness_waits_for_it() -> None:
    assert start_seconds(15 * 10**9, remote=True) == 750
    assert start_seconds(140 * 10**9, remote=True) == 2000
    assert start_seconds(140 * 10**9, remote=False) < start_seconds(140 * 10**9, remote=True)
    deployment = _objects(cases.plan())[0]["spec"]
    probe = deployment["template"]["spec"]["containers"][0]["startupProbe"]
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    assert budget == start_seconds(cases.MEMORY.weights_bytes, remote=True)
    assert deployment["progressDeadlineSeconds"] > budget


def test_replica_larger_than_a_node_is_refused() -> None:
    """The planner makes no such plan (see test_plans_render); a stored one or an edited profile may come to it."""
    with pytest.raises(UnsupportedPlan, match="one pod of serve needs 16 GPUs, a nvidia-a100-40gb node has 8"):
        _objects(cases.plan(cases.role(tensor_parallel=8, pipeline_parallel=2)))
    args = _engine(cases.plan(cases.role(tensor_parallel=4, pipeline_parallel=2)))["args"]
    assert {"--tensor-parallel-size=4", "--pipeline-parallel-size=2"} <= set(args)


def test_unknown_profile_is_refused() -> None:
    with pytest.raises(UnsupportedPlan, match="AcceleratorProfile 'h900' of role serve is missing"):
        _objects(cases.plan(cases.role(accelerator="h900")))


@settings(deadline=None)
@given(
    budget=st.integers(16, 10**6),
    cap=st.integers(1, 65_536),
    threshold=st.integers(0, 10**6),
    generation=st.integers(0),
)
def test_live_settings_round_trip(budget: int, cap: int, threshold: int, generation: int) -> None:
    chosen = replace(cases.SETTINGS, token_budget=budget, decode_cap=cap, long_prefill_threshold=threshold)
    item = live_config_map(cases.service(), REVISION, chosen, generation)
    assert json.loads(item["data"]["settings.json"]) == {
        "generation": generation,
        "default": {"tokenBudget": budget, "decodeCap": cap, "longPrefillThreshold": threshold},
        "trial": None,
    }


def test_gateway_refuses_ambiguous_backends() -> None:
    with pytest.raises(ValueError, match="distinct revisions"):
        gateway_objects(cases.service(), (cases.STABLE, cases.STABLE), Images())
    with pytest.raises(ValueError, match="weights of 0 or more"):
        gateway_objects(cases.service(), (replace(cases.STABLE, weight=-1),), Images())


def test_only_the_routes_change_with_the_weights() -> None:
    before = gateway_objects(cases.service(), (cases.STABLE, cases.CANARY), Images())
    after = gateway_objects(
        cases.service(), (replace(cases.STABLE, weight=50), replace(cases.CANARY, weight=50)), Images()
    )
    changed = [a["metadata"]["name"] for a, b in zip(before, after, strict=True) if a != b]
    assert changed == ["kb-assistant-gateway-routes"]
