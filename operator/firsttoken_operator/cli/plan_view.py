"""A plan for people: what runs, where the memory goes, which flags, and why. Only what was computed is shown."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from firsttoken.planning.explain import image_missing
from firsttoken.planning.nearest import in_words
from firsttoken.planning.promises import PROMISES_BIND, missed
from firsttoken.planning.types import Infeasible, MemoryBudget, Plan, Prediction, RolePlan
from firsttoken.planning.words import at_rate, count, device_noun, milliseconds, number, size
from firsttoken_operator.cli.console import bullets, columns, heading, pairs, printable

# Prediction.binds for people.
BINDS = {
    "Compute": "the time of steps (Compute)",
    "RunningRequests": "the places of running requests (RunningRequests)",
    "KVMemory": "KV memory (KVMemory)",
    "APIServer": "the time of the API server, which is one process (APIServer)",
}
GB = 10**9  # as in the planner's reasons, so that figures can be compared


def feasible(name: str, plan: Plan) -> RenderableType:
    """The whole plan of one service."""
    doubts = [text for text in (_missed(plan), image_missing(plan)) if text]
    answer = ("feasible", "bold green") if not doubts else (f"feasible, but {'; '.join(doubts)}", "bold yellow")
    title = Text.assemble((name, "bold"), ": ", answer, f"{'; ' if doubts else ', '}{size(plan)}")
    facts: list[tuple[str, RenderableType]] = [
        ("Layout", Text(plan.layout + (", with a router before the engines" if plan.router else ""))),
        ("Model", Text(f"{printable(plan.model)}, prompt and output up to {plan.max_model_length:,} tokens")),
        ("Live start", Text(_settings(plan))),
    ]
    return Group(
        title,
        pairs(facts),
        heading("Roles"),
        Padding(_roles(plan.roles), (0, 0, 0, 2)),
        *_memories(plan),
        *_predicted(plan, plan.prediction),
        *_alternatives(plan),
        *_flags(plan.roles),
        heading("Why"),
        pairs([(reason.code, Text(printable(reason.message))) for reason in plan.reasons]),
    )


def infeasible(name: str, outcome: Infeasible) -> RenderableType:
    """What binds, and what would be enough."""
    title = Text.assemble((name, "bold"), ": ", ("infeasible", "bold red"), f" ({outcome.constraint})")
    # The message ends with the same alternatives in words; here they are a list that can be copied.
    message = outcome.message.partition(" Feasible instead:")[0] if outcome.nearest else outcome.message
    parts: list[RenderableType] = [title, Padding(Text(printable(message)), (0, 0, 0, 2))]
    if outcome.nearest:
        parts.append(heading("Nearest feasible: any one of" if len(outcome.nearest) > 1 else "Nearest feasible"))
        parts.append(bullets([f"{path}: {in_words(value)}" for path, value in outcome.nearest.items()]))
    return Group(*parts)


def _missed(plan: Plan) -> str:
    """The worst promise that is predicted to be missed: an answer that leaves that to the last line misleads."""
    found = [printable(text) for text in missed(plan)]
    if not found:
        return ""
    more = f" (and {count(len(found) - 1, 'more promise')}, see SLOMissed)" if len(found) > 1 else ""
    return f"misses {found[0]}{more}"


def _settings(plan: Plan) -> str:
    live = plan.settings
    long = f", prompts over {live.long_prefill_threshold:,} tokens count as long" if live.long_prefill_threshold else ""
    return f"{live.token_budget:,} tokens a step, {live.decode_cap:,} running requests{long}"


def _roles(roles: tuple[RolePlan, ...]) -> RenderableType:
    devices = f"{device_noun(role.accelerator for role in roles)}s".upper()
    wide = any(role.nodes > 1 for role in roles)
    nodes = ("NODES A REPLICA",) if wide else ()
    table = columns("ROLE", "ACCELERATOR", "REPLICAS", "TP×PP", devices, *nodes, right=frozenset({2, 3, 4, 5}))
    for role in roles:
        table.add_row(
            Text(role.role),
            Text(role.accelerator),
            str(role.replicas),
            f"{role.tensor_parallel}×{role.pipeline_parallel}",
            str(role.replicas * role.gpus_per_replica),
            *((str(role.nodes),) if wide else ()),
        )
    return table


def _memories(plan: Plan) -> list[RenderableType]:
    """Of each role; an older plan knows that of its last one only."""
    known = [(role, role.memory) for role in plan.roles if role.memory is not None]
    return [
        part
        for role, memory in known or [(plan.roles[-1], plan.memory)]
        for part in (
            heading(f"Memory of one {role.role} replica"),
            pairs(_memory(memory, plan.max_model_length, role.tensor_parallel)),
        )
    ]


def _memory(memory: MemoryBudget, longest: int, ranks: int) -> list[tuple[str, RenderableType]]:
    """Figures in the order in which they add up; parts that this plan doesn't know (0) are left out."""
    rows = [
        ("Usable", memory.usable_bytes, "device memory × gpu-memory-utilization"),
        ("Weights", memory.weights_bytes, ""),
        ("Activations", memory.activation_bytes, "estimate"),
        ("Overhead", memory.overhead_bytes, "graphs, context, communication; estimate"),
        ("KV cache", memory.kv_cache_bytes, f"{memory.kv_cache_tokens:,} tokens"),
    ]
    shown: list[tuple[str, RenderableType]] = [
        (name, Text(f"{size / GB:.1f} GB" + (f" ({note})" if note else ""))) for name, size, note in rows if size
    ]
    per_token = memory.kv_bytes_per_token
    split = f" ({per_token // ranks:,} on each of {ranks} GPUs)" if ranks > 1 else ""
    shown.append(("KV per token", Text(f"{per_token:,} bytes{split}")))
    by_need, at_maximum = memory.max_concurrent_requests, memory.max_concurrent_at_maximum_length
    reserved = f"against {at_maximum:,} if each reserved {longest:,} tokens"
    shown.append(("Concurrency", Text(f"{by_need:,} requests of the workload's P95, KV taken by need; {reserved}")))
    return shown


def _predicted(plan: Plan, prediction: Prediction | None) -> list[RenderableType]:
    """Times by prompt length, as users see them at the rate named."""
    if prediction is None:
        return []
    table = columns("PROMPT TOKENS", "TTFT P50", "P95", "P99", right=frozenset({1, 2, 3}))
    for name, found in (("all", prediction.ttft), *prediction.by_prompt_tokens.items()):
        table.add_row(name, *(milliseconds(t) for t in (found.p50, found.p95, found.p99)))
    tpot = prediction.tpot
    sure = (
        f"step times ±{prediction.ttft_interval * 100:.0f} % in TTFT, ±{prediction.tpot_interval * 100:.0f} % in TPOT"
    )
    if prediction.calibrated:
        stages = ", ".join(f"{c.stage} x{number(c.ratio)} (±{c.band * 100:.0f} %)" for c in prediction.calibrated)
        sure += f"; calibrated on the live fleet: {stages}"
    facts: list[tuple[str, RenderableType]] = [
        ("TPOT", Text(f"P50 {milliseconds(tpot.p50)}, P95 {milliseconds(tpot.p95)}, P99 {milliseconds(tpot.p99)}")),
        ("Utilisation", Text(_utilisation(plan, prediction))),
        ("Confidence", Text(sure)),
    ]
    none = "" if min(role.replicas for role in plan.roles) else ", were one replica of each role running"
    load = at_rate(prediction.requests_per_second)
    assumed = " (assumed)" if prediction.assumed_rate and prediction.requests_per_second > 0 else ""
    return [
        heading(f"Predicted {load}{assumed}{none}"),
        Padding(table, (0, 0, 0, 2)),
        pairs(facts),
    ]


def _utilisation(plan: Plan, prediction: Prediction) -> str:
    """Waiting grows long before a replica is full, so a promise may end its rate at a small part of it."""
    full = BINDS.get(prediction.binds, prediction.binds)
    ends = next((r.message.partition(" ends the rate")[0] for r in plan.reasons if r.code == PROMISES_BIND), "")
    carried = min((max(1, role.replicas) * (role.capacity or 0.0) for role in plan.roles), default=0.0)
    more = ""
    if ends and carried:
        more = f"; {prediction.requests_per_second / carried * 100:.0f} % of the rate that {ends} allows"
    return f"{prediction.utilization * 100:.0f} % of what fills first, {full}{more}"


def _alternatives(plan: Plan) -> list[RenderableType]:
    """The shapes that were looked at beside the chosen one."""
    if not plan.alternatives:
        return []
    table = columns("TP×PP", "REPLICAS", "GPUS", "REQUESTS/S", "REQUESTS/S A GPU", right=frozenset({1, 2, 3, 4}))
    for other in plan.alternatives:
        carried = other.requests_per_second if other.keeps_slos else None
        figures = (number(carried), number(carried / other.gpus)) if carried else ("misses an SLO", "")
        table.add_row(
            f"{other.tensor_parallel}×{other.pipeline_parallel}", str(other.replicas), str(other.gpus), *figures
        )
    return [
        heading(f"Other shapes of {plan.roles[-1].role}, and what they carry within the SLOs"),
        Padding(table, (0, 0, 0, 2)),
    ]


def _flags(roles: tuple[RolePlan, ...]) -> list[RenderableType]:
    """One flag a line: that can be compared with what a pod was started with, and copied."""
    parts: list[RenderableType] = []
    for role in roles:
        parts.append(heading(f"Engine arguments ({role.role})"))
        lines = [f"--{flag}" + (f"={value}" if value else "") for flag, value in role.engine_args.items()]
        lines += [f"{variable}={value} (environment)" for variable, value in role.environment.items()]
        parts.append(Padding(Text("\n".join(printable(line) for line in lines)), (0, 0, 0, 2)))
    return parts
