"""Whatever a file holds, commands end with 0, 1 or 2: never with a defect, never with a traceback."""

import contextlib
import copy
import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cli import samples
from firsttoken_operator.cli.main import main

COMMANDS = ("validate", "plan", "render")
SLOW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for command in COMMANDS:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([command, "-f", str(path)])
        assert code in (0, 1, 2), err.getvalue()
        assert "Traceback" not in out.getvalue() + err.getvalue()


@SLOW
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    check(tmp_path / "file.yaml", data)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
scalars |= st.sampled_from(["0", "", "1e999", "hf://x/y", "99999999999999999999", "all", "10s", "1Gi"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


BASE: dict[str, Any] = yaml.safe_load(samples.SERVICE)
PLACES = [place for place in places(BASE) if place]


@SLOW
@given(place=st.sampled_from(PLACES), value=values)
@example(place=("metadata", "namespace"), value=None)
@example(place=("metadata", "namespace"), value=[])
@example(place=("metadata",), value={"generateName": "kb-"})
@example(place=("metadata",), value={"name": "kb", "labels": {"a": None}, "generation": "x", "uid": 7})
@example(place=("spec", "workload"), value=None)
def test_a_service_with_anything_anywhere(tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    service = copy.deepcopy(BASE)
    inner = service
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    check(tmp_path / "file.yaml", yaml.safe_dump(service, allow_unicode=True).encode("utf-8", "surrogatepass"))


numbers = st.integers(1, 2**31 - 1) | st.sampled_from([1, 2, 16, 100, 4096, 2**31 - 1])


def tokens(pair: tuple[int, int]) -> dict[str, int]:
    """A distribution that validation accepts."""
    return {"p50": min(pair), "p95": max(pair)}


extreme = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries(
            {"uri": st.sampled_from(["hf://Qwen/Qwen2.5-0.5B", "pvc://claim/llama-3.3-70b", "oci://r/x:1", "s3://b/x"])}
        ),
        "accelerator": st.fixed_dictionaries(
            {"type": st.sampled_from(["nvidia-a100-40gb", "nvidia-t4", "cpu", "amd-mi300x", "intel-gaudi3", "none"])},
            optional={"maxCount": st.integers(1, 100_000)},
        ),
        "workload": st.fixed_dictionaries(
            {
                "profile": st.sampled_from(["Chat", "OfflineBatch", "Summarization"]),
                "promptTokens": st.tuples(numbers, numbers).map(tokens),
                "outputTokens": st.tuples(numbers, numbers).map(tokens),
            }
        ),
        "layout": st.fixed_dictionaries({"mode": st.sampled_from(["Auto", "Colocated", "Disaggregated"])}),
    }
)


@SLOW
@given(spec=extreme)
def test_services_that_are_valid_but_extreme(tmp_path: Path, spec: dict[str, Any]) -> None:
    check(tmp_path / "file.yaml", yaml.safe_dump({**BASE, "spec": spec}).encode())


@pytest.mark.parametrize("text", [samples.SERVICE, samples.BAD, samples.INFEASIBLE, samples.PROFILE])
def test_cut_off_anywhere(tmp_path: Path, text: str) -> None:
    for end in range(0, len(text), 37):
        check(tmp_path / "file.yaml", text[:end].encode())
