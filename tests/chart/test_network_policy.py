"""What the operator's NetworkPolicy opens towards Envoy is what the rendered Envoy pods are."""

from pathlib import Path
from typing import Any

import yaml

from firsttoken.manifests import groups
from firsttoken.manifests.gateway import gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.names import ENGINE_PORT, GATEWAY_METRICS_PORT
from firsttoken.manifests.revision import revision_objects
from manifests import cases

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "charts" / "firsttoken" / "templates" / "networkpolicy.yaml"


def rule() -> dict[str, Any]:
    """The egress rule towards Envoy: the only one that selects pods, and free of template expressions."""
    _, _, after = TEMPLATE.read_text().partition("# Each Envoy confirms its routes.\n")
    text, _, _ = after.partition("{{")
    (found,) = yaml.safe_load(text)
    return dict(found)


def pod_template() -> dict[str, Any]:
    (deployment,) = [o for o in gateway_objects(cases.service(), (), Images()) if o["kind"] == "Deployment"]
    return dict(deployment["spec"]["template"])


def test_it_selects_the_pods_that_are_asked_in_every_namespace() -> None:
    (peer,) = rule()["to"]
    assert peer["namespaceSelector"] == {}
    wanted = peer["podSelector"]["matchLabels"]
    assert wanted
    assert wanted.items() <= pod_template()["metadata"]["labels"].items()


def test_it_opens_the_port_that_is_asked() -> None:
    (port,) = rule()["ports"]
    assert port == {"port": GATEWAY_METRICS_PORT, "protocol": "TCP"}
    (container,) = pod_template()["spec"]["containers"]
    assert {"containerPort": port["port"], "protocol": "TCP"}.items() <= container["ports"][1].items()


def documented(name: str) -> dict[str, Any]:
    """A NetworkPolicy of docs/install.md."""
    text = (ROOT / "docs" / "install.md").read_text()
    blocks = [next(yaml.safe_load_all(b.partition("```")[0])) for b in text.split("```yaml\n")[1:]]
    (found,) = [b for b in blocks if b.get("kind") == "NetworkPolicy" and b["metadata"]["name"] == name]
    return dict(found)


def test_the_documented_policy_for_groups_covers_their_pods_and_nobody_elses() -> None:
    """vLLM's channels between nodes are unauthenticated: only pods of the service's engines reach them."""
    spec = documented("assistant-engines")["spec"]
    chosen = spec["podSelector"]["matchLabels"]
    inside, requests = spec["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": chosen}}]}
    assert requests == {"ports": [{"port": ENGINE_PORT, "protocol": "TCP"}]}
    found = revision_objects(
        cases.service("assistant"), "assistant-1a2b3c4d", cases.over_nodes(), cases.PROFILES, Images()
    )
    (group,) = [o["spec"]["leaderWorkerTemplate"] for o in found if o["kind"] == groups.KIND]
    for template in (group["leaderTemplate"], group["workerTemplate"]):
        assert chosen.items() <= template["metadata"]["labels"].items()
    (router,) = [o["spec"]["template"] for o in found if o["kind"] == "Deployment"]
    assert not chosen.items() <= router["metadata"]["labels"].items()
    assert not chosen.items() <= pod_template()["metadata"]["labels"].items()


def test_the_ingress_rule_in_the_documentation_is_its_counterpart() -> None:
    """For namespaces in which everything is denied by default."""
    policy = documented("firsttoken-asks-envoy")
    assert policy["spec"]["podSelector"]["matchLabels"] == rule()["to"][0]["podSelector"]["matchLabels"]
    (ingress,) = policy["spec"]["ingress"]
    assert ingress["ports"] == rule()["ports"]
