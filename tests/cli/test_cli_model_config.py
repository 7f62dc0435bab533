"""config.json from a file or from the hub, for models that nobody else knows."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import unused_port

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.types import Infeasible
from firsttoken_operator.cli import model_config
from firsttoken_operator.cli.errors import BadInput

CONFIG = {"model_type": "llama", "hidden_size": 64}
UNKNOWN, OTHER = ModelSpec(uri="hf://somebody/model"), ModelSpec(uri="pvc://claim/other")
KNOWN = ModelSpec(uri="hf://Qwen/Qwen3-8B")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def bad(models: list[ModelSpec], path: object) -> str:
    with pytest.raises(BadInput) as raised:
        model_config.find(models, str(path))
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--model-config ")
    return str(raised.value)


def test_a_file_is_of_the_one_model_that_nobody_knows(file: Path) -> None:
    found = model_config.find([KNOWN, UNKNOWN, UNKNOWN], str(file))
    assert found.of(UNKNOWN) == CONFIG
    assert found.of(KNOWN) is None
    assert model_config.find([OTHER], str(file)).of(OTHER) == CONFIG, "any source, not only the hub's"


def test_a_file_that_no_model_or_several_models_want(file: Path) -> None:
    assert "every model here is known" in bad([KNOWN], file)
    assert "hf://somebody/model, pvc://claim/other" in bad([UNKNOWN, OTHER], file)


def test_what_modelopt_keeps_beside_it_is_read(file: Path) -> None:
    quantisation = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    file.with_name("hf_quant_config.json").write_text(json.dumps(quantisation), encoding="utf-8")
    found = model_config.find([UNKNOWN], str(file)).of(UNKNOWN)
    assert found == {**CONFIG, "quantization_config": quantisation}


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"{", "no JSON (Expecting property name"),
        (b"\xff", "no JSON ('utf-8' codec"),
        (b"[" * 100_000, "no JSON ("),
        (b"[]", "no JSON object"),
        (b'{"apiVersion": "firsttoken.dev/v1alpha1"}', "neither model_type nor architectures"),
        (b'{"model_type": "llama", "rope_scaling": {"factor": 1e999}}', "rope_scaling.factor is inf, not a finite"),
        (b" " * (5 * 2**20), "larger than 4 MiB"),
    ],
)
def test_a_file_that_is_no_config(file: Path, content: bytes, part: str) -> None:
    file.write_bytes(content)
    assert part in bad([UNKNOWN], file)
    assert bad([UNKNOWN], file).endswith(("this is no model's config.json", "give spec.model.architecture.inline"))


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert "no such file" in bad([UNKNOWN], tmp_path / "absent.json")
    assert "can't be read" in bad([UNKNOWN], tmp_path)
    assert bad([UNKNOWN], "a\0b")


def test_the_hub_is_asked_for_hub_models_and_its_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def fetch(spec: ModelSpec) -> dict[str, Any]:
        asked.append(spec.uri)
        return CONFIG

    monkeypatch.setattr("firsttoken_operator.hub.fetch_config", fetch)
    found = model_config.find([KNOWN, UNKNOWN, OTHER, UNKNOWN], None)
    assert (asked, found.of(UNKNOWN), found.of(OTHER)) == (["hf://somebody/model"], CONFIG, None)


def test_a_hub_out_of_reach_is_a_sentence_after_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused_port()}")
    found = model_config.find([UNKNOWN], None)
    refusal = Infeasible("UnknownModel", "not known")
    told = found.told(refusal, UNKNOWN)
    assert isinstance(told, Infeasible)
    assert told.message.startswith("not known; the hub at http://127.0.0.1:")
    assert told.message.endswith(": give spec.model.architecture.inline or preset")
    assert found.told(refusal, KNOWN) is refusal
    other = Infeasible("Memory", "too big")
    assert found.told(other, UNKNOWN) is other
