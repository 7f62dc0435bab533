"""KV that a running request holds, as it is found at a random moment: what concurrency is sized by (M4.4)."""

import math
from dataclasses import dataclass

from firsttoken.planning.kv_groups import KVGroups
from firsttoken.planning.load.lengths import LONG_TAIL, SHORT_TAIL, Z95, LengthDistribution

AGES = (0.125, 0.375, 0.625, 0.875)  # parts of its output that a request may have made: even, so four points stand


@dataclass(frozen=True)
class HeldKV:
    """Of one running request, in KV tokens (a token in every layer)."""

    mean: float  # without the shared prefix
    deviation: float
    shared: float = 0.0  # the prefix, stored once for all

    def places(self, kv_tokens: int) -> int:
        """The most requests n whose KV fits at 95 % of the moments with n of them: n mean + z deviation sqrt(n)."""
        room = kv_tokens - self.shared
        if room <= 0:
            return 0
        spread = Z95 * self.deviation
        root = (math.sqrt(spread * spread + 4 * self.mean * room) - spread) / (2 * self.mean)
        return int(root * root + 1e-9)


def held_kv(prompts: LengthDistribution, outputs: LengthDistribution | None, groups: KVGroups, shared: int) -> HeldKV:
    """Of prompts and of the outputs made so far; `outputs` None: of an engine that only computes prompts.

    A request seen at a random moment is longer than the average one, in proportion to its output: E[o^2] / E[o] is its
    output (renewal theory), and any part of that is there alike. `shared` tokens of prefix are stored once.
    """
    made, made_variance = _age(outputs) if outputs else (0.0, 0.0)
    half = groups.block / 2  # the last block of a request is half empty on average
    own = prompts.mean + made - shared + half
    deviation = math.sqrt(max(0.0, prompts.second_moment - prompts.mean**2) + made_variance)
    mean, spread, stored = groups.full_share * own, groups.full_share * deviation, groups.full_share * shared
    if groups.windowed:
        inside, inside_spread = _inside(prompts, outputs, groups, shared)
        mean += groups.windowed_share * inside
        spread += groups.windowed_share * inside_spread  # both grow with the request
        stored += groups.windowed_share * min(shared, groups.window)
    return HeldKV(max(mean, 1.0), spread, stored)


def _age(outputs: LengthDistribution) -> tuple[float, float]:
    """Tokens that a running request has made: mean and variance."""
    mean = outputs.second_moment / (2 * outputs.mean)
    return mean, max(0.0, outputs.third_moment / (3 * outputs.mean) - mean * mean)


def _inside(
    prompts: LengthDistribution, outputs: LengthDistribution | None, groups: KVGroups, shared: int
) -> tuple[float, float]:
    """Tokens that a group with a window keeps of a request's own: mean and deviation, over strata of the lengths."""
    most = groups.window + groups.block  # neither end of a window need be that of a block
    made = [(1.0, 0.0)]
    if outputs:
        strata = outputs.strata(SHORT_TAIL)
        all_tokens = sum(s.share * s.tokens for s in strata)
        made = [(s.share * s.tokens / all_tokens / len(AGES), s.tokens * age) for s in strata for age in AGES]
    total = square = 0.0
    for prompt in prompts.strata(LONG_TAIL):
        for weight, tokens in made:
            kept = min(most, max(0, prompt.tokens - shared) + tokens + groups.block / 2)
            total += prompt.share * weight * kept
            square += prompt.share * weight * kept * kept
    return total, math.sqrt(max(0.0, square - total * total))
