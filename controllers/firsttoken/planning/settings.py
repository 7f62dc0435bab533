"""Token budget and concurrency: where the engine starts and what live tuning may reach (M4.2, M4.4)."""

from dataclasses import dataclass, field

from firsttoken.api.change import TuningMode
from firsttoken.api.engine import EnginePins, InitialSettings
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import capability, device_bytes, is_cpu
from firsttoken.planning.load.held import HeldKV
from firsttoken.planning.memory import BLOCK_TOKENS, GIB
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Reason


@dataclass(frozen=True)
class Budgets:
    """Of one role: tokens of a step at most and at start; what decides how many requests run (running.py)."""

    ceiling: int  # max-num-batched-tokens: buffers are sized to it, live tuning can't pass it
    start: int  # token budget that live tuning begins with
    max_num_seqs: int  # at most, whatever KV holds
    reasons: tuple[Reason, ...] = ()
    held: HeldKV = field(default_factory=lambda: HeldKV(1.0, 0.0))  # KV of a running request


def class_defaults(profile: AcceleratorProfileSpec) -> tuple[int, int]:
    """vLLM 0.32's server defaults for this class of device: batched tokens and running requests.

    vLLM takes the A100 out of the second class; its compute capability is 8.0, and no other has that with this memory.
    """
    memory = device_bytes(profile)
    if memory >= 160 * GIB:
        return 16384, 1024
    if memory >= 70 * GIB and not is_cpu(profile) and capability(profile) != (8, 0):
        return 8192, 1024
    return 2048, 256


def choose_budgets(spec: InferenceServiceSpec, profile: AcceleratorProfileSpec, max_model_length: int) -> Budgets:
    """Pins first, then the spec's start within the bounds of tuning, then vLLM's default. Raises InfeasibleError."""
    pins = spec.engine.pins or EnginePins()
    default_tokens, default_seqs = class_defaults(profile)
    ceiling, start, why = _tokens(spec, pins, default_tokens, profile)
    if pins.chunked_prefill is False and ceiling < max_model_length:
        if pins.token_budget is not None:
            raise InfeasibleError(
                "TokenBudget",
                f"spec.engine.pins.tokenBudget is {pins.token_budget}, below the maximum model length "
                f"{max_model_length}, and without chunked prefill a prompt must fit into one step: raise it to "
                f"{max_model_length}, or allow chunked prefill",
                {"spec.engine.pins.tokenBudget": max_model_length, "spec.engine.pins.chunkedPrefill": True},
            )
        ceiling = start = max_model_length
        why = f"{ceiling} tokens a step: without chunked prefill the longest prompt must fit into one"
    return Budgets(ceiling, start, _max_num_seqs(pins, default_seqs, ceiling), (Reason("TokenBudget", why),))


def _tokens(
    spec: InferenceServiceSpec, pins: EnginePins, default: int, profile: AcceleratorProfileSpec
) -> tuple[int, int, str]:
    """Ceiling, start, and the sentence that explains them."""
    if pins.token_budget is not None:
        return pins.token_budget, pins.token_budget, f"{pins.token_budget} tokens a step, as pinned"
    initial = spec.engine.initial.token_budget if spec.engine.initial else None
    bounds = spec.tuning.token_budget if spec.tuning.mode != TuningMode.OFF else None
    ceiling = bounds.max if bounds else max(default, initial or 0)
    start = min(max(initial or default, bounds.min if bounds else 1), ceiling)
    first = f"{start} tokens a step to begin with"
    if initial is not None:
        cause = "as spec.engine.initial says" if start == initial else f"{initial} cut to the bounds of tuning"
    elif start == default:
        cause = f"vLLM's default for {profile.product}"
    else:
        cause = f"vLLM's default {default} cut to the bounds of tuning"
    return ceiling, start, f"{first} ({cause}), {ceiling} at most; the best value is found by trying"


def _max_num_seqs(pins: EnginePins, default: int, ceiling: int) -> int:
    """Each running request takes at least one token of a step, so vLLM refuses more requests than tokens."""
    if pins.max_num_seqs is None:
        return min(default, ceiling)
    if pins.max_num_seqs > ceiling:
        raise InfeasibleError(
            "TokenBudget",
            f"spec.engine.pins.maxNumSeqs is {pins.max_num_seqs}, above the {ceiling} tokens of a step: every running "
            f"request takes one, lower it to {ceiling}",
            {"spec.engine.pins.maxNumSeqs": ceiling},
        )
    return pins.max_num_seqs


def decode_cap(initial: InitialSettings | None, max_num_seqs: int, start: int) -> int:
    """Running requests admitted at first. A step keeps room for one block of prefill beside a token for each."""
    wanted = initial.decode_cap if initial and initial.decode_cap else max_num_seqs
    return max(1, min(wanted, max_num_seqs, start - BLOCK_TOKENS))
