"""The roles of a layout: `serve`, or `prefill` and `decode`, each with its device (Auto starts colocated)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.accelerators import near_names
from firsttoken.planning.labels import check_labels
from firsttoken.planning.lengths import Lengths
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Reason

Profiles = Mapping[str, AcceleratorProfileSpec]


@dataclass(frozen=True)
class Role:
    """One role to be filled: its name, its AcceleratorProfile, and the tokens one request keeps in its KV cache.

    `request` says where that number is from: P95, as named in the spec or assumed for the profile.
    """

    name: str
    accelerator: str
    profile: AcceleratorProfileSpec
    request_tokens: int
    request: str


def own_devices(spec: InferenceServiceSpec) -> bool:
    """Whether prefill or decode are to run on another device than the one that does both while they are together."""
    roles = (spec.accelerator.prefill, spec.accelerator.decode)
    return any(role is not None and role.type != spec.accelerator.type for role in roles)


def disaggregated(spec: InferenceServiceSpec) -> InferenceServiceSpec:
    """The same with prefill and decode apart."""
    layout = spec.layout.model_copy(update={"mode": LayoutMode.DISAGGREGATED})
    return spec.model_copy(update={"layout": layout})


def roles_of(spec: InferenceServiceSpec, profiles: Profiles, lengths: Lengths) -> tuple[Role, ...]:
    """The roles that the spec's layout has. Raises InfeasibleError: an unknown device, two that can't work together."""
    accelerator, work = spec.accelerator, lengths.workload
    if spec.layout.mode != LayoutMode.DISAGGREGATED:
        named = [("serve", accelerator.type, work.p95_total, work.assumed(), "spec.accelerator.type")]
    else:
        # A prefill engine keeps a prompt until decode has fetched it, and never the output.
        tokens = {"prefill": work.prompt.p95, "decode": work.p95_total}
        own = {"prefill": accelerator.prefill, "decode": accelerator.decode}
        named = [
            (
                role,
                given.type if given else accelerator.type,
                tokens[role],
                work.assumed(output=role == "decode"),
                f"spec.accelerator.{role}.type" if given else "spec.accelerator.type",
            )
            for role, given in own.items()
        ]
    for _, name, _, _, path in named:
        if name not in profiles:
            near = near_names(name, profiles)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            there = ", ".join(sorted(profiles)) or "none"
            text = f"{path}: no AcceleratorProfile is named {name!r}{meant}; there are: {there}"
            raise InfeasibleError("UnknownAccelerator", text, {path: near[0]} if near else {})
        check_labels(name, profiles[name], spec.engine.pins)
    roles = tuple(Role(role, name, profiles[name], tokens, f"P95{said}") for role, name, tokens, said, _ in named)
    if len(roles) > 1:
        _check_vendors(roles[0], roles[1])
    return roles


def _check_vendors(prefill: Role, decode: Role) -> None:
    """Raises InfeasibleError: one image runs both roles and is built for one vendor. KV blocks have one size then, too
    (Gaudi: 128 tokens, GPUs: 16).
    """
    vendors = [prefill.profile.vendor, decode.profile.vendor]
    if len(set(vendors)) == 1:
        return
    if "CPU" in vendors:
        why, remedy = "KV can't travel between a CPU and a GPU", "give both roles GPUs of one vendor"
    else:
        why = "one engine image runs both roles, and vLLM is built for one vendor's devices"
        remedy = "give both roles devices of one vendor"
    where = f"prefill on {prefill.profile.product} ({vendors[0]}), decode on {decode.profile.product} ({vendors[1]})"
    same = {"spec.accelerator.decode.type": prefill.accelerator, "spec.accelerator.prefill.type": decode.accelerator}
    raise InfeasibleError("Accelerator", f"{where}: {why}; {remedy}", same)


def labelled(roles: tuple[Role, ...], said: list[list[Reason]]) -> list[Reason]:
    """Reasons of all roles in order; with two roles each sentence begins with its role."""
    if len(roles) == 1:
        return said[0]
    return [
        replace(reason, message=f"{role.name}: {reason.message}")
        for role, reasons in zip(roles, said, strict=True)
        for reason in reasons
    ]
