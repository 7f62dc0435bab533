"""What the hub sends is somebody's: it does not hold up the operator, and what no record can hold is refused."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken_operator import hub
from firsttoken_operator.hub import HubError, fetch_config

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}
SAID = {"quant_method": "fp8"}


def fetched(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> dict[str, Any]:
    """What comes of a repository with this config.json."""

    async def text(*_: object) -> bytes:
        return json.dumps(config).encode()

    monkeypatch.setattr(hub, "_text", text)
    return asyncio.run(fetch_config(ModelSpec(uri="hf://somebody/model"), {}))


def test_a_file_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing and sifting megabytes of JSON takes a moment, in which everything else goes on."""
    on: dict[str, threading.Thread] = {}

    def noting(name: str, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(value: Any) -> Any:
            on[name] = threading.current_thread()
            return real(value)

        return noted

    for name in ("json_object", "essentials"):
        monkeypatch.setattr(hub, name, noting(name, getattr(hub, name)))
    assert fetched(monkeypatch, {**CONFIG, "quantization_config": SAID})
    assert set(on) == {"json_object", "essentials"}
    assert threading.main_thread() not in on.values(), "where the loop runs"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "rope_scaling.factor is nan"),
        ({"torch_dtype": "\ud800"}, "torch_dtype is \\ud800"),
        ({"num_hidden_layers": 900, "layer_types": ["sliding_attention"] * 900}, "most of them in layer_types"),
    ],
)
def test_what_no_record_can_hold_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], part: str
) -> None:
    with pytest.raises(HubError) as raised:
        fetched(monkeypatch, {**CONFIG, "quantization_config": SAID, **changes})
    said = str(raised.value)
    assert part in said
    assert said.isprintable()
    assert said.startswith("config.json of somebody/model can't be kept (config.json: ")
    assert said.endswith("give spec.model.architecture.inline or preset")
