"""docs/fields.md: every field of an InferenceService's spec, from the schema that the API server has (`make docs`)."""

import json
from collections.abc import Iterator
from typing import Any

from firsttoken.api.schema import VALIDATIONS, Schema
from firsttoken.api.validation import schemas
from firsttoken.planning.workload import DEFAULTS, ProfileDefaults
from firsttoken.reconcile.inactive import WITHOUT_EFFECT

# Below these a field is Kubernetes' own, under Kubernetes' own name.
_KUBERNETES = ("spec.podTemplate.spec", "spec.podTemplate.metadata")

_INTRODUCTION = """\
# Fields of an InferenceService

<!-- Made by `make docs` from the models; don't edit. -->

Everything but `spec.model.uri` and `spec.accelerator.type` may be left out. A default in a table is what the API
server stores; where there is none, the meaning says what happens. `[]` is an item of a list, `{}` a value of a map.
What else is refused, and in which words: [validation](validation.md). In a cluster, `kubectl explain infsvc.spec`.

Accepted and kept, without effect in this version (the plan and the status name them where they are set, reason
`NotActiveYet`; `tuning.mode` only as `Auto`, `tuning.tokenBudget` only with `mode: Off` or a pinned budget,
`accelerator.prefill` and `accelerator.decode` only while `layout.mode` is not `Disaggregated`): """


def reference() -> str:
    """The whole page."""
    spec = schemas()["InferenceService"]["properties"]["spec"]
    inactive = ", ".join(f"`{path}`" for path in WITHOUT_EFFECT)
    parts = [f"{_INTRODUCTION}{inactive}.", _profiles()]
    for name, child in spec["properties"].items():
        parts.append(_section(f"spec.{name}", child, required=name in spec.get("required", ())))
    return "\n\n".join(parts) + "\n"


def _profiles() -> str:
    """What `spec.workload.profile` stands for where the spec is silent."""
    head = (
        "## Profiles\n\nWhat `spec.workload.profile` stands for where the spec is silent. Lengths in tokens, P50 / "
        "P95. SLOs are of all requests.\n\n| profile | prompts | outputs | shared prefix | prefix caching | SLOs |\n"
        "|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(_profile(profile.value, default) for profile, default in DEFAULTS.items())


def _profile(name: str, default: ProfileDefaults) -> str:
    slos = ", ".join(f"{slo.metric} P{slo.percentile} {slo.target}" for slo in default.slos)
    cells = (
        f"`{name}`",
        f"{default.prompt_p50} / {default.prompt_p95}",
        f"{default.output_p50} / {default.output_p95}",
        str(default.shared_prefix),
        "on" if default.prefix_caching else "off",
        slos,
    )
    return f"| {' | '.join(cells)} |"


def _section(path: str, schema: Schema, *, required: bool) -> str:
    rows = "\n".join(_rows(path, schema, required=required))
    head = f"## {path.removeprefix('spec.')}\n\n| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
    return head + rows


def _rows(path: str, schema: Schema, *, required: bool) -> Iterator[str]:
    """The field itself, then what is below it. An object's default follows from those of its fields."""
    below = dict(schema.get("properties", {}))
    default = "required" if required else "" if below else _code(schema.get("default"))
    meaning = str(schema.get("description", "")).replace("\n", " ")
    if path in _KUBERNETES:
        meaning, below = f"{meaning} Fields are Kubernetes': {', '.join(sorted(below))}.".strip(), {}
    cells = (f"`{path.removeprefix('spec.')}`", _type(schema), default, _allowed(schema), meaning)
    yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    for name, child in below.items():
        yield from _rows(f"{path}.{name}", child, required=name in schema.get("required", ()))
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        inner = schema.get(key, {})
        for name, child in inner.get("properties", {}).items() if path not in _KUBERNETES else ():
            yield from _rows(f"{path}{mark}.{name}", child, required=name in inner.get("required", ()))


def _type(schema: Schema) -> str:
    if "items" in schema:
        return f"list of {schema['items'].get('type', 'value')}s"
    if "additionalProperties" in schema:
        return f"map to {_type(schema['additionalProperties'])}s".replace("integer or strings", "integers or strings")
    return "integer or string" if "x-kubernetes-int-or-string" in schema else str(schema.get("type", "any"))


def _allowed(schema: Schema) -> str:
    """Values, bounds and sizes; a form that a rule asks for is told by its message."""
    said = []
    if "enum" in schema:
        said.append(", ".join(_code(value) for value in schema["enum"]))
    elif "minimum" in schema or "maximum" in schema:
        low, high = schema.get("minimum"), schema.get("maximum")
        low_text = f"above {low}" if schema.get("exclusiveMinimum") else f"from {low}" if low is not None else ""
        said.append(" ".join(part for part in (low_text, f"to {high}" if high is not None else "") if part))
    for key, unit in (("maxItems", "items"), ("maxProperties", "entries"), ("maxLength", "characters")):
        if key in schema:
            said.append(f"at most {schema[key]} {unit}")
    # A message is what is wrong, and the remedy: here the second half is what is asked for.
    rules = [
        rule["message"].partition(": ")[2] for rule in schema.get(VALIDATIONS, []) if schema.get("type") == "string"
    ]
    return "; ".join([*said, *rules])


def _code(value: Any) -> str:
    if value is None:
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
