"""Which nodes the ranks of a replica lie on: tensor parallelism inside a node, pipeline stages over several (M4.6)."""

from collections.abc import Iterator

# vLLM has no limit. Beyond a few nodes a replica is lost too often, and each further stage delays every token.
MOST_NODES = 8


def nodes_of(tensor_parallel: int, stages: int, node: int) -> int:
    """The fewest nodes of `node` devices that hold `tensor_parallel * stages` ranks, as many on each.

    vLLM numbers ranks stage by stage and gives each node the same number of them (`--nnodes`). A stage that is wider
    than a node takes whole ones.
    """
    if tensor_parallel > node:
        return stages * -(-tensor_parallel // node)
    return next(n for n in range(1, stages + 1) if stages % n == 0 and tensor_parallel * (stages // n) <= node)


def stages_over_nodes(tensor_parallel: int, layers: int, node: int) -> Iterator[int]:
    """Numbers of pipeline stages, of `tensor_parallel` devices each, that fill two nodes, three, and so on."""
    each = node // tensor_parallel
    yield from (each * n for n in range(2, MOST_NODES + 1) if each * n <= layers)
