"""Why a replica lies in one node or on several: what goes over the links, and what the other way would carry (M4.6)."""

import math
from dataclasses import replace

from firsttoken.api.engine import EnginePins
from firsttoken.planning.choice import carries, width
from firsttoken.planning.forecast import Forecast
from firsttoken.planning.network import handover_in_words, network_in_words, split_in_words, split_over_nodes
from firsttoken.planning.nodes import nodes_of
from firsttoken.planning.parallelism import Candidate, fits, why_not_divisible
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized, engine_load, memory_of
from firsttoken.planning.timing.step import Decodes, StepModel
from firsttoken.planning.types import Reason
from firsttoken.planning.words import milliseconds, number


def node_reason(chosen: Forecast, node: int) -> Reason | None:
    """Why a layer's split stays inside a node: what its all-reduces take there, and over a network (M4.6).

    `node`: devices of one. A replica that fills it says what a second node would be for.
    """
    model, tensor, engine = chosen.load.curves.model, chosen.candidate.tensor_parallel, chosen.load.engine
    if tensor == 1 or not chosen.device.link:
        return None
    # A decode engine's fullest step has a token for each running request.
    decodes = chosen.role == "decode"
    budget = engine.max_running if decodes else engine.token_budget
    wide = 2 * tensor if chosen.gpus == node and why_not_divisible(model.facts, 2 * tensor) is None else tensor
    apart = StepModel(model.facts, replace(chosen.device, node=wide // 2), tensor_parallel=wide)
    context = round(chosen.load.curves.shape.context)
    step = ((), Decodes(budget, budget * context, context)) if decodes else (((0, budget),), ())
    inside, outside = (m.step_seconds(*step) for m in (model, apart))
    assumed = " (assumed)" if chosen.device.network_assumed else ""
    links, network = (
        f"{chosen.device.link_among(tensor) / 1e9:.0f} GB/s links",
        f"a network of {chosen.device.network / 1e9:.3g} GB/s a GPU{assumed}",
    )
    text = (
        f"a replica stays in one node: the all-reduces of a step of {budget} tokens take "
        f"{milliseconds(inside.collectives)} of {milliseconds(inside.seconds)} over {links}, and "
        + (f"on two nodes (tensor parallel {wide}) " if wide > tensor else "half of it on another node ")
        + f"would take {milliseconds(outside.collectives)} over {network}{_whole_node(chosen, node)}"
    )
    return Reason("WithinNode", text)


def _whole_node(chosen: Forecast, node: int) -> str:
    """That a replica fills a node, and with what: further nodes hold copies."""
    if chosen.gpus < node:
        return ""
    memory, each = chosen.candidate.memory, chosen.device.memory_bytes
    held = math.ceil(memory.weights_bytes / (memory.usable_bytes / node))
    return (
        f"; it is all of a node: {memory.weights_bytes / 1e9:.0f} GB of weights against {node} x {each / 1e9:.0f} GB, "
        f"{held} of which they would fill; each further replica is another copy of them on another node"
    )


def with_links(said: Reason, chosen: Forecast) -> Reason:
    """A replica on several nodes, with what goes between them in a full step, against a layer's split over them."""
    model, shape, device = chosen.load.curves.model, chosen.candidate, chosen.device
    tokens = chosen.load.engine.token_budget
    step = model.step_seconds(((0, tokens),))
    parts, network = [said.message], network_in_words(device)
    if shape.pipeline_parallel > 1:
        words, seconds = handover_in_words(
            model.facts, device, (shape.tensor_parallel, shape.pipeline_parallel), tokens
        )
        of = f"{milliseconds(seconds)} of the {milliseconds(step.seconds)} that a step of {tokens} tokens takes"
        parts.append(f"{words}: {of} through all stages")
        network = "it"
    wide = shape.tensor_parallel if shape.tensor_parallel > device.node else shape.nodes * device.node
    if why_not_divisible(model.facts, wide) is None and device.node > 1:
        split = split_over_nodes(model.facts, device, wide, tokens)
        words = split_in_words(split, network, "such a step" if len(parts) > 1 else f"a step of {tokens} tokens")
        verdict = "which it carries" if wide == shape.tensor_parallel else "so a layer's split stays inside a node"
        parts.append(f"with each layer split over {wide} devices, {words}{_against_stages(chosen, tokens)}: {verdict}")
    return Reason(said.code, "; ".join(parts))


def _against_stages(chosen: Forecast, tokens: int) -> str:
    """What a step of `tokens` takes where stages lie on the nodes, each as wide as one, or as the chosen ones are."""
    model, shape, device = chosen.load.curves.model, chosen.candidate, chosen.device
    if shape.tensor_parallel > device.node:
        stages = shape.pipeline_parallel * -(-shape.tensor_parallel // device.node)
        if stages > model.facts.num_hidden_layers:
            return ""
        model = StepModel(model.facts, device, tensor_parallel=device.node, pipeline_parallel=stages)
    step = model.step_seconds(((0, tokens),))
    return (
        f", against {milliseconds(step.seconds)} through {model.stages} stages, with the next step "
        f"{milliseconds(model.interval_seconds(step))} after it"
    )


def two_nodes(forecasting: Forecasting, roles: tuple[Role, ...], sized: Sized, length: int) -> tuple[Forecast, ...]:
    """What a replica twice as large, on two nodes, is predicted to do, where one fills a node and the budget has two.

    `length`: of the longest request, tokens. Nothing for a split, for what is pinned or stands already.
    """
    found, spec, facts = sized.forecast, forecasting.spec, forecasting.question.facts
    pins, limit = spec.engine.pins or EnginePins(), spec.accelerator.max_count
    role, shape = roles[-1], sized.candidate
    node, stages = role.profile.devices_per_node, 2 * sized.candidate.pipeline_parallel
    whole = shape.nodes == 1 and shape.gpus == node > 1 and stages <= facts.num_hidden_layers
    if found is None or len(roles) > 1 or not whole or forecasting.shapes:
        return ()
    if pins.tensor_parallel or pins.pipeline_parallel or (limit is not None and limit < 2 * node):
        return ()
    both = (shape.tensor_parallel, stages)
    memory = memory_of(
        spec, facts, role, sized.budgets, shape=both, load=engine_load(spec, role, sized.budgets, length)
    )
    wider = Candidate(*both, memory, nodes_of(*both, node))
    if not fits(memory, role.profile):
        return ()
    return (forecasting.ask(role, sized.budgets, wider, near=found.per_gpu * wider.gpus),)


def over_nodes(chosen: Forecast, wider: tuple[Forecast, ...]) -> list[Reason]:
    """Why two nodes are two replicas rather than one: what both would carry, and what goes between them."""
    said = []
    for other in wider:
        shape, tokens = (
            (other.candidate.tensor_parallel, other.candidate.pipeline_parallel),
            other.load.engine.token_budget,
        )
        words, seconds = handover_in_words(other.load.curves.model.facts, other.device, shape, tokens)
        text = (
            f"two replicas of a node each carry {number(2 * chosen.capacity)} requests/s, fail apart and hand nothing "
            f"on; with one over both nodes (tensor parallel {width(other)}) {carries(other)}, and {words} in a step of "
            f"{tokens} tokens, {milliseconds(seconds)}"
        )
        said.append(Reason("NotAcrossNodes", text))
    return said
