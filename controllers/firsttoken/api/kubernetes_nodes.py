"""Kubernetes' node selector terms, as far as an AcceleratorProfile uses them (see kubernetes.py)."""

from typing import Annotated

from pydantic import Field

from firsttoken.api.base import ApiModel
from firsttoken.api.kubernetes import LabelKey, LabelValue


class NodeRequirement(ApiModel):
    """One condition on a node (core/v1 NodeSelectorRequirement)."""

    key: Annotated[LabelKey, Field(min_length=1, description="Label or field.")]
    operator: Annotated[
        str,
        Field(
            description="How it is compared.",
            json_schema_extra={"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]},
        ),
    ]
    values: Annotated[list[LabelValue], Field(max_length=16, description="Values, for In, NotIn, Gt and Lt.")] = []


class NodeSelectorTerm(ApiModel):
    """Conditions that hold together (core/v1 NodeSelectorTerm)."""

    match_expressions: Annotated[
        list[NodeRequirement], Field(max_length=8, description="Conditions on the node's labels.")
    ] = []
    match_fields: Annotated[
        list[NodeRequirement], Field(max_length=4, description="Conditions on the node's fields.")
    ] = []
