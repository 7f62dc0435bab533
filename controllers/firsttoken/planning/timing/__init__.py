"""How long kernels, steps, prefills and KV transfers take: an analytic model fitted on measured tables."""
