"""`plan` and `render`: what they show, and that it is what the operator would do."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import samples
from cli.conftest import Run
from firsttoken.planning.accelerators import catalogue_manifests
from firsttoken.planning.output import plan_from_json
from firsttoken.reconcile import Observation, decide
from firsttoken.reconcile.routes import observed_weights

CONFIGS = Path(__file__).parents[1] / "planning" / "configs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("SERVICE", "BAD", "INFEASIBLE", "PROFILE"):
        (tmp_path / f"{name.lower()}.yaml").write_text(getattr(samples, name), encoding="utf-8")
    return tmp_path


def test_a_plan_for_people_has_roles_memory_flags_and_reasons(cli: Run, folder: Path) -> None:
    result = cli("plan", "-f", folder / "service.yaml")
    assert (result.code, result.err) == (0, "")
    for part in ("kb-assistant: feasible, 8 GPUs", "TP×PP", "KV per token", "KV taken by need", "--max-num-seqs="):
        assert part in result.out
    plan = json.loads(cli("plan", "-f", folder / "service.yaml", "-o", "json").out)
    flat = " ".join(result.out.split())
    for reason in plan["reasons"]:
        assert " ".join(reason["message"].split()) in flat
    memory = plan["memory"]
    by_need, reserved = memory["maxConcurrentRequests"], memory["maxConcurrentAtMaximumLength"]
    assert f"{by_need} requests" in flat
    assert f"against {reserved} if" in flat


def test_a_split_shows_the_memory_of_both_roles(cli: Run, folder: Path) -> None:
    spec = yaml.safe_load(samples.SERVICE)
    spec["spec"]["layout"] = {"mode": "Disaggregated"}
    (folder / "split.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    said = cli("plan", "-f", folder / "split.yaml").out
    plan = json.loads(cli("plan", "-f", folder / "split.yaml", "-o", "json").out)
    for role in plan["roles"]:
        _, _, part = said.partition(f"Memory of one {role['role']} replica")
        assert f"{role['memory']['kvCacheTokens']:,} tokens" in part.partition("Memory of one")[0]


def test_what_ends_the_rate_and_that_nothing_runs_is_said_only_where_it_is_so(cli: Run, folder: Path) -> None:
    spec = yaml.safe_load(samples.SERVICE)
    said = {}
    for target, replicas in (("200ms", 0), ("600s", 1)):
        spec["spec"] |= {"slos": [{"metric": "TTFT", "target": target}], "scaling": {"replicas": replicas}}
        (folder / "own.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        said[replicas] = " ".join(cli("plan", "-f", folder / "own.yaml").out.split())
    assert "% of the rate that TTFT P95" in said[0]
    assert "of the rate that" not in said[1]
    assert "were one replica of each role running" in said[0]
    assert "were one replica of each role running" not in said[1]


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_no_line_of_a_plan_is_wider_than_asked(
    cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for name in ("service", "infeasible"):
        lines = cli("plan", "-f", folder / f"{name}.yaml").out.splitlines()
        assert max(map(len, lines)) <= int(columns)
        assert all(line == line.rstrip() for line in lines)


def test_infeasible_is_exit_1_with_constraint_message_and_what_would_do(cli: Run, folder: Path) -> None:
    result = cli("plan", "-f", folder / "infeasible.yaml")
    assert result.code == 1
    assert "too-big: infeasible (Memory)" in result.out
    assert "  - spec.accelerator.type: " in result.out
    said = json.loads(cli("plan", "-f", folder / "infeasible.yaml", "-o", "json").out)
    assert said["feasible"] is False
    assert said["infeasible"]["nearest"]


def test_bad_input_is_exit_2_and_leaves_stdout_empty(cli: Run, folder: Path) -> None:
    for command in ("plan", "render"):
        result = cli(command, "-f", folder / "bad.yaml", "-o", "json")
        assert (result.code, result.out) == (2, "")
        assert len(result.err.splitlines()) == 2
        assert "spec.workload.promptTokens.p95" in result.err
        result = cli(command, "-f", folder / "profile.yaml")
        assert (result.code, result.out) == (2, "")
        assert "no InferenceService" in result.err


def test_one_service_is_an_object_and_several_are_a_list(cli: Run, folder: Path) -> None:
    one = cli("plan", "-f", folder / "service.yaml", "-o", "json")
    assert json.loads(one.out)["name"] == "kb-assistant"
    both = cli("plan", "-f", folder / "service.yaml", "-f", folder / "infeasible.yaml", "-o", "yaml")
    assert both.code == 1
    assert [(p["name"], p["feasible"]) for p in yaml.safe_load(both.out)] == [
        ("kb-assistant", True),
        ("too-big", False),
    ]
    table = cli("plan", "-f", folder / "service.yaml", "-f", folder / "infeasible.yaml").out
    assert "kb-assistant: feasible" in table
    assert "too-big: infeasible" in table


def test_json_is_the_plan_that_a_revision_keeps(cli: Run, folder: Path) -> None:
    printed = json.loads(cli("plan", "-f", folder / "service.yaml", "-o", "json").out)
    rendered = next(yaml.safe_load_all(cli("render", "-f", folder / "service.yaml").out))
    kept = plan_from_json(rendered["spec"]["plan"])
    assert plan_from_json(printed) == kept


def test_a_plan_names_the_fields_without_effect_in_every_form(cli: Run, folder: Path) -> None:
    tuned = samples.SERVICE.rstrip() + "\n  tuning: {mode: Auto}\n"
    (folder / "tuned.yaml").write_text(tuned, encoding="utf-8")
    for form in ("table", "json", "yaml"):
        said = " ".join(cli("plan", "-f", folder / "tuned.yaml", "-o", form).out.split())
        assert "NotActiveYet" in said
        assert "spec.tuning.mode: accepted and kept, without effect in this version" in said
    assert "NotActiveYet" not in cli("plan", "-f", folder / "service.yaml").out


def test_profiles_come_from_the_files_or_from_profiles(cli: Run, folder: Path) -> None:
    ours = folder / "ours.yaml"
    ours.write_text(samples.SERVICE.replace("nvidia-a100-40gb", "our-gpu"), encoding="utf-8")
    unknown = cli("plan", "-f", ours)
    assert unknown.code == 1
    assert "our-gpu" in unknown.out
    assert cli("plan", "-f", ours, "-f", folder / "profile.yaml").code == 0
    assert cli("plan", "-f", ours, "--profiles", folder / "profile.yaml").code == 0
    assert cli("render", "-f", ours, "--profiles", folder / "profile.yaml").code == 0
    none = cli("plan", "-f", ours, "--profiles", folder / "service.yaml")
    assert none.code == 2
    assert "no AcceleratorProfile" in none.err


def test_render_prints_what_decide_would_apply_in_its_order_without_owners(cli: Run, folder: Path) -> None:
    result = cli("render", "-f", folder / "service.yaml")
    objects = list(yaml.safe_load_all(result.out))
    service = yaml.safe_load(samples.SERVICE)
    service["metadata"] |= {"uid": "a-real-uid", "generation": 1}
    profiles = {p["metadata"]["name"]: p for p in catalogue_manifests()}
    applied = decide(Observation(datetime(2026, 5, 1, tzinfo=UTC), service, profiles=profiles)).apply
    for obj in applied:
        del obj["metadata"]["ownerReferences"]
    assert objects == list(applied)
    kinds = [o["kind"] for o in objects]
    assert kinds[0] == "InferenceRevision"
    assert {"Deployment", "Service", "PodDisruptionBudget", "ConfigMap", "HTTPRoute"} <= set(kinds)
    assert {o["metadata"]["namespace"] for o in objects} == {"serving"}


def test_render_is_byte_stable_and_keeps_scripts_readable(cli: Run, folder: Path) -> None:
    first = cli("render", "-f", folder / "service.yaml", "--serving").out
    assert first == cli("render", "-f", folder / "service.yaml", "--serving").out
    assert ".json: |\n" in first


def test_serving_leads_the_gateway_to_the_revision_and_changes_nothing_else(cli: Run, folder: Path) -> None:
    def objects(*flags: str) -> dict[str, Any]:
        text = cli("render", "-f", folder / "service.yaml", *flags).out
        return {f"{o['kind']}/{o['metadata']['name']}": o for o in yaml.safe_load_all(text)}

    starting, serving = objects(), objects("--serving")
    assert list(starting) == list(serving)
    different = [name for name in starting if starting[name] != serving[name]]
    assert different == ["ConfigMap/kb-assistant-gateway-routes"]
    revision = next(o["metadata"]["name"] for o in serving.values() if o["kind"] == "InferenceRevision")
    weights = [observed_weights(shown[different[0]]) for shown in (starting, serving)]
    assert weights == [{revision: 0}, {revision: 100}]


def test_a_service_without_namespace_is_placed_by_n(cli: Run, folder: Path) -> None:
    nowhere = folder / "nowhere.yaml"
    nowhere.write_text(samples.SERVICE.replace("  namespace: serving\n", ""), encoding="utf-8")
    for flags, namespace in (((), "default"), (("-n", "elsewhere"), "elsewhere")):
        said = json.loads(cli("render", "-f", nowhere, "-o", "json", *flags).out)
        assert said["kind"] == "List"
        assert {o["metadata"]["namespace"] for o in said["items"]} == {namespace}


def test_rendering_what_is_infeasible_is_exit_1_with_one_line(cli: Run, folder: Path) -> None:
    result = cli("render", "-f", folder / "infeasible.yaml")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("firsttoken: too-big: Memory: ")
    assert len(result.err.splitlines()) == 1


def unknown(folder: Path) -> Path:
    path = folder / "unknown.yaml"
    text = samples.SERVICE.replace("hf://mistralai/Mistral-7B-Instruct-v0.3", "hf://somebody/model")
    path.write_text(text, encoding="utf-8")
    return path


def test_a_model_nobody_knows_is_planned_and_rendered_from_its_config(cli: Run, folder: Path) -> None:
    service, config = unknown(folder), CONFIGS / "llama-3.1-8b.json"
    refused = cli("plan", "-f", service)
    assert refused.code == 1
    assert "HF_HUB_OFFLINE forbids asking the hub" in " ".join(refused.out.split())
    planned = cli("plan", "-f", service, "--model-config", config, "-o", "json")
    assert planned.code == 0
    assert "read from config.json of LlamaForCausalLM" in planned.out
    rendered = cli("render", "-f", service, "--model-config", config)
    assert next(yaml.safe_load_all(rendered.out))["spec"]["plan"]["modelConfig"]["num_hidden_layers"] == 32
    assert "HF_HUB_OFFLINE" in cli("render", "-f", service).err


def test_a_config_that_is_none_or_that_nobody_wants_is_bad_input(cli: Run, folder: Path) -> None:
    for command in ("plan", "render"):
        none = cli(command, "-f", unknown(folder), "--model-config", folder / "service.yaml")
        assert (none.code, len(none.err.splitlines())) == (2, 1)
        unwanted = cli(command, "-f", folder / "service.yaml", "--model-config", CONFIGS / "llama-3.1-8b.json")
        assert unwanted.code == 2
        assert "every model here is known" in unwanted.err


SMALL = samples.SERVICE.replace("hf://mistralai/Mistral-7B-Instruct-v0.3", "hf://Qwen/Qwen2.5-0.5B-Instruct")


def headline(cli: Run, folder: Path, text: str) -> str:
    (folder / "one.yaml").write_text(text, encoding="utf-8")
    result = cli("plan", "-f", folder / "one.yaml")
    assert result.code == 0, result.out
    return " ".join(result.out.partition("  Layout")[0].split())


def test_the_headline_says_that_a_promise_is_missed(cli: Run, folder: Path) -> None:
    slow = SMALL.replace("nvidia-a100-40gb", "cpu").replace("target: 1200ms", "target: 100ms")
    line = headline(cli, folder, slow.replace("maxCount: 8", "maxCount: 2"))
    assert line.startswith("kb-assistant: feasible, but misses TTFT P95 within 100 ms: ")
    assert "is predicted even for an idle replica" in line
    assert line.endswith("2 devices")
    assert headline(cli, folder, samples.SERVICE) == "kb-assistant: feasible, 8 GPUs"


def test_the_headline_counts_further_promises_that_are_missed(cli: Run, folder: Path) -> None:
    slos = "- {metric: TTFT, percentile: 95, target: 100ms}\n  - {metric: TTFT, percentile: 50, target: 99ms}"
    slow = SMALL.replace("nvidia-a100-40gb", "cpu")
    line = headline(cli, folder, slow.replace("- {metric: TTFT, percentile: 95, target: 1200ms}", slos))
    assert "(and 1 more promise, see SLOMissed)" in line


def test_the_headline_says_that_an_image_is_needed(cli: Run, folder: Path) -> None:
    line = headline(cli, folder, samples.SERVICE.replace("nvidia-a100-40gb", "amd-mi300x"))
    assert line == "kb-assistant: feasible, but needs spec.engine.image; 8 GPUs"


def test_a_model_on_a_claim_that_nobody_knows_can_be_planned_from_its_config(cli: Run, folder: Path) -> None:
    own = folder / "own.yaml"
    own.write_text(
        samples.SERVICE.replace("hf://mistralai/Mistral-7B-Instruct-v0.3", "pvc://claim/own"), encoding="utf-8"
    )
    refused = " ".join(cli("plan", "-f", own).out.split())
    assert "--model-config FILE plans from its config.json" in refused
    planned = cli("plan", "-f", own, "--model-config", next(CONFIGS.glob("*.json")))
    assert "--model-config FILE" not in planned.out


def test_of_other_shapes_only_those_that_keep_the_slos_have_a_rate(cli: Run, folder: Path) -> None:
    """On one H100 8B misses a TTFT P95 of 100 ms even idle, though it would carry more than any that keeps it."""
    spec = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
        "accelerator": {"type": "nvidia-h100-80gb", "maxCount": 8},
        "slos": [{"metric": "TTFT", "percentile": 95, "target": "100ms"}],
    }
    service = {**yaml.safe_load(samples.SERVICE), "spec": spec}
    (folder / "x.yaml").write_text(yaml.safe_dump(service), encoding="utf-8")
    others = json.loads(cli("plan", "-f", folder / "x.yaml", "-o", "json").out)["alternatives"]
    missing = {f"{o['tensor']}×{o['pipeline']}" for o in others if o.get("keepsSLOs") is False}
    shown = cli("plan", "-f", folder / "x.yaml").out.partition("Other shapes")[2].splitlines()
    lines = {line.split()[0]: line for line in shown[2 : 2 + len(others)]}
    assert missing
    assert missing < lines.keys()
    for shape, line in lines.items():
        assert ("misses an SLO" in line) == (shape in missing), line
