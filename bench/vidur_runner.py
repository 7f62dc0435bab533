"""Runs Vidur, in its own environment, with a straight line for kernel times: its fitted ones come from a model hub.

That is in its favour: what is timed is its event loop and scheduler, without looking times up. Not imported by the
bench.
"""

from typing import Any

from vidur.execution_time_predictor import ExecutionTimePredictorRegistry
from vidur.execution_time_predictor.base_execution_time_predictor import (
    BaseExecutionTimePredictor,
)
from vidur.main import main
from vidur.types import ExecutionTimePredictorType

# Milliseconds of one layer of an 8B model on an A100: 10 ms a step of 32 layers, and 60 us a token.
PER_STEP, PER_TOKEN = 0.3, 0.002


def _products(_: Any, batch: Any) -> float:
    return PER_STEP + PER_TOKEN * float(batch.total_num_q_tokens)


def _nothing(*_: Any) -> float:
    return 0.0


methods: dict[str, Any] = dict.fromkeys(BaseExecutionTimePredictor.__abstractmethods__, _nothing)
methods["_get_mlp_layer_up_proj_execution_time"] = _products
methods["get_hash"] = lambda _: "straight-line"
line = type("StraightLine", (BaseExecutionTimePredictor,), methods)

if __name__ == "__main__":
    ExecutionTimePredictorRegistry.unregister(ExecutionTimePredictorType.RANDOM_FORREST)
    ExecutionTimePredictorRegistry.register(ExecutionTimePredictorType.RANDOM_FORREST, line)
    main()
