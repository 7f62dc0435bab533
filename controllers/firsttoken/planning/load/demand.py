"""What one replica is asked for: the shape of requests, and how many a second."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from firsttoken.planning.load.lengths import LONG_TAIL, SHORT_TAIL, LengthDistribution, Stratum
from firsttoken.planning.memory import BLOCK_TOKENS
from firsttoken.planning.workload import ResolvedWorkload


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

    def prompt_class(self, share: float, tokens: int, width: float = 0.0) -> PromptClass:
        """Prompts of this length. vLLM takes whole blocks from the cache and always computes the last token."""
        whole = max(0, tokens - 1) // self.block * self.block
        cached = min(self.cached_tokens, whole)
        return PromptClass(share, tokens, cached, min(width, 2.0 * (tokens - cached - 1)))

    @cached_property
    def prompt_classes(self) -> tuple[PromptClass, ...]:
        """The strata of prompts, shortest first."""
        return tuple(self.prompt_class(s.share, s.tokens, s.width) for s in self.prompts.strata(LONG_TAIL))

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

    def longest_context(self, running: float) -> float:
        """Expected longest context among that many decodes, tokens."""
        return max(self.context, self.prompts.quantile((running + 0.5) / (running + 1)) + self.outputs.mean / 2)


def request_shape(
    work: ResolvedWorkload, max_model_length: int, *, prefix_caching: bool | None = None, block: int = BLOCK_TOKENS
) -> RequestShape:
    """Lengths of `work` cut at the maximum model length (prompt and at least one token of output).

    `prefix_caching`: what a pin says, else what the workload does. With it, the shared prefix counts as cached, in
    whole blocks of `block` tokens (`memory.block_tokens`).
    """
    caching = work.prefix_caching if prefix_caching is None else prefix_caching
    longest = max(1, max_model_length - 1)
    return RequestShape(
        prompts=LengthDistribution(work.prompt.p50, work.prompt.p95, longest),
        outputs=LengthDistribution(work.output.p50, work.output.p95, longest),
        cached_tokens=work.shared_prefix // block * block if caching else 0,
        block=block,
    )
