"""How a model is cut into pipeline stages, and which of them the others wait for."""


def slowest_stage(layers: float, count: int, head: float, stages: int) -> float:
    """Seconds of the slowest of `stages`: `count` layers take `layers` seconds together, the output embedding `head`.

    vLLM spreads layers evenly (`get_pp_indices`); the last stage has the output embedding and the sampler, so it takes
    none of those left over. Source: vllm/distributed/utils.py.
    """
    each, left_over = divmod(count, stages)
    return max((each + (left_over > 0)) * layers / count, each * layers / count + head)
