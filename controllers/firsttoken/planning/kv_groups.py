"""How vLLM divides KV between layers with and without a sliding window: blocks, and what a request takes of them.

Its hybrid KV cache manager (`_get_kv_cache_groups_uniform_page_size`, `SlidingWindowSpec`; vLLM 0.32) puts layers of
one kind into groups of one width. A block holds a few tokens of one group, all groups draw from one pool, and a group
with a window gives back what falls out of it.
"""

from dataclasses import dataclass
from functools import cache

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.types import ModelFacts, Reason

# Platforms of vLLM that have the hybrid manager (`support_hybrid_kv_cache`); Gaudi's plugin inherits that it has not.
HYBRID = ("NVIDIA", "AMD", "CPU")
# Up to this much more layers of one kind than of the other, groups are as wide as the larger kind.
ALIKE = 1.5


@dataclass(frozen=True)
class KVGroups:
    """The groups of a model on a device. Tokens, layers, and blocks of one group.

    Where "KV tokens" are counted, one is a token in every layer (`MemoryBudget.kv_bytes_per_token`).
    """

    block: int  # tokens
    layers: int  # of the model
    width: int  # layers of a group: what one block holds
    full: int  # groups that keep a request's every token
    windowed: int = 0  # groups that keep its last `window` tokens
    window: int = 0

    @property
    def full_share(self) -> float:
        """KV tokens that a token takes in the groups without a window; groups are padded to one width."""
        return self.full * self.width / self.layers

    @property
    def windowed_share(self) -> float:
        """KV tokens that a token takes in the groups with a window, while it is inside."""
        return self.windowed * self.width / self.layers

    def running(self, tokens: int) -> int:
        """Blocks of a request that decodes with so many tokens. A window need not begin where a block does."""
        whole = -(-tokens // self.block)
        return self.full * whole + self.windowed * min(whole, -(-self.window // self.block) + 1)

    def reserved(self, tokens: int, in_flight: int) -> int:
        """Blocks that vLLM counts for a request of the maximum length (`max_admission_blocks_per_request`).

        `in_flight`: tokens that may be scheduled before a step settles and blocks come back.
        """
        kept = min(self.window - 1 + in_flight, tokens)
        windowed = -(-kept // self.block) + 1 if self.windowed else 0
        return self.full * -(-tokens // self.block) + self.windowed * windowed

    def tokens(self, blocks: int) -> int:
        """KV tokens of so many blocks."""
        return blocks * self.block * self.width // self.layers


@cache
def kv_groups(facts: ModelFacts, vendor: str, block: int) -> KVGroups:
    """The groups of a model on a device of `vendor` (AcceleratorProfile.vendor), with `block` tokens a block.

    One kind of layer is one group, windowed or not. Without the hybrid manager (`HYBRID`), windowed layers of a mixed
    model keep everything; vLLM's NixlConnector works with it, so prefill and decode roles have it too.
    """
    layers, window = facts.num_hidden_layers, facts.sliding_window
    windowed = 0 if window is None else layers if facts.windowed_layers is None else facts.windowed_layers
    full = layers - windowed
    if full and (not windowed or vendor not in HYBRID):
        return KVGroups(block, layers, layers, 1)
    if not full:
        return KVGroups(block, layers, layers, 0, 1, window or 0)
    least, most = min(full, windowed), max(full, windowed)
    width = most if most < least * ALIKE else least
    return KVGroups(block, layers, width, -(-full // width), -(-windowed // width), window or 0)


def window_reason(
    facts: ModelFacts, groups: KVGroups, profile: AcceleratorProfileSpec, request_tokens: int
) -> tuple[Reason, ...]:
    """What windows save of a request's KV, or why they don't; nothing for a model without."""
    if facts.sliding_window is None:
        return ()
    windowed = facts.windowed_layers or facts.num_hidden_layers
    which = f"{windowed} of {facts.num_hidden_layers} layers see {facts.sliding_window} tokens"
    if not groups.windowed:
        text = f"{which} and keep all: vLLM for {profile.product} has no hybrid KV cache manager"
        return (Reason("SlidingWindow", text),)
    blocks = groups.running(request_tokens)
    text = (
        f"{which} and keep no more: a request of {request_tokens} tokens (P95) takes {groups.tokens(blocks)} tokens of "
        f"KV ({groups.full + groups.windowed} groups of {groups.width} layers, in blocks of {groups.block})"
    )
    return (Reason("SlidingWindow", text),)
