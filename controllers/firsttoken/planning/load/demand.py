"""What one replica is asked for: the shape of requests, and how many a second."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from firsttoken.planning.kv_groups import KVGroups
from firsttoken.planning.load.held import HeldKV, held_kv
from firsttoken.planning.load.lengths import LONG_TAIL, SHORT_TAIL, LengthDistribution, Stratum
from firsttoken.planning.memory import BLOCK_TOKENS
from firsttoken.planning.workload import ResolvedWorkload

RARE = 1e-6  # part of the requests below which a bucket is described by its bounds


class PromptClass(NamedTuple):
    """Prompts of about one length, spread evenly around it. Tokens."""

    share: float  # of all requests
    tokens: int
    cached: int  # of them in the prefix cache
    width: float = 0.0  # from the shortest to the longest of them

    @property
    def uncached(self) -> int:
        """Tokens to be computed, at least the last one."""
        return self.tokens - self.cached

    @property
    def squares(self) -> float:
        """Mean of their squares."""
        return self.uncached**2 + self.width**2 / 12


@dataclass(frozen=True)
class RequestShape:
    """Lengths of requests, whatever their rate. Prompt and output are taken as independent."""

    prompts: LengthDistribution
    outputs: LengthDistribution
    cached_tokens: int = 0  # shared prefix in the KV cache, whole blocks
    block: int = BLOCK_TOKENS  # tokens of a KV block of the engine
    groups: KVGroups | None = None  # of the model's layers; None: all keep every token

    def prompt_class(self, share: float, tokens: int) -> PromptClass:
        """Prompts of just this length. vLLM takes whole blocks from the cache and always computes the last token."""
        whole = max(0, tokens - 1) // self.block * self.block
        return PromptClass(share, tokens, min(self.cached_tokens, whole))

    def _around(self, share: float, tokens: int, width: float) -> PromptClass:
        """Prompts of about this length: on average half a block is beyond the last whole one."""
        if self.prompts.p50 == self.prompts.p95:
            return self.prompt_class(share, tokens)
        cached = min(self.cached_tokens, max(0, tokens - (self.block + 1) // 2))
        return PromptClass(share, tokens, cached, min(width, 2.0 * (tokens - cached - 1)))

    @cached_property
    def prompt_classes(self) -> tuple[PromptClass, ...]:
        """The strata of prompts, shortest first."""
        return tuple(self._around(s.share, s.tokens, s.width) for s in self.prompts.strata(LONG_TAIL))

    def bucket_classes(self, low: float, high: float) -> tuple[PromptClass, ...]:
        """The strata of prompts with more than `low` and at most `high` tokens, cut at these bounds. Remembered.

        No class reaches beyond its bucket, so that a longer bucket has the longer prompts throughout. Where next to no
        prompt lies in it, one stands for all, of the length in the middle. Empty where the engine takes no such prompt.
        """
        found = self._buckets.get((low, high))
        if found is None:
            found = self._buckets[low, high] = self._cut(low, high)
        return found

    @cached_property
    def _buckets(self) -> dict[tuple[float, float], tuple[PromptClass, ...]]:
        return {}

    def _cut(self, low: float, high: float) -> tuple[PromptClass, ...]:
        longest = self.prompts.longest
        if low >= longest:
            return ()
        high, start, end = min(high, longest), self.prompts.below(low), self.prompts.below(high)
        if end - start > RARE:
            edges = (start, *(e for e in LONG_TAIL if start < e < end), end)
            return tuple(self._inside(s, int(low), high) for s in self.prompts.strata(edges))
        tokens = (low + min(high, 2 * low or high)) / 2
        return (self._around(1.0, max(int(low) + 1, round(tokens)), 0.0),)

    def _inside(self, stratum: Stratum, low: int, high: float) -> PromptClass:
        tokens = min(max(low + 1, stratum.tokens), int(high))
        return self._around(stratum.share, tokens, min(stratum.width, 2.0 * min(tokens - low, high - tokens)))

    @cached_property
    def output_strata(self) -> tuple[Stratum, ...]:
        """The strata of outputs, shortest first."""
        return self.outputs.strata(SHORT_TAIL)

    @cached_property
    def decodes(self) -> tuple[tuple[float, int], ...]:
        """Of each stratum of outputs: its decode steps, a request of all, and those of one of its own requests."""
        return tuple((s.share * s.decodes, s.decodes) for s in self.output_strata)

    @cached_property
    def mean_uncached(self) -> float:
        """Tokens to prefill, a request."""
        return sum(c.share * c.uncached for c in self.prompt_classes)

    @cached_property
    def square_uncached(self) -> float:
        """Mean of the square of that."""
        return sum(c.share * c.squares for c in self.prompt_classes)

    @cached_property
    def mean_decodes(self) -> float:
        """Decode steps a request: the first token comes out of prefill."""
        return max(0.0, self.outputs.mean - 1)

    @cached_property
    def context(self) -> float:
        """Mean context of a running decode, tokens.

        A request seen at a random moment is longer than the average one, in proportion to its length: E[o^2] / E[o] is
        its output (renewal theory), half of it is there.
        """
        return self.prompts.mean + self.outputs.second_moment / (2 * self.outputs.mean)

    @cached_property
    def held(self) -> HeldKV:
        """KV of a running request of an engine that computes prompts and makes tokens."""
        return held_kv(self.prompts, self.outputs, self._groups, self.prompt_classes[-1].cached)

    @cached_property
    def held_by_prefill(self) -> HeldKV:
        """The same of a prefill engine, which never has the output."""
        return held_kv(self.prompts, None, self._groups, self.prompt_classes[-1].cached)

    @cached_property
    def held_by_decode(self) -> HeldKV:
        """The same of a decode engine, which is sent whole prompts."""
        return held_kv(self.prompts, self.outputs, self._groups, 0)

    @property
    def _groups(self) -> KVGroups:
        return self.groups or KVGroups(self.block, 1, 1, 1)

    def longest_context(self, running: float) -> float:
        """Expected longest context among that many decodes, tokens."""
        return max(self.context, self.prompts.quantile((running + 0.5) / (running + 1)) + self.outputs.mean / 2)


def request_shape(
    work: ResolvedWorkload,
    max_model_length: int,
    *,
    prefix_caching: bool | None = None,
    block: int = BLOCK_TOKENS,
    groups: KVGroups | None = None,
) -> RequestShape:
    """Lengths of `work` cut at the maximum model length (prompt and at least one token of output).

    `prefix_caching`: what a pin says, else what the workload does. With it, the shared prefix counts as cached, in
    whole blocks of `block` tokens (`block_tokens`). `groups`: how the model's layers keep KV.
    """
    caching = work.prefix_caching if prefix_caching is None else prefix_caching
    longest = max(1, max_model_length - 1)
    return RequestShape(
        prompts=LengthDistribution(work.prompt.p50, work.prompt.p95, longest),
        outputs=LengthDistribution(work.output.p50, work.output.p95, longest),
        cached_tokens=work.shared_prefix // block * block if caching else 0,
        block=block,
        groups=groups,
    )
