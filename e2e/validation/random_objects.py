"""Random objects of our kinds, mostly valid in shape and often wrong in content: what people type, and worse."""

import random
from typing import Any

import yaml

from firsttoken.api.example import BASES
from firsttoken.api.schema import Schema
from firsttoken.api.validation import schemas

# Texts that rules are about, and texts that have nothing to do with anything.
TEXTS = (
    "", "a", "Chat", "TTFT", "all", "0-64", "256-512", "512-1024", "16384+", "64-1024", "1200ms", "0s", "2h", "1x",
    "hf://org/name", "s3://bucket/x", "pvc://claim/path", "oci://r/i:t", "ftp://x", "nvidia-a100-40gb",
    "A B", "é€😀", "a\nb",
    "\x7f", "\\ \"q\"", "<tag>&", "x" * 70, "/data", "/etc/x", "../x", "a/../b",
    "firsttoken-x", "HF_TOKEN", "VLLM_PORT", "LD_PRELOAD", "A", "MY_TOKEN",
    "IMPLICIT_TOKEN", "true", "1e3", "9999999999999d",
    "0 6 1 * *", "@monthly", "0 6 * * FRI-MON", "* * * * MON-FRI",
    "*/5 1-3,7 * JAN-MAR *", "9-5 * * * *", "UTC", "Europe/Berlin", "+1",
    "40Gi", "500m", "0.5", "64GB", "9.0", "nvidia.com/gpu", "cpu", "memory",
    "HeaderHash", "Random", "External", "Planned",
    "Disaggregated", "Colocated", "Auto", "CPU", "NVIDIA", "Exists", "Equal", "NoSchedule",
    "*.example.com", "kb.example.com",
)  # fmt: skip
KEYS = (
    "a", "cpu", "memory", "nvidia.com/gpu", "seed", "dtype", "tp", "model", "max-num-seqs", "max_num_seqs", "--x",
    "gpu-mem", "block-size",
    "no-enable-prefix-caching", "app.kubernetes.io/name", "firsttoken.dev/x", "team", "a b", "X", "k" * 320,
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 16, 50, 64, 95, 100, 128, 512, 4096, 2**31, 0.5, 0.05, 1.5, -0.25, 1e7, 2.5e-5)


def random_object(seed: int) -> dict[str, Any]:
    """An object; the same for the same `seed`."""
    rng = random.Random(seed)
    kind = rng.choice(("InferenceService", "InferenceService", "InferenceService", "AcceleratorProfile"))
    base: dict[str, Any] = yaml.safe_load(BASES[kind])
    spec = schemas()[kind]["properties"]["spec"]
    for name in rng.sample(sorted(spec["properties"]), rng.choice((1, 2, 4))):
        generated = _value(spec["properties"][name], rng)
        old = base["spec"].get(name)
        both = isinstance(old, dict) and isinstance(generated, dict)
        base["spec"][name] = {**old, **generated} if both else generated
    if rng.random() < 0.1:
        base["metadata"]["name"] = rng.choice(TEXTS)
    return base


def _value(schema: Schema, rng: random.Random) -> Any:
    if rng.random() < 0.01:
        return rng.choice((None, True, "text", 7, 0.25, [], {}, [1], {"a": 1}))
    if "enum" in schema and rng.random() < 0.9:
        return rng.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return rng.choice((1, "500m", "16Gi", "4", "x", 0))
    kind = schema.get("type")
    if kind == "object":
        return _map(schema, rng)
    if kind == "array":
        return [_value(schema["items"], rng) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in ("integer", "number"):
        numbers = [n for n in NUMBERS if kind == "number" or isinstance(n, int)]
        return rng.choice(numbers)
    return rng.choice(TEXTS)


def _map(schema: Schema, rng: random.Random) -> dict[str, Any]:
    if "additionalProperties" in schema:
        return {k: _value(schema["additionalProperties"], rng) for k in rng.sample(KEYS, rng.choice((0, 1, 2)))}
    properties: dict[str, Schema] = schema.get("properties", {})
    required = schema.get("required", [])
    return {
        name: _value(child, rng)
        for name, child in properties.items()
        if rng.random() < (0.97 if name in required else 0.35)
    }
