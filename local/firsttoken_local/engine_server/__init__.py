"""An engine server that stands where a GPU would: vLLM's HTTP API in front of the simulated engine.

A double, and it says so: in the header ``x-firsttoken-engine: simulated`` of every answer, in ``owned_by`` of
``/v1/models`` and in every answer's text. No model runs and no token means anything; *when* tokens come is what the
planner's time model says of the plan, with the queueing, batching and caching of the requests that really came.
"""
