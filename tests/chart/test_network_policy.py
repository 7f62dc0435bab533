"""What the operator's NetworkPolicy opens towards Envoy is what the rendered Envoy pods are."""

from pathlib import Path
from typing import Any

import yaml

from firsttoken.manifests.gateway import gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.names import GATEWAY_METRICS_PORT
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


def test_the_ingress_rule_in_the_documentation_is_its_counterpart() -> None:
    """For namespaces in which everything is denied by default."""
    text = (ROOT / "docs" / "install.md").read_text()
    (policy,) = [
        found
        for block in text.split("```yaml\n")[1:]
        if (found := next(yaml.safe_load_all(block.partition("```")[0]))) and found.get("kind") == "NetworkPolicy"
    ]
    assert policy["spec"]["podSelector"]["matchLabels"] == rule()["to"][0]["podSelector"]["matchLabels"]
    (ingress,) = policy["spec"]["ingress"]
    assert ingress["ports"] == rule()["ports"]
