"""A model that only its config.json describes: planned from it, kept on the record, and independent of the hub then."""

import json
from pathlib import Path
from typing import Any

from reconcile.world import World

CONFIGS = Path(__file__).parents[1] / "planning" / "configs"
LLAMA = json.loads((CONFIGS / "llama-3.1-8b.json").read_text(encoding="utf-8"))
UNKNOWN = {"uri": "hf://somebody/model"}
DOWN = "the hub at http://hub can't be reached: give spec.model.architecture.inline or preset"


def world(config: dict[str, Any] | None = LLAMA, fault: str = "", **model: Any) -> World:
    made = World(model={**UNKNOWN, **model})
    made.model_config, made.model_fault = config, fault
    return made


def records(made: World) -> list[Any]:
    return [o for o in made.objects() if o["kind"] == "InferenceRevision"]


def test_a_model_is_planned_from_its_config_and_the_record_keeps_it() -> None:
    made = world()
    made.settle()
    assert made.says("Ready") == ("True", "Serving")
    (record,) = records(made)
    assert record["spec"]["plan"]["modelConfig"] == LLAMA
    assert "read from config.json of LlamaForCausalLM" in json.dumps(record["spec"]["plan"]["reasons"])


def test_a_hub_that_is_out_later_or_another_config_changes_nothing() -> None:
    for config, fault in ((None, DOWN), ({**LLAMA, "num_hidden_layers": 64}, "")):
        made = world()
        made.settle()
        made.model_config, made.model_fault = config, fault
        writes = made.writes
        made.reconcile()
        assert made.writes == writes
        made.edit(engine={"pins": {"maxNumSeqs": 8}})  # a new revision of the same model
        made.settle(step=1000)
        assert made.says("Ready") == ("True", "Serving")
        assert [r["spec"]["plan"]["modelConfig"] for r in records(made)] == [LLAMA, LLAMA]


def test_a_lost_status_changes_nothing_either() -> None:
    made = world()
    made.settle()
    before = [r["metadata"]["name"] for r in records(made)]
    made.service = {k: v for k, v in made.service.items() if k != "status"}
    made.model_config, made.model_fault = None, DOWN
    made.settle()
    assert [r["metadata"]["name"] for r in records(made)] == before


def test_another_revision_of_the_model_is_looked_at_again() -> None:
    made = world()
    made.settle()
    made.model_config = {**LLAMA, "num_hidden_layers": 16}
    made.edit(model={"revision": "v2"})
    made.settle(step=1000)
    layers = [r["spec"]["plan"]["modelConfig"]["num_hidden_layers"] for r in records(made)]
    assert sorted(layers) == [16, 32]


def test_without_a_config_the_status_says_why_and_the_hub_is_asked_again_soon() -> None:
    made = world(None, DOWN)
    made.settle()
    assert 0 < (made.look()[1].requeue_after or 0) <= 60
    condition = made.condition("Ready")
    assert condition is not None
    assert condition["status"] == "False"
    assert condition["message"].endswith(DOWN)
    assert not records(made)
    made.model_config, made.model_fault = LLAMA, ""
    made.settle()
    assert made.says("Ready") == ("True", "Serving")


def test_a_hub_that_is_out_leaves_what_serves_alone() -> None:
    made = World()
    made.settle()
    serving = made.weights()
    made.model_fault = DOWN
    made.edit(model=UNKNOWN)
    made.settle(step=30)
    assert made.weights() == serving
    assert 0 < (made.look()[1].requeue_after or 0) <= 60


def test_a_known_model_keeps_no_config() -> None:
    made = World()
    made.model_config = LLAMA
    made.settle()
    (record,) = records(made)
    assert "modelConfig" not in record["spec"]["plan"]
