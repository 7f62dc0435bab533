"""Specs and profiles for the tests, as people write them."""

from typing import Any

from firsttoken.planning.accelerators import catalogue
from firsttoken.rehearsal.cluster import merged

API = "firsttoken.dev/v1alpha1"
Object = dict[str, Any]

__all__ = ["merged", "profile", "spec"]


def spec(**changes: Any) -> Object:
    """An 8B model, one GPU a replica, two replicas without a router; `changes` are laid over it."""
    base = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
        "accelerator": {"type": "nvidia-a100-40gb", "maxCount": 2},
        "engine": {"pins": {"prefixCaching": False}},
    }
    return merged(base, changes)


def profile(name: str) -> Object:
    """An AcceleratorProfile of the catalogue."""
    body = {"apiVersion": API, "kind": "AcceleratorProfile", "metadata": {"name": name}}
    return {**body, "spec": catalogue()[name].wire()}
