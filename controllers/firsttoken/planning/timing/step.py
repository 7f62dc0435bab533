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
from firsttoken.planning.timing.collectives import NETWORK_LATENCY_US, all_reduce_seconds
from firsttoken.planning.timing.collectives import transfer_seconds as seconds_to_transfer
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import Efficiencies, efficiencies
from firsttoken.planning.timing.experts import experts_seconds
from firsttoken.planning.timing.gemm import GemmRates, gemm_seconds
from firsttoken.planning.timing.layout import layout
from firsttoken.planning.timing.parts import StepParts
from firsttoken.planning.timing.stages import slowest_stage
from firsttoken.planning.types import ModelFacts

# The sampler: a logit is cast to FP32, scaled, normalised and read again.
SAMPLER_BYTES = 16


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
        link: float | None = None,
        max_num_seqs: int | None = None,
        found: Efficiencies | None = None,
        scale: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """`scale`: measured over predicted seconds of steps with prompts in them, and of those without.

        `max_num_seqs`: of the engine, where few running requests mean small CUDA graphs. `found`: efficiencies other
        than the shipped ones, for the fit. Raises InfeasibleError: unknown KV format.
        """
        self.facts, self.device = facts, device
        self._found = found or efficiencies(device)
        self._ranks, self.stages = tensor_parallel, pipeline_parallel
        self._tiled, self._overlap, self._link = tiled, async_scheduling, link
        self._largest_graph = largest_graph(device.graph_limit, max_num_seqs)
        self._layout = shape = layout(facts)
        self._split = tuple(rank.split(p, tensor_parallel) for p in (shape.attention, shape.dense, shape.shared))
        self._elementwise_bytes = rank.elementwise_bytes(facts, shape, tensor_parallel)
        self._formats = rank.formats(facts, device, self._found)
        prefill, decode, rates = rank.attention(facts, device, self._found, tensor_parallel, kv_cache_dtype)
        given = facts.windowed_layers if windowed_layers is None else windowed_layers
        windowed = facts.num_hidden_layers if given is None else given
        self._windowed = windowed if facts.sliding_window else 0
        self._full = facts.num_hidden_layers - self._windowed
        self._prefill, self._decode, self._attention_rates = prefill, decode, replace(rates, score_bytes=score_bytes)
        self._prefill_full, self._decode_full = replace(prefill, window=None), replace(decode, window=None)
        self._prefill_scale, self._decode_scale = scale
        self._by_tokens: dict[int, tuple[float, float]] = {}
        self._by_rows: dict[int, float] = {}
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
        known = self._by_tokens.get(tokens)
        if known is None:
            known = self._by_tokens[tokens] = (self._linear(tokens), self._collectives(tokens))
        head = self._by_rows.get(requests)
        if head is None:
            head = self._by_rows[requests] = self._head(requests)
        attention = self._attention(chunks, decodes)
        host = self._found.host
        cpu = host.step_us + host.request_us * requests
        if tokens > self._largest_graph:
            cpu += host.eager_layer_us * self.facts.num_hidden_layers
        cpu *= 1e-6
        gpu = known[0] + known[1] + attention + head
        seconds = max(gpu, cpu) if self._overlap else gpu + cpu
        scale, off = self._decode_scale, self.interval.decode
        if tokens > count:
            scale, off = self._prefill_scale, self.interval.prefill
        return StepTime(seconds * scale, known[0], attention, known[1], head, cpu, off)

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

    def transfer_seconds(self, tokens: int, link: float | None = None, overlap: float = 0.0) -> float:
        """Seconds to move the KV of `tokens` tokens to another replica.

        `link`: bytes/s for all ranks of the replica together, by default the PCIe of each. `overlap`: seconds of
        prefill during which finished layers already travel.
        """
        kv_bytes = tokens * self.kv_bytes_per_token
        rate = link or self.device.pcie * self._ranks
        return seconds_to_transfer(kv_bytes, rate, self._found.transfer, overlap=overlap)

    @property
    def kv_bytes_per_token(self) -> float:
        """KV of one token over all layers and ranks, bytes."""
        return self._decode.kv_bytes * self.facts.num_hidden_layers * self._ranks

    def api_seconds(self, prompt_tokens: int) -> float:
        """What a request takes outside the engine until its first token is back: part of TTFT, of no step."""
        host = self._found.host
        return (host.api_request_us + host.api_token_us * prompt_tokens) * 1e-6

    def tokens_seconds(self, tokens: int) -> float:
        """The part of a step that depends on the number of its tokens alone: products, experts, collectives."""
        return self._linear(tokens) + self._collectives(tokens)

    def rows_seconds(self, rows: int) -> float:
        """The part that depends on the number of its requests alone: output embedding and sampler."""
        return self._head(rows)

    def parts(self) -> StepParts:
        """The constants of everything else, for loops that are compiled."""
        expand = self._expand_prefix(1) if self.facts.kv_lora_rank and self._tiled else 0.0
        scales, peak = (self._prefill_scale, self._decode_scale), self._formats.layers.flops * self._ranks
        shapes = (self._prefill, self._decode, self._attention_rates, self._found.host, self._layout)
        counts = (self._full, self._windowed, self._largest_graph)
        return StepParts(*shapes, *counts, self._tiled, self._overlap, expand, scales, peak)

    def _linear(self, tokens: int) -> float:
        facts, shape, host = self.facts, self._layout, self._found.host
        around_attention, dense, shared = self._split
        seconds = facts.num_hidden_layers * self._products(tokens, around_attention)
        if shape.dense_layers:
            seconds += shape.dense_layers * self._products(tokens, dense)
        if shape.experts:
            routed = rank.expert_shape(shape, facts.hidden_size, self._ranks)
            efficiency = self._found.experts[self._formats.experts_key]
            each = experts_seconds(tokens, routed, self._formats.experts, efficiency)
            router = gemm_seconds(tokens, shape.experts, facts.hidden_size, self._formats.head)
            seconds += shape.expert_layers * (each + router + self._products(tokens, shared))
        moved = tokens * self._elementwise_bytes
        elementwise = host.layer_us * 1e-6 + moved / (self.device.bandwidth * self._formats.head.efficiency.mbu)
        return seconds + facts.num_hidden_layers * elementwise

    def _products(self, tokens: int, products: tuple[tuple[int, int], ...]) -> float:
        rates: GemmRates = self._formats.layers
        return sum([gemm_seconds(tokens, n, k, rates) for n, k in products])

    def _collectives(self, tokens: int) -> float:
        message = tokens * self.facts.hidden_size * 2
        seconds = 2 * self.facts.num_hidden_layers * self._all_reduce(message)
        if self.stages > 1:
            link = self._link or self.device.link_among(2) or self.device.pcie
            seconds += (self.stages - 1) * (NETWORK_LATENCY_US * 1e-6 + message / self._ranks / link)
        return seconds

    def _all_reduce(self, message: float) -> float:
        if self._link:
            latency = NETWORK_LATENCY_US * 1e-6 if self._ranks > 1 else 0.0
            return latency + all_reduce_seconds(message, self._ranks, self._link, self._found.nvlink)
        if self.device.link:
            return all_reduce_seconds(message, self._ranks, self.device.link_among(self._ranks), self._found.nvlink)
        return all_reduce_seconds(message, self._ranks, self.device.pcie, self._found.pcie)

    def _head(self, rows: int) -> float:
        facts, ranks = self.facts, self._ranks
        columns = -(-facts.vocab_size // ranks)
        seconds = gemm_seconds(rows, columns, facts.hidden_size, self._formats.head, ragged=False)
        # The logits of all ranks are gathered on one, which samples: an all-reduce moves twice as much.
        seconds += self._all_reduce(rows * facts.vocab_size) if ranks > 1 else 0.0
        return seconds + rows * facts.vocab_size * SAMPLER_BYTES / self.device.bandwidth

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
