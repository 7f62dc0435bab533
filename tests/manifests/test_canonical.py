"""Quantities as the API server writes them back (table checked against apimachinery's rules)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.api.quantities import quantity
from firsttoken.manifests.canonical import canonical_quantity, gibibytes, passthrough


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1000m", "1"),
        ("500m", "500m"),
        ("0.5", "500m"),
        ("4", "4"),
        (4, "4"),
        ("1000", "1k"),
        ("2.0", "2"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Gi", "107374182400m"),
        ("0", "0"),
        ("128Gi", "128Gi"),
        ("1000Gi", "1000Gi"),
        ("1024Gi", "1Ti"),
        ("nonsense", "nonsense"),
    ],
)
def test_quantity_is_written_as_the_api_server_does(written: str | int, stored: str) -> None:
    assert canonical_quantity(written) == stored


@settings(deadline=None)
@given(st.integers(0, 10**5), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]))
def test_canonical_form_keeps_the_value_and_is_stable(number: int, suffix: str) -> None:
    once = canonical_quantity(f"{number}{suffix}")
    assert canonical_quantity(once) == once
    assert quantity(once) == quantity(f"{number}{suffix}")


def test_bytes_round_up_to_whole_gib() -> None:
    assert gibibytes(1) == "1Gi"
    assert gibibytes(16 * 2**30 + 1) == "17Gi"


def test_passthrough_drops_what_the_api_server_drops_and_keeps_empty_maps() -> None:
    volume: dict[str, Any] = {
        "name": "a",
        "emptyDir": {},
        "items": [],
        "x": None,
        "y": [{"readOnly": False, "z": False}],
    }
    assert passthrough(volume) == {"name": "a", "emptyDir": {}, "y": [{"z": False}]}
