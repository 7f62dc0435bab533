"""A real vLLM on this machine's CPU against the simulator: calibrated while idle, predicted under load.

`python -m firsttoken_accuracy engine` measures and writes docs/accuracy-cpu.md.
"""
