"""The longest sequence a service must take, and the workload within it."""

from dataclasses import dataclass, replace

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import TokenDistribution
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import ModelFacts, Reason
from firsttoken.planning.workload import ResolvedWorkload

# P95 is not the longest request, and vLLM answers 400 to what exceeds its maximum. KV is taken by need (M4.4), so a
# generous maximum costs nothing but the guarantee that one such request fits.
HEADROOM = 2
STEP = 256  # lengths are rounded up to this, so that a small change of the workload makes no new revision


@dataclass(frozen=True)
class Lengths:
    """Maximum model lengths to try, best first, and the workload that must fit into each of them; tokens."""

    options: tuple[int, ...]
    workload: ResolvedWorkload
    reasons: tuple[Reason, ...]


def choose_lengths(spec: InferenceServiceSpec, facts: ModelFacts, workload: ResolvedWorkload) -> Lengths:
    """The given maximum, or P95 total with headroom, or (where memory is short) without. Raises InfeasibleError."""
    longest = facts.max_position_embeddings
    given = spec.model.max_model_length
    if given is not None and given > longest:
        raise InfeasibleError(
            "ModelLength",
            f"spec.model.maxModelLength is {given} tokens, {facts.name} was made for {longest}: lower it to {longest}",
            {"spec.model.maxModelLength": longest},
        )
    fitted = _within(workload, given or longest, facts)
    reasons = _capped_reason(workload, fitted, given or longest)
    if given is not None:
        return Lengths((given,), fitted, (*reasons, Reason("MaxModelLength", f"{given} tokens, as the spec says")))
    options = tuple(dict.fromkeys(min(longest, _round_up(fitted.p95_total * h)) for h in (HEADROOM, 1)))
    return Lengths(options, fitted, reasons)


def length_reason(lengths: Lengths, chosen: int, facts: ModelFacts) -> tuple[Reason, ...]:
    """Why the maximum model length is what it is, unless the spec named it."""
    if any(r.code == "MaxModelLength" for r in lengths.reasons):
        return ()
    work = lengths.workload
    how = f"P95 prompt {work.prompt.p95} + P95 output {work.output.p95} = {work.p95_total} tokens{work.assumed()}"
    if chosen == lengths.options[0] and chosen < facts.max_position_embeddings:
        return (Reason("MaxModelLength", f"{chosen} tokens: {HEADROOM} x ({how}), since P95 is not the longest"),)
    if chosen == lengths.options[0]:
        return (Reason("MaxModelLength", f"{chosen} tokens, the most {facts.name} was made for: {how}"),)
    return (Reason("MaxModelLength", f"{chosen} tokens: {how}; memory leaves no room for longer requests"),)


def _within(workload: ResolvedWorkload, limit: int, facts: ModelFacts) -> ResolvedWorkload:
    """The workload with default lengths cut down to `limit`; lengths the spec names are never changed."""
    if workload.p95_total <= limit:
        return workload
    prompt, output = workload.prompt, workload.output
    if not workload.output_given:
        room = limit - prompt.p95 if workload.prompt_given else max(1, limit // 4)
        output = _cut(output, room)
    if not workload.prompt_given:
        prompt = _cut(prompt, limit - output.p95)
    if prompt.p95 + output.p95 > limit or min(prompt.p95, output.p95) < 1:
        raise _too_long(workload, limit, facts)
    return replace(workload, prompt=prompt, output=output, shared_prefix=min(workload.shared_prefix, prompt.p95))


def _cut(lengths: TokenDistribution, limit: int) -> TokenDistribution:
    if limit < 1:
        return lengths
    return TokenDistribution(p50=min(lengths.p50, limit), p95=min(lengths.p95, limit))


def _too_long(workload: ResolvedWorkload, limit: int, facts: ModelFacts) -> InfeasibleError:
    prompt, output = workload.prompt.p95, workload.output.p95
    message = (
        f"P95 prompt {prompt} + P95 output {output} = {prompt + output} tokens{workload.assumed()}: more than the "
        f"{limit} tokens of one request ({facts.name} was made for {facts.max_position_embeddings})"
    )
    longest = facts.max_position_embeddings
    if limit < prompt + output <= longest:
        text = f"{message}: raise spec.model.maxModelLength to {prompt + output}"
        return InfeasibleError("ModelLength", text, {"spec.model.maxModelLength": prompt + output})
    if workload.prompt_given and workload.prompt.p50 <= longest - output:
        text = f"{message}: shorten the prompts to {longest - output} or choose another model"
        return InfeasibleError("ModelLength", text, {"spec.workload.promptTokens.p95": longest - output})
    return InfeasibleError("ModelLength", f"{message}: choose a model made for longer sequences")


def _capped_reason(before: ResolvedWorkload, after: ResolvedWorkload, limit: int) -> tuple[Reason, ...]:
    if before == after:
        return ()
    text = (
        f"the profile's default lengths were cut to P95 prompt {after.prompt.p95} and output {after.output.p95} tokens "
        f"so that they fit into {limit}; name yours in spec.workload"
    )
    return (Reason("WorkloadCapped", text),)


def _round_up(tokens: int) -> int:
    return -(-tokens // STEP) * STEP
