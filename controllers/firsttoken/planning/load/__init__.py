"""How one replica and a layout fare under a request rate: TTFT, TPOT, utilisation, goodput. Closed formulas, no steps.

Stated where used: M/G/1 for the prompts, M/G/infinity for the decodes, one fixed point that couples them.
"""
