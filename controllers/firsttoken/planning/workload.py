"""What clients send: the profile's defaults (M7) under what the spec says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken.api.service_inputs import SLO, Profile, TokenDistribution, WorkloadSpec


@dataclass(frozen=True)
class ProfileDefaults:
    """What a profile stands for where the spec is silent. Lengths in tokens."""

    prompt_p50: int
    prompt_p95: int
    output_p50: int
    output_p95: int
    shared_prefix: int
    prefix_caching: bool
    slos: tuple[SLO, ...]


def _slos(ttft: str, tpot: str) -> tuple[SLO, ...]:
    """TTFT *and* TPOT at P95: with TTFT alone the biggest chunk would always win (DESIGN §7)."""
    return SLO(metric="TTFT", percentile=95, target=ttft), SLO(metric="TPOT", percentile=95, target=tpot)


# Lengths from public traces where there is one, else from M7's words (long, medium, short) and then marked
# "assumed": a start until traffic is measured. For scale, targets of others: MLPerf Inference server, Llama 2 70B:
# P99 TTFT 2 s and TPOT 200 ms, interactive 450 ms and 40 ms; DistServe (OSDI 2024): chat 0.25 s and 100 ms,
# code 125 ms and 200 ms, summaries 15 s and 150 ms.
DEFAULTS: Mapping[Profile, ProfileDefaults] = {
    # Assumed: long in, short out. Documents differ from each other, so a prefix cache finds nothing. A reader waits
    # for a summary as for a page: 10 s; 100 ms a token is reading speed.
    Profile.SUMMARIZATION: ProfileDefaults(6144, 16384, 200, 400, 0, False, _slos("10s", "100ms")),
    # Azure's public conversation trace (2023): prompts P50 1020, P95 4083, outputs P50 129, P95 451. Every turn
    # repeats the conversation so far, so the prefix cache hits. One second to the first word; 20 tokens a second.
    Profile.CHAT: ProfileDefaults(1024, 4096, 128, 451, 256, True, _slos("1s", "50ms")),
    # Azure's public code trace (2023): prompts P50 1469, P95 7315, outputs P50 13, P95 90. The file's beginning
    # repeats between keystrokes. The whole median answer (13 tokens) should be there within a second.
    Profile.CODE_COMPLETION: ProfileDefaults(1469, 7315, 13, 90, 0, True, _slos("500ms", "30ms")),
    # Assumed: long in, throughput counts. Nobody waits; the targets only keep a queue from growing without end.
    Profile.OFFLINE_BATCH: ProfileDefaults(4096, 16384, 256, 1024, 0, False, _slos("30s", "200ms")),
    # M8: prompts 800-1500, outputs 300-500, about 40 % of prefill shared (0.4 x 1150, in whole blocks of 16). The
    # TTFT target is what the case reached.
    Profile.KNOWLEDGE_QA: ProfileDefaults(1150, 1500, 400, 500, 448, True, _slos("1200ms", "50ms")),
}


@dataclass(frozen=True)
class ResolvedWorkload:
    """Lengths in tokens; `*_given` says whether the spec named them (a default may be adapted, a given one not)."""

    profile: Profile
    prompt: TokenDistribution
    output: TokenDistribution
    prompt_given: bool
    output_given: bool
    shared_prefix: int
    shared_prefix_given: bool
    prefix_caching: bool
    requests_per_second: float | None

    @property
    def p95_total(self) -> int:
        """P95 prompt plus P95 output: an upper bound of the P95 of the sum, since both are rarely long at once."""
        return self.prompt.p95 + self.output.p95

    def assumed(self, *, output: bool = True) -> str:
        """What to add to a sentence with these lengths: "", or which of them are the profile's and not the user's."""
        missing = [] if self.prompt_given else ["prompt"]
        missing += ["output"] if output and not self.output_given else []
        if not missing:
            return ""
        which = "" if len(missing) == 1 + output else f"{missing[0]} "
        return f", {which}assumed for profile {self.profile.value}"


def resolve(workload: WorkloadSpec) -> ResolvedWorkload:
    """The workload with every gap filled from its profile."""
    default = DEFAULTS[workload.profile]
    prompt = workload.prompt_tokens or TokenDistribution(p50=default.prompt_p50, p95=default.prompt_p95)
    output = workload.output_tokens or TokenDistribution(p50=default.output_p50, p95=default.output_p95)
    given = workload.shared_prefix_tokens
    # A profile's shared prefix can't be longer than the prompts somebody named.
    shared = given if given is not None else min(default.shared_prefix, prompt.p50)
    return ResolvedWorkload(
        profile=workload.profile,
        prompt=prompt,
        output=output,
        prompt_given=workload.prompt_tokens is not None,
        output_given=workload.output_tokens is not None,
        shared_prefix=shared,
        shared_prefix_given=given is not None,
        # A named shared prefix is worth caching whatever the profile thinks.
        prefix_caching=default.prefix_caching or bool(given),
        requests_per_second=workload.requests_per_second,
    )


def default_slos(profile: Profile) -> tuple[SLO, ...]:
    """The profile's promises where `spec.slos` is empty: what is planned for."""
    return DEFAULTS[profile].slos


def bucket_names(bounds: Sequence[int]) -> tuple[str, ...]:
    """Names of the prompt-length buckets with these rising upper bounds: `0-64`, `64-256`, … `16384+`.

    Predictions and measurements are kept by these names (DESIGN §7).
    """
    edges = (0, *bounds)
    closed = tuple(f"{low}-{high}" for low, high in zip(edges, bounds, strict=False))
    return (*closed, f"{edges[-1]}+")
