"""How one engine is started, and what of it can be changed while it serves."""

import math
from dataclasses import dataclass

from firsttoken.simulation.errors import SimulationInputError

NULL_BLOCKS = 1  # of the KV cache vLLM keeps one block as a placeholder, which holds nobody's KV


@dataclass(frozen=True)
class Stages:
    """What a request passes outside the engine. Seconds; `input_token_seconds` for each prompt token."""

    gateway_seconds: float = 0.0
    input_seconds: float = 0.0
    input_token_seconds: float = 0.0
    delivery_seconds: float = 0.0  # from the engine's token to the client

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise SimulationInputError(f"{name} is {value}: give seconds from 0 on")


@dataclass(frozen=True)
class Link:
    """The way of KV from prefill to decode replicas: seconds to set a transfer up, and for each token's KV.

    Transfers to one replica come one after the other; that those from one replica may, too, is not counted.
    """

    set_up_seconds: float = 0.0
    token_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise SimulationInputError(f"{name} is {value}: give seconds from 0 on")


@dataclass(frozen=True)
class EngineSettings:
    """One vLLM engine. Tokens, requests and KV blocks; `kv_blocks` of `block_tokens` each, without the null block.

    `prefill_share`: part of each step that decodes leave to prefill, as a bound on running requests (DESIGN §4).
    `reserved_tokens`: KV that each request takes at once, the old way (M4.4); 0 takes it by need. `full_prompt_fits`: a
    request is admitted only when its whole prompt has room (vLLM's --scheduler-reserve-full-isl). `schedule_ahead`:
    each step is composed while the one before it runs, so what arrives meanwhile waits for the next (asynchronous
    scheduling). `static_batching`: as before continuous batching: prompts of a batch are padded to the longest and
    computed as one, and nobody joins before its last request has ended.
    """

    token_budget: int
    max_num_seqs: int
    kv_blocks: int
    block_tokens: int = 16
    decode_cap: int = 0  # running requests admitted; 0: max_num_seqs
    prefill_share: float = 0.0
    chunked_prefill: bool = True
    long_prefill_threshold: int = 0  # most prompt tokens of one request in a step, where others are there; 0: no bound
    prefix_caching: bool = True
    priorities: bool = False  # vLLM's --scheduling-policy priority, else first come, first served
    reserved_tokens: int = 0
    full_prompt_fits: bool = True
    watermark: float = 0.0  # part of the KV blocks kept free when a request is admitted beside others
    schedule_ahead: bool = True
    static_batching: bool = False
    stages: Stages = Stages()

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_num_seqs", "kv_blocks", "block_tokens"):
            if getattr(self, name) < 1:
                raise SimulationInputError(f"{name} is {getattr(self, name)}: give 1 or more")
        for name in ("decode_cap", "long_prefill_threshold", "reserved_tokens"):
            if getattr(self, name) < 0:
                raise SimulationInputError(f"{name} is {getattr(self, name)}: give 0 (none) or more")
        for name in ("prefill_share", "watermark"):
            if not 0 <= getattr(self, name) < 1:
                raise SimulationInputError(f"{name} is {getattr(self, name)}: give a part of 1, from 0 to below 1")
        if self.static_batching and (self.chunked_prefill or self.prefix_caching or not self.reserved_tokens):
            raise SimulationInputError(
                "static_batching pads whole prompts and reserves their KV: set chunked_prefill and prefix_caching to "
                "False, and reserved_tokens"
            )
        if self.reserved_blocks > self.kv_blocks:
            raise SimulationInputError(
                f"reserved_tokens is {self.reserved_tokens}, more than the KV cache holds "
                f"({self.kv_blocks * self.block_tokens} tokens): lower it or give more kv_blocks"
            )

    @property
    def most_running(self) -> int:
        """Running requests admitted at most."""
        shared = int(self.token_budget * (1 - self.prefill_share)) if self.prefill_share else self.max_num_seqs
        return max(1, min(self.max_num_seqs, self.decode_cap or self.max_num_seqs, shared))

    @property
    def reserved_blocks(self) -> int:
        """KV blocks that a request takes at once; 0: by need."""
        return -(-self.reserved_tokens // self.block_tokens)

    @property
    def watermark_blocks(self) -> int:
        """Of the KV cache; vLLM counts the null block with them."""
        return int(self.watermark * (self.kv_blocks + NULL_BLOCKS))

    def check(self, row: int, prompt: int, output: int) -> None:
        """Raises SimulationInputError when this engine could never serve request `row` of these lengths in tokens."""
        room = self.kv_blocks * self.block_tokens
        if self.reserved_tokens:
            room = min(room, self.reserved_tokens)
        # The last token is never an input, so its KV is not kept.
        if prompt + output - 1 > room:
            raise SimulationInputError(
                f"request {row} has {prompt} + {output} tokens, more than a request's KV may take ({room}): shorten "
                "it or give more kv_blocks or reserved_tokens"
            )
        if not self.chunked_prefill and prompt + output - 1 > self.token_budget:
            raise SimulationInputError(
                f"request {row} has {prompt} + {output} tokens and must fit into one step of {self.token_budget}: "
                "raise token_budget or allow chunked_prefill"
            )
