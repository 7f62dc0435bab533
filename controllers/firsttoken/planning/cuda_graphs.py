"""Which steps vLLM runs as CUDA graphs: memory (what they take) and step times (what is launched without one)."""

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability

# Tokens of the largest graph of any engine (vLLM's max_cudagraph_capture_size), on SM100 more.
MOST, MOST_SM100 = 512, 1024


def graph_limit(profile: AcceleratorProfileSpec) -> int:
    """Tokens of the largest graph that vLLM captures on this device, however many requests may run."""
    cuda = capability(profile)
    return MOST_SM100 if cuda is not None and cuda[0] == 10 else MOST


def largest_graph(limit: int, max_num_seqs: int | None) -> int:
    """Tokens of the largest graph of an engine; `limit` of its device. None: as many requests as need all of that."""
    return limit if max_num_seqs is None else min(2 * max_num_seqs, limit)


def captured_graphs(profile: AcceleratorProfileSpec, max_num_seqs: int) -> int:
    """How many CUDA graphs vLLM captures: of 1, 2 and 4 tokens, every 8 to 256, every 16 to the largest."""
    largest = largest_graph(graph_limit(profile), max_num_seqs)
    return sum(size <= largest for size in (1, 2, 4)) + min(largest, 256) // 8 + max(0, largest - 256) // 16
