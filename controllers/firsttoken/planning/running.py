"""How many requests run at once: as many as KV holds, in memory that is counted for just as many (M4.4).

More running requests take a larger sampler and more CUDA graphs and leave less KV, so both are found together.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.load.demand import RequestShape, request_shape
from firsttoken.planning.load.held import HeldKV
from firsttoken.planning.load.steady import DECODE, PREFILL
from firsttoken.planning.memory import EngineLoad, block_tokens, groups_of, memory_budget
from firsttoken.planning.parallelism import fits
from firsttoken.planning.roles import Role
from firsttoken.planning.types import MemoryBudget, ModelFacts, Reason
from firsttoken.planning.workload import ResolvedWorkload


def prefix_caching(spec: InferenceServiceSpec, work: ResolvedWorkload) -> bool:
    """Whether the engine keeps prefixes: as pinned, else as the workload suggests."""
    pinned = spec.engine.pins.prefix_caching if spec.engine.pins else None
    return work.prefix_caching if pinned is None else pinned


def shape_of(
    spec: InferenceServiceSpec,
    facts: ModelFacts,
    roles: Sequence[Role],
    work: ResolvedWorkload,
    max_model_length: int,
) -> RequestShape:
    """Lengths of the requests, and what of them is cached, in the largest KV blocks of the roles."""
    block = max(block_tokens(role.profile) for role in roles)
    caching, groups = prefix_caching(spec, work), groups_of(facts, roles[-1].profile)
    return request_shape(work, max_model_length, prefix_caching=caching, block=block, groups=groups)


def held_by(
    spec: InferenceServiceSpec,
    facts: ModelFacts,
    role: Role,
    *,
    work: ResolvedWorkload,
    max_model_length: int,
) -> HeldKV:
    """KV that a running request of a role holds at a random moment, where none is longer than `max_model_length`."""
    shape = request_shape(
        work,
        max_model_length,
        prefix_caching=prefix_caching(spec, work),
        block=block_tokens(role.profile),
        groups=groups_of(facts, role.profile),
    )
    return {PREFILL: shape.held_by_prefill, DECODE: shape.held_by_decode}.get(role.name, shape.held)


def places(memory: MemoryBudget, held: HeldKV) -> int:
    """Requests that may run without preempting one another often; those of P95 length that fit at once always may."""
    return max(held.places(memory.kv_cache_tokens), memory.max_concurrent_requests)


def consistent_memory(
    facts: ModelFacts,
    profile: AcceleratorProfileSpec,
    shape: tuple[int, int],
    load: EngineLoad,
    held: HeldKV,
    *,
    pinned: bool = False,
) -> MemoryBudget:
    """Memory of a shape (tensor, pipeline) with the most running requests, up to `load.max_num_seqs`, that its KV has
    places for and that leave enough of it (`parallelism.fits`); with one where no number does, and as `pinned`.

    What KV holds falls as the number grows, so there is one such number. One request and all of them are looked at
    first, which decides for most shapes; else it is found by bisection.
    """

    def at(running: int) -> MemoryBudget:
        return memory_budget(facts, profile, *shape, replace(load, max_num_seqs=running))

    def too_many(memory: MemoryBudget) -> bool:
        return places(memory, held) < memory.max_num_seqs or not fits(memory, profile)

    most = load.max_num_seqs
    every = at(most)
    if pinned or not too_many(every):
        return every
    one = at(1)
    if too_many(one):
        return one
    return at(1 + bisect_left(range(2, most), True, key=lambda running: too_many(at(running))))


def running_reason(pins: EnginePins, limit: int, memory: MemoryBudget, held: HeldKV, request: str) -> Reason:
    """Why max-num-seqs is what it is. `limit`: the most for this class of device and the step; `request`: the tokens
    of a P95 request and where that is from.
    """
    chosen, able = memory.max_num_seqs, places(memory, held)
    once = f" beside a shared prefix of {held.shared:.0f}, stored once" if held.shared >= 1 else ""
    need = (
        f"a running request holds {held.mean:.0f} +- {held.deviation:.0f} tokens of KV{once}: {able} find room in "
        f"{memory.kv_cache_tokens} at 95 % of all moments; {memory.max_concurrent_requests} of {request} fit at once"
    )
    if pins.max_num_seqs is not None:
        more = ": more than that, so some will be preempted" if chosen > able else ""
        return Reason("MaxNumSeqs", f"{chosen} as pinned; {need}{more}")
    if chosen < able:
        why = f"{limit} is the limit of this class of device" if chosen >= limit else "more would leave too little KV"
        need = f"{need}; {why}"
    return Reason("MaxNumSeqs", f"{chosen} running requests: {need}")
