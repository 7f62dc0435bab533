"""What Firsttoken decides: pure functions from what was observed to what should be (no I/O of any kind)."""

__version__ = "0.1.0"
