"""Time of one engine step, a prefill, a decode step and a KV transfer, for one model on one replica.

A step is the sum of its kernels' times; with asynchronous scheduling the CPU prepares the next step meanwhile, so the
longer of both counts. Preparing a StepModel costs about a millisecond; a step then takes a few microseconds, since all
that depends on the step's token count alone is remembered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from firsttoken.planning.cuda_graphs import largest_graph
from firsttoken.planning.timing import rank
from firsttoken.planning.timing.attention import (
    LEAST_SCORE_BYTES,
    decode_floor,
    decodes_work,
    prefill_floor,
    prefill_work,
    untiled_seconds,
)
from firsttoken.planning.timing.collectives import transfer_seconds as seconds_to_transfer
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import Efficiencies, efficiencies
from firsttoken.planning.timing.layout import layout
from firsttoken.planning.timing.parts import StepParts
from firsttoken.planning.timing.stages import slowest_stage
from firsttoken.planning.timing.tokens import TokenWork
from firsttoken.planning.types import ModelFacts


class Decodes(NamedTuple):
    """Decodes of a step in sum, where the single contexts are not at hand. Contexts in tokens."""

    requests: int
    total_context: int
    max_context: int


class StepTime(NamedTuple):
    """Seconds of one step and where they go; 9 in 10 true times lie within `seconds` x (1 +- relative_interval)."""

    seconds: float
    linear: float  # matrix products, experts and what is done element by element
    attention: float
    collectives: float  # all-reduces, and passing activations between pipeline stages
    head: float  # output embedding and sampler
    cpu: float  # runs beside the GPU with asynchronous scheduling, else after it
    relative_interval: float


class StepModel:
    """One model on one replica. Weights are as `facts` says; `kv_cache_dtype` is vLLM's name (auto, fp8, ...).

    `windowed_layers`: how many layers have `facts.sliding_window`, all by default. `link`: bytes/s between the ranks,
    one direction, where that is not the device's own link (ranks on several nodes). `tiled=False`: attention that
    writes its score matrix, with `score_bytes` of memory traffic for each score. Pipeline stages add up: the time
    is what one batch takes through all of them; how soon the next batch may follow it is `interval_seconds`.
    """

    def __init__(
        self,
        facts: ModelFacts,
        device: Device,
        *,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        kv_cache_dtype: str = "auto",
        tiled: bool = True,
        score_bytes: float = LEAST_SCORE_BYTES,
        async_scheduling: bool = True,
        windowed_layers: int | None = None,
        max_num_seqs: int | None = None,
        found: Efficiencies | None = None,
        scale: tuple[float, float] = (1.0, 1.0),
        tokens: TokenWork | None = None,
    ) -> None:
        """`scale`: measured over predicted seconds of steps with prompts in them, and of those without.

        `max_num_seqs`: of the engine, where few running requests mean small CUDA graphs. `found`: efficiencies other
        than the shipped ones, for the fit. `tokens`: those of the same replica with another KV cache or another scale,
        to share what they remember. Raises InfeasibleError: unknown KV format.
        """
        self.facts, self.device = facts, device
        self._found = found or efficiencies(device)
        self._ranks, self.stages = tensor_parallel, pipeline_parallel
        self._tiled, self._overlap = tiled, async_scheduling
        self._largest_graph = largest_graph(device.graph_limit, max_num_seqs)
        self._layout = layout(facts)
        self._formats = formats = rank.formats(facts, device, self._found)
        self.tokens = tokens or TokenWork(
            facts,
            device,
            self._layout,
            formats,
            self._found,
            ranks=tensor_parallel,
            stages=pipeline_parallel,
        )
        prefill, decode, rates = rank.attention(facts, device, self._found, tensor_parallel, kv_cache_dtype)
        given = facts.windowed_layers if windowed_layers is None else windowed_layers
        windowed = facts.num_hidden_layers if given is None else given
        self._windowed = windowed if facts.sliding_window else 0
        self._full = facts.num_hidden_layers - self._windowed
        self._prefill, self._decode, self._attention_rates = prefill, decode, replace(rates, score_bytes=score_bytes)
        self._prefill_full, self._decode_full = replace(prefill, window=None), replace(decode, window=None)
        self._prefill_scale, self._decode_scale = scale
        self._by_decodes: dict[tuple[Decodes, float], float] = {}
        # What of this model no kernel table covers, in words.
        self.unmeasured = rank.unmeasured(facts, self._formats, self._found, kv_cache_dtype, tiled=tiled)
        if pipeline_parallel > 1:
            self.unmeasured += ("pipeline stages",)
        self.interval = self._found.unmeasured_interval if self.unmeasured else self._found.interval

    def step_seconds(self, chunks: Sequence[tuple[int, int]] = (), decodes: Sequence[int] | Decodes = ()) -> StepTime:
        """One step: prompt chunks as (tokens before it, tokens of it), and the contexts of decoding requests."""
        count = decodes.requests if isinstance(decodes, Decodes) else len(decodes)
        tokens, requests = count, count
        for _, chunk in chunks:
            tokens += chunk
            requests += chunk > 0
        if not tokens:
            return StepTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, self.interval.decode)
        linear, collectives = self.tokens.of_tokens(tokens)
        head = self.tokens.of_rows(requests)
        attention = self._attention(chunks, decodes)
        host = self._found.host
        cpu = host.step_us + host.request_us * requests
        if tokens > self._largest_graph:
            cpu += host.eager_layer_us * self.facts.num_hidden_layers
        cpu *= 1e-6
        gpu = linear + collectives + attention + head
        seconds = max(gpu, cpu) if self._overlap else gpu + cpu
        scale, off = self._decode_scale, self.interval.decode
        if tokens > count:
            scale, off = self._prefill_scale, self.interval.prefill
        return StepTime(seconds * scale, linear, attention, collectives, head, cpu, off)

    def interval_seconds(self, step: StepTime) -> float:
        """Seconds from the start of `step` to that of the next one where a batch is in every stage."""
        if self.stages == 1 or not step.seconds:
            return step.seconds
        layers, count = step.linear + step.attention + step.collectives, self.facts.num_hidden_layers
        gpu = layers + step.head
        whole = max(gpu, step.cpu) if self._overlap else gpu + step.cpu
        slowest = max(slowest_stage(layers, count, step.head, self.stages), step.cpu, whole / self.stages)
        return slowest * step.seconds / whole

    def prefill_seconds(
        self,
        prompt_tokens: int,
        cached_tokens: int = 0,
        token_budget: int = 8192,
        decodes: Sequence[int] | Decodes = (),
    ) -> float:
        """Seconds of all steps that a prompt takes, `cached_tokens` of it already in the KV cache, beside `decodes`.

        Each step has at most `token_budget` tokens, decodes first. The last token is always computed, as vLLM does.
        """
        count = decodes.requests if isinstance(decodes, Decodes) else len(decodes)
        room = max(1, token_budget - count)
        done, seconds = min(cached_tokens, prompt_tokens - 1), 0.0
        while done < prompt_tokens:
            chunk = min(room, prompt_tokens - done)
            seconds += self.step_seconds(((done, chunk),), decodes).seconds
            done += chunk
        return seconds

    def decode_seconds(self, batch: int, context: int) -> float:
        """Seconds of a step of `batch` decodes that all have `context` tokens."""
        return self.step_seconds((), Decodes(batch, batch * context, context)).seconds

    def transfer_seconds(self, tokens: int, link: float | None = None) -> float:
        """Seconds to move the KV of `tokens` tokens to another replica, once all of it is there.

        `link`: bytes/s for all ranks of the replica together, by default the PCIe of each.
        """
        rate = link or self.device.pcie * self._ranks
        return seconds_to_transfer(tokens * self.kv_bytes_per_token, rate, self._found.transfer)

    @property
    def kv_bytes_per_token(self) -> float:
        """KV of one token over all layers and ranks, bytes."""
        return self._decode.kv_bytes * self.facts.num_hidden_layers * self._ranks

    def api_seconds(self, prompt_tokens: int) -> float:
        """What a request takes outside the engine until its first token is back: part of TTFT, of no step."""
        host = self._found.host
        return (host.api_request_us + host.api_token_us * prompt_tokens) * 1e-6

    def parts(self) -> StepParts:
        """The constants of everything else, for loops that are compiled."""
        expand = self._expand_prefix(1) if self.facts.kv_lora_rank and self._tiled else 0.0
        scales, peak = (self._prefill_scale, self._decode_scale), self._formats.layers.flops * self._ranks
        shapes = (self._prefill, self._decode, self._attention_rates, self._found.host, self._layout)
        counts = (self._full, self._windowed, self._largest_graph)
        return StepParts(*shapes, *counts, self._tiled, self._overlap, expand, scales, peak)

    def _attention(self, chunks: Sequence[tuple[int, int]], decodes: Sequence[int] | Decodes) -> float:
        """One launch a layer serves chunks and decodes, so the larger of their floors is paid, once."""
        rates, full, windowed = self._attention_rates, self._full, self._windowed
        floor = prefill_floor(rates) if chunks and self._tiled else 0.0
        seconds = (
            self._beside(decodes, floor) if isinstance(decodes, Decodes) else self._decode_attention(decodes, floor)
        )
        if not self._tiled:
            return seconds + self._untiled(chunks)
        for prefix, chunk in chunks:
            if chunk <= 0:
                continue
            if full:
                seconds += full * prefill_work(prefix, chunk, self._prefill_full, rates)
            if windowed:
                seconds += windowed * prefill_work(prefix, chunk, self._prefill, rates)
            if self.facts.kv_lora_rank and prefix:
                seconds += self._expand_prefix(prefix)
        return seconds

    def _beside(self, decodes: Decodes, floor: float) -> float:
        """`_decode_attention` of decodes in sum, remembered: chunks of many sizes are asked about beside the same."""
        key = (decodes, floor)
        found = self._by_decodes.get(key)
        if found is None:
            found = self._by_decodes[key] = self._decode_attention(decodes, floor)
        return found

    def _untiled(self, chunks: Sequence[tuple[int, int]]) -> float:
        rates, layers = self._attention_rates, self.facts.num_hidden_layers
        return layers * sum(untiled_seconds(p, c, self._prefill_full, rates) for p, c in chunks if c > 0)

    def _expand_prefix(self, prefix: int) -> float:
        """MLA: the latent vectors of earlier tokens are expanded again for each chunk (one product a layer)."""
        outputs, inputs, _ = self._layout.attention[-2]
        flops = 2 * prefix * inputs * -(-outputs // self._ranks)
        rates = self._formats.layers
        return self.facts.num_hidden_layers * flops / (rates.flops * rates.efficiency.mfu)

    def _decode_attention(self, decodes: Sequence[int] | Decodes, floor: float) -> float:
        """Floors of all layers, `floor` at least, and the work of the decodes."""
        if isinstance(decodes, Decodes):
            count, total, longest = decodes
        elif decodes:
            count, total, longest = len(decodes), sum(decodes), max(decodes)
        else:
            count = 0
        if not count:
            return floor * self.facts.num_hidden_layers
        rates, seconds = self._attention_rates, 0.0
        beside = floor > 0  # the floor of a step with chunks
        if self._full:
            seconds = max(floor, decode_floor(longest, rates))
            work = decodes_work(count, total, longest, self._decode_full, rates, beside=beside)
            seconds = self._full * (seconds + work)
        if self._windowed:
            width = self.facts.sliding_window or longest
            seen = min(total, count * width) if isinstance(decodes, Decodes) else _clipped(decodes, width)
            longest = min(longest, width)
            work = decodes_work(count, seen, longest, self._decode, rates, beside=beside)
            seconds += self._windowed * (max(floor, decode_floor(longest, rates)) + work)
        return seconds


def _clipped(contexts: Iterable[int], width: int) -> int:
    return sum(min(c, width) for c in contexts)


def replica_steps(
    facts: ModelFacts,
    device: Device,
    tensor_parallel: int,
    pipeline_parallel: int,
    kv_cache_dtype: str,
    *,
    scale: tuple[float, float] = (1.0, 1.0),
    tokens: TokenWork | None = None,
) -> StepModel:
    """The steps of a replica as it is planned, and so as it is measured.

    Raises InfeasibleError: unknown KV format.
    """
    return StepModel(
        facts,
        device,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        kv_cache_dtype=kv_cache_dtype,
        scale=scale,
        tokens=tokens,
    )
