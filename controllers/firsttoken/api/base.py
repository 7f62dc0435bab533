"""What every API type shares: camelCase names on the wire, frozen values, CEL rules beside the fields they guard."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from firsttoken.api.quantities import DURATION_BOUND, DURATION_PATTERN

GROUP = "firsttoken.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


@dataclass(frozen=True)
class Rule:
    """One CEL rule: the API server enforces it, `firsttoken validate` evaluates the same text offline.

    `cel` sees the value as `self`; `message` names what is wrong and the remedy (one line).
    `field_path` (relative, such as `.p95`) points the error at a child of the object that carries the rule.
    `message_cel` computes a message that also names the culprit; `message` is what remains if it can't be computed.
    Put it into `Annotated[...]` for a field, or into a class's `RULES` for a whole object.
    """

    id: str
    cel: str
    message: str
    field_path: str = ""
    message_cel: str = ""

    def as_schema(self) -> dict[str, Any]:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        if self.field_path:
            entry["fieldPath"] = self.field_path
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        return entry

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return add_validations(handler(schema), (self,))


Rules = tuple[Rule, ...]

UNDEFAULTED = "x-firsttoken-undefaulted"  # never reaches a CRD: see `schema.default_schema`


@dataclass(frozen=True)
class Extension:
    """A Kubernetes schema extension (`x-kubernetes-…`) attached to a field with `Annotated[...]`."""

    name: str
    value: Any

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), self.name: self.value}


@dataclass(frozen=True)
class Shape:
    """Gives a plain `dict[str, Any]` the schema of `model`, rules included.

    For Kubernetes' own types: they are checked like everything else, and stay dicts that are rendered as written.
    """

    model: type[BaseModel]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self.model.__pydantic_core_schema__)


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


def matches(pattern: str) -> str:
    """CEL that holds when `self` matches `pattern`, a regular expression that Python, Go and Rust read alike."""
    return f"self.matches({cel_text(pattern)})"


def cel_text(text: str) -> str:
    """`text` as a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cel_list(texts: Iterable[str]) -> str:
    """`texts` as a CEL list."""
    return "[" + ", ".join(cel_text(t) for t in texts) + "]"


def key_limit(rule_id: str, field: str, characters: int) -> Rule:
    """A bound on the keys of a map, which a structural schema can't give."""
    return Rule(
        rule_id,
        f"self.all(k, k.size() <= {characters})",
        f"a key of {field} is longer than {characters} characters: shorten it",
    )


def text_budget(rule_id: str, field: str, characters: int) -> Rule:
    """A bound on all keys and values of a map together: the object is copied into revisions, and etcd has a limit."""
    return Rule(
        rule_id,
        f"self.map(k, k.size() + self[k].size()).sum() <= {characters}",
        f"{field} is too large: its keys and values together may have {characters} characters, "
        "move long texts into a ConfigMap",
    )


SIZE_PATTERN = r"^[0-9]*[1-9][0-9]*(\.[0-9]+)?(Mi|Gi|Ti|M|G|T)$"


def size_rule(rule_id: str, example: str) -> Rule:
    """A size of memory or disk in bytes, as a quantity above zero."""
    return Rule(rule_id, matches(SIZE_PATTERN), f"not a size: write a number above zero with a unit, such as {example}")


def above_zero(rule_id: str, message: str) -> Rule:
    """A duration that is not zero. What is no duration at all is the other rule's to say."""
    return Rule(rule_id, matches("[1-9]") + " || !" + matches("[0-9]"), message)


Duration = Annotated[
    str,
    Field(max_length=32),
    Rule(
        "duration",
        matches(DURATION_PATTERN),
        f"not a duration: write {DURATION_BOUND}",
    ),
]
DnsName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Rule(
        "object-name",
        matches("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"),
        "not an object name: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit",
    ),
]
DataKey = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Rule(
        "data-key",
        matches("^[-._a-zA-Z0-9]+$"),
        "not a key of a Secret or ConfigMap: use letters, digits, '-', '_' and '.'",
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

    type: Annotated[str, Field(max_length=128, description="What the condition is about.")]
    status: Annotated[str, Field(max_length=16, description="True, False or Unknown.")]
    reason: Annotated[str, Field(max_length=256, description="Constant in CamelCase for programs.")]
    message: Annotated[str, Field(max_length=4096, description="One sentence with its numbers, for people.")] = ""
    last_transition_time: Annotated[
        str,
        Field(description="When `status` last changed (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ]
    observed_generation: Annotated[int | None, Field(ge=0, description="The spec generation this was judged on.")] = (
        None
    )
