"""One Envoy and one engine an arm for each module that asks for them."""

from collections.abc import Iterator

import pytest

from manifests.envoy_case import CANARY, DEAD, RANDOM, STABLE
from manifests.real_envoy import RealEnvoy, free_ports
from manifests.upstream import Upstream, upstream


@pytest.fixture(scope="module")
def arms() -> Iterator[dict[str, Upstream]]:
    with upstream(STABLE.revision) as stable, upstream(CANARY.revision) as canary:
        yield {STABLE.revision: stable, CANARY.revision: canary}


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory, arms: dict[str, Upstream]) -> Iterator[RealEnvoy]:
    ports = {name: arm.port for name, arm in arms.items()}
    server = RealEnvoy(tmp_path_factory.mktemp("envoy"), {**ports, DEAD.revision: free_ports(1)[0]})
    server.write(RANDOM, [STABLE, CANARY])
    with server.running():
        yield server
