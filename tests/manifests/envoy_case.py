"""What the tests of the gateway in Envoy itself send, and to whom."""

import json
from dataclasses import replace

from manifests import cases
from manifests.real_envoy import RealEnvoy

STABLE, CANARY = cases.STABLE, cases.CANARY
DEAD = replace(STABLE, revision="kb-assistant-dead0000", weight=100)
RANDOM = cases.service()
HASHED = cases.service(rollout={"split": {"mode": "HeaderHash", "header": "X-User-Id"}})
CHAT = "/v1/chat/completions"


def answering_arm(envoy: RealEnvoy, *headers: tuple[str, str]) -> str:
    """The revision that answers a request with `headers`."""
    status, _, body = envoy.request("POST", CHAT, headers, "{}")
    assert status == 200, body
    return str(json.loads(body)["arm"])
