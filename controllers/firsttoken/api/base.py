"""What every API type shares: camelCase names on the wire, frozen values, CEL rules beside the fields they guard."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

GROUP = "firsttoken.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True)
class Rule:
    """One CEL rule: the API server enforces it, `firsttoken validate` evaluates the same text offline.

    `cel` sees the value as `self`; `message` names what is wrong and the remedy (one line).
    `field_path` (relative, such as `.p95`) points the error at a child of the object that carries the rule.
    Put it into `Annotated[...]` for a field, or into a class's `RULES` for a whole object.
    """

    id: str
    cel: str
    message: str
    field_path: str = ""

    def as_schema(self) -> dict[str, Any]:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        return entry | {"fieldPath": self.field_path} if self.field_path else entry

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return add_validations(handler(schema), (self,))


Rules = tuple[Rule, ...]


@dataclass(frozen=True)
class Extension:
    """A Kubernetes schema extension (`x-kubernetes-…`) attached to a field with `Annotated[...]`."""

    name: str
    value: Any

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), self.name: self.value}


def add_validations(schema: JsonSchemaValue, rules: tuple[Rule, ...]) -> JsonSchemaValue:
    """`schema` with the CEL rules appended to those it already has."""
    present = list(schema.get("x-kubernetes-validations", []))
    return {**schema, "x-kubernetes-validations": present + [r.as_schema() for r in rules]}


class ApiModel(BaseModel):
    """A value of the API: frozen, camelCase on the wire; unknown fields are ignored (a newer CRD may have more)."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def wire(self) -> dict[str, Any]:
        """As the API server stores it: camelCase keys, unset optionals left out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


def list_map(*keys: str) -> tuple[Extension, Extension]:
    """Extensions of a list whose items are identified by `keys` (server-side apply merges them one by one)."""
    return (
        Extension("x-kubernetes-list-type", "map"),
        Extension("x-kubernetes-list-map-keys", list(keys)),
    )


DURATION_PATTERN = r"^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$"

Duration = Annotated[
    str,
    Field(max_length=32),
    Rule(
        "duration",
        f"self.matches('{DURATION_PATTERN}')",
        "not a duration: write a number with a unit, such as 1200ms, 1.5s, 10m or 2h",
    ),
]
DnsName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Rule(
        "object-name",
        "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
        "not an object name: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit",
    ),
]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ObjectMeta(ApiModel):
    """The part of Kubernetes' metadata that Firsttoken reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class Condition(ApiModel):
    """A Kubernetes condition (metav1.Condition)."""

    type: Annotated[str, Field(max_length=316, description="What the condition is about.")]
    status: Annotated[str, Field(max_length=16, description="True, False or Unknown.")]
    reason: Annotated[str, Field(max_length=1024, description="Constant in CamelCase for programs.")]
    message: Annotated[str, Field(max_length=32768, description="One sentence with its numbers, for people.")] = ""
    last_transition_time: Annotated[
        str,
        Field(description="When `status` last changed (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ]
    observed_generation: Annotated[int | None, Field(ge=0, description="The spec generation this was judged on.")] = (
        None
    )
