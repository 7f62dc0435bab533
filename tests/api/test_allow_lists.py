"""What users can inject is allow-listed (DESIGN §7): vLLM flags, environment variables, devices, mounts."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.test_rules import verdict
from firsttoken.api.extra_args import ALLOWED_ARGS, OWNED_ENGINE_ARGS, OWNED_SHORT_ARGS
from firsttoken.api.pod_template import OWNED_ENV, OWNED_MOUNTS, REFUSED_ENV


@pytest.mark.parametrize("name", OWNED_ENGINE_ARGS)
@pytest.mark.parametrize("form", ["{}", "no-{}"])
def test_a_flag_of_the_operator_is_refused_in_every_form(name: str, form: str) -> None:
    key = form.format(name)
    (message,) = verdict("spec.engine.extraArgs", f"{{{key}: ''}}")
    assert f"extraArgs sets {key}, a flag the operator owns" in message
    (message,) = verdict("spec.engine.extraArgs", f"{{{key[:-1]}: ''}}")
    assert f"extraArgs sets {key[:-1]}, " in message


@pytest.mark.parametrize("name", OWNED_SHORT_ARGS)
def test_a_short_form_is_refused(name: str) -> None:
    assert "a flag the operator owns" in verdict("spec.engine.extraArgs", f"{{{name}: '1'}}")[0]


@pytest.mark.parametrize(
    "name",
    ["allowed-local-media-path", "block-size", "compilation-config", "cpu-offload-gb", "disable-sliding-window",
     "enable-expert-parallel", "enable-log-requests", "enable-lora", "enable-prompt-embeds", "kv-offloading-size",
     "logits-processors", "max-num-partial-prefills", "otlp-traces-endpoint", "reasoning-parser-plugin",
     "scheduling-policy", "speculative-config", "tool-parser-plugin", "trust-request-chat-template", "no-seed", "see",
     "worker-extension-cls", "model-class-overrides", "tool-server", "kv-cache-dtype-skip-layers"],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_name(name: str) -> None:
    (message,) = verdict("spec.engine.extraArgs", f"{{{name}: '1'}}")
    assert f"extraArgs sets {name}, which it may not set: remove it" in message


def test_each_flag_has_one_verdict() -> None:
    owned = {*OWNED_SHORT_ARGS, *OWNED_ENGINE_ARGS, *(f"no-{a}" for a in OWNED_ENGINE_ARGS)}
    assert not owned & set(ALLOWED_ARGS)
    found = verdict("spec.engine.extraArgs", "{seed: '1', tp: '2', block-size: '8', '--x': ''}")
    assert [m.split(" ")[2:5] for m in found] == [
        ["extraArgs", "has", "--x:"], ["extraArgs", "sets", "tp,"], ["extraArgs", "sets", "block-size,"]
    ]  # fmt: skip


ROPE = '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}'


@pytest.mark.parametrize(
    ("name", "value"),
    [("dtype", "float32"), ("dtype", "bfloat16,float32"), ("uvicorn-log-level", "trace"),
     ("hf-overrides", '{"num_hidden_layers": 2}'), ("hf-overrides", ROPE[:-1] + ', "num_hidden_layers": 2}'),
     ("hf-overrides", '{"rope_parameters": {}, "rope_parameters": {}}'), ("hf-overrides", "module.function"),
     ("structured-outputs-config", '{"reasoning_parser_plugin": "/x.py"}'),
     ("structured-outputs-config", '{"backend": "xgrammar", "reasoning_parser_plugin": "/x.py"}')],
)  # fmt: skip
def test_a_value_with_consequences_is_refused(name: str, value: str) -> None:
    (message,) = verdict("spec.engine.extraArgs", json.dumps({name: value}))
    assert f"extraArgs {name} " in message


GOOD_VALUES = {
    "dtype": "bfloat16", "uvicorn-log-level": "warning", "hf-overrides": ROPE,
    "structured-outputs-config": '{"backend": "xgrammar", "disable_any_whitespace": true}',
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED_ARGS)
def test_flags_that_people_need_are_let_through(name: str) -> None:
    assert verdict("spec.engine.extraArgs", json.dumps({name: GOOD_VALUES.get(name, "1")})) == []


@pytest.mark.parametrize("name", [*REFUSED_ENV, "VLLM_TORCH_PROFILER_DIR"])
def test_a_variable_that_loads_code_or_is_for_developers_is_refused(name: str) -> None:
    (message,) = verdict("spec.podTemplate.engine.env", f"[{{name: {name}, value: ''}}]")
    assert f"env sets {name}, which loads code or is for developers: remove it" in message


@pytest.mark.parametrize(
    ("name", "value", "good"),
    [("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", True), ("MY_TOKEN", "True", True), ("MY_TOKEN", "", True),
     ("MY_TOKEN", "hf_abc", False), ("MY_TOKEN", "11", False), ("DB_PASSWORD", "on1", False),
     ("AWS_SECRET_ACCESS_KEY", "x", False)],
)  # fmt: skip
def test_a_switch_is_no_secret(name: str, value: str, good: bool) -> None:
    found = verdict("spec.podTemplate.engine.env", json.dumps([{"name": name, "value": value}]))
    assert (found == []) is good


@pytest.mark.parametrize(
    ("resource", "good"),
    [("rdma/hca", True), ("nvidia.com/hostdev", True), ("habana.ai/other", True), ("ephemeral-storage", True),
     ("nvidia.com/gpu", False), ("nvidia.com/gpu.shared", False), ("nvidia.com/mig-1g.5gb", False),
     ("amd.com/gpu", False), ("habana.ai/gaudi", False), ("gpu.intel.com/i915", False)],
)  # fmt: skip
def test_only_devices_that_the_plan_counts_are_refused(resource: str, good: bool) -> None:
    assert (verdict("spec.podTemplate.engine.resources.limits", f"{{{resource}: 1}}") == []) is good


@pytest.mark.parametrize("name", [*OWNED_ENV, "FIRSTTOKEN_ROLE", "VLLM_NIXL_SIDE_CHANNEL_PORT"])
def test_a_variable_of_the_operator_is_refused(name: str) -> None:
    found = verdict("spec.podTemplate.engine.env", f"[{{name: {name}, value: ''}}]")
    assert any(f"env sets {name}, a variable the operator owns" in message for message in found)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "VLLM_LOGGING_LEVEL", "NCCL_DEBUG", "OMP_NUM_THREADS"])
def test_variables_that_people_need_are_let_through(name: str) -> None:
    assert verdict("spec.podTemplate.engine.env", f"[{{name: {name}, value: 'x'}}]") == []


GOLDEN = Path(__file__).parents[1] / "manifests" / "golden"


def engines(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(pod, engine container) of the Deployments of a golden file."""
    documents = [d for d in yaml.safe_load_all((GOLDEN / name).read_text(encoding="utf-8")) if d]
    pods = [d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"]
    return [(pod, c) for pod in pods for c in pod["containers"] if c["name"] == "engine"]


@pytest.mark.parametrize("name", ["colocated.yaml", "disaggregated.yaml"])
def test_what_the_operator_renders_is_what_a_user_may_not_set(name: str) -> None:
    found = engines(name)
    assert found
    for pod, container in found:
        flags = {arg.removeprefix("--").partition("=")[0] for arg in container["args"] if arg.startswith("--")}
        assert {flag.removeprefix("no-") for flag in flags} <= set(OWNED_ENGINE_ARGS)
        assert not flags & set(ALLOWED_ARGS)
        for mount in container["volumeMounts"]:
            assert any(f"{mount['mountPath']}/".startswith(f"{own.rstrip('/')}/") for own in OWNED_MOUNTS[1:]), mount
        assert all(volume["name"].startswith("firsttoken-") for volume in pod["volumes"])
