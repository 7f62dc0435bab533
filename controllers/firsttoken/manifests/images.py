"""The images that revisions and gateways run."""

from dataclasses import dataclass

# A tag is never moved here, so a node that has it needs no registry (and starts while the registry is down).
PULL_POLICY = "IfNotPresent"


@dataclass(frozen=True)
class Images:
    """Images by part; the engine's is the default for services without `spec.engine.image`.

    The `firsttoken/` ones are published nowhere yet: build them, push them to your registry, and name them to the
    operator (`--engine-image`, `--router-image`, `--envoy-image`).
    """

    engine: str = "firsttoken/runtime:0.1.0"
    router: str = "firsttoken/router:0.1.0"
    envoy: str = "envoyproxy/envoy:v1.40.0"
